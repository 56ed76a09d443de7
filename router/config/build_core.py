"""Conversion of core entities to typed objects: addresses, link routes, auto links, exchanges, bindings.

As in Dispatch, a section that breaks a rule of the core is ignored with a warning. A management request is refused for
the same reason (management.md 2.6 and 5.8).
"""

from collections.abc import Collection, Iterable

from sluice.router.addressing.address import normalise
from sluice.router.addressing.binding_keys import INVALID_KEY, SYNTAX
from sluice.router.addressing.pattern import MAX_TOKENS, PatternError, PatternTree, address_tokens
from sluice.router.addressing.settings import PRIORITIES
from sluice.router.config.entities import (
    AddressConfig,
    AutoLinkConfig,
    BindingConfig,
    ExchangeConfig,
    LinkRouteConfig,
    TapConfig,
)
from sluice.router.config.validate import Entity

PHASES = range(10)


class EntityRefused(Exception):
    """Raised for an entity that breaks a rule of the core.

    Its text answers a request. `warning` is the text for a section of a file, written by log module `module`.
    """

    def __init__(self, text: str, warning: str, module: str = "ROUTER_CORE") -> None:
        super().__init__(text)
        self.warning = warning
        self.module = module


def build_address(entity: Entity, number: int, others: Collection[tuple[str, ...]]) -> AddressConfig:
    """Build an address. Raises Refused.

    `others` has the `tokens` of the existing addresses. `number` is for its generated name.

    brokers-and-edge.md WP-1, WP-3.
    """
    _check_address(entity)
    ingress, egress = entity.optional_number("ingressPhase"), entity.optional_number("egressPhase")
    waypoint, priority = entity.flag("waypoint"), entity.optional_number("priority")
    identity = f"address/{number}"
    address = AddressConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        prefix=entity.optional_text("prefix"),
        pattern=entity.optional_text("pattern"),
        distribution=entity.text("distribution"),
        waypoint=waypoint,
        ingress_phase=ingress or 0,
        egress_phase=egress if egress is not None else int(waypoint),
        priority=priority if priority in range(PRIORITIES) else None,
        fallback=entity.flag("enableFallback"),
        presettled_overflow=entity.text("presettledOverflow"),
        scope=entity.text("scope"),
    )
    if address.tokens in others:
        duplicate = f"Duplicate pattern '{'/'.join(address.tokens)}' not added to parse tree"
        raise EntityRefused("Already exists", f"Already exists: {duplicate}", "ERROR")
    return address


def _check_address(entity: Entity) -> None:
    """Raise Refused if the address breaks a rule. The checks are in the order of Dispatch."""
    prefix, pattern = entity.optional_text("prefix"), entity.optional_text("pattern")
    if prefix is None and pattern is None:
        text = "Must set either 'prefix' or 'pattern' attribute: ignoring configured address"
        raise EntityRefused("Either a 'prefix' or 'pattern' attribute must be provided", text, "ROUTER")
    if prefix is not None and pattern is not None:
        text = f"Cannot set both 'prefix' and 'pattern': ignoring configured address {prefix}, {pattern}"
        raise EntityRefused("Cannot specify both a 'prefix' and a 'pattern' attribute", text, "ROUTER")
    ingress, egress = entity.optional_number("ingressPhase"), entity.optional_number("egressPhase")
    phased = entity.flag("waypoint") or (ingress or 0) > 0 or (egress or 0) > 0
    kind, text = ("Prefix", prefix) if prefix is not None else ("Pattern", pattern or "")
    priority = entity.optional_number("priority")
    refusal = None
    if entity.flag("enableFallback") and phased:
        refusal = "Fallback cannot be specified with waypoint or non-zero ingress and egress phases"
    elif not text:
        refusal = f"{kind} must be a non-empty string type"
    elif not text.strip("./"):
        refusal = f"{kind} invalid - no tokens"
    elif len(address_tokens(text)) > MAX_TOKENS:
        refusal = f"{kind} invalid - more than {MAX_TOKENS} tokens"
    elif (ingress is None) != (egress is None) or any(each not in PHASES for each in (ingress or 0, egress or 0)):
        refusal = "Phase values must be between 0 and 9"
    elif priority is not None and priority >= PRIORITIES:
        refusal = "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY"
    if refusal is not None:
        raise EntityRefused(refusal, f"Error configuring address: {refusal}")


def build_link_route(entity: Entity, number: int) -> LinkRouteConfig:
    """Build a link route. `number` is for its generated name. Raises Refused. brokers-and-edge.md LR-1, LR-2."""
    prefix, pattern = entity.optional_text("prefix"), entity.optional_text("pattern")
    container_id = entity.optional_text("containerId") or None
    connection = entity.optional_text("connection") or None
    direction = entity.text("direction")
    if container_id is not None and connection is not None:
        refusal = "Both connection and containerId cannot be specified. Specify only one"
        raise EntityRefused(refusal, f"Error configuring linkRoute: {refusal}")
    if not direction:
        refusal = "No 'direction' attribute provided - it is mandatory"
        raise EntityRefused(refusal, f"Error configuring linkRoute: {refusal}")
    if prefix is None and pattern is None:
        text = "Must set either 'prefix' or 'pattern' attribute: ignoring link route address"
        raise EntityRefused("Either a 'prefix' or 'pattern' attribute must be provided", text, "ROUTER")
    if prefix is not None and pattern is not None:
        text = f"Cannot set both 'prefix' and 'pattern': ignoring link route {prefix}, {pattern}"
        raise EntityRefused("Cannot specify both a 'prefix' and a 'pattern' attribute", text, "ROUTER")
    kind, text = ("Prefix", prefix) if prefix is not None else ("Pattern", pattern or "")
    if not text.strip("./"):
        refusal = f"{kind} invalid - no tokens" if text else f"{kind} must be a non-empty string type"
        raise EntityRefused(refusal, f"Error configuring linkRoute: {refusal}")
    if len(address_tokens(text)) > MAX_TOKENS:
        refusal = f"{kind} invalid - more than {MAX_TOKENS} tokens"
        raise EntityRefused(refusal, f"Error configuring linkRoute: {refusal}")
    identity = f"linkRoute/{number}"
    return LinkRouteConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        prefix=prefix,
        pattern=pattern,
        direction=direction,
        container_id=container_id,
        connection=connection,
        add_prefix=entity.optional_text("addExternalPrefix") or None,
        delete_prefix=entity.optional_text("delExternalPrefix") or None,
    )


def build_auto_link(entity: Entity, number: int) -> AutoLinkConfig:
    """Build an auto link. `number` is for its generated name. Raises Refused. brokers-and-edge.md AL-1 to AL-3."""
    identity = f"autoLink/{number}"
    direction, fallback = entity.text("direction"), entity.flag("fallback")
    phase = entity.optional_number("phase")
    link = AutoLinkConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        address=entity.text("address"),
        direction=direction,
        phase=phase if phase is not None else int(direction == "in" and not fallback),
        container_id=entity.optional_text("containerId") or None,
        connection=entity.optional_text("connection") or None,
        external_address=entity.optional_text("externalAddress") or None,
        fallback=fallback,
        absence=entity.optional_number("brokerAbsenceSeconds") or 0,
    )
    refusal = None
    if link.container_id is not None and link.connection is not None:
        refusal = "Both connection and containerId cannot be specified. Specify only one"
    elif not link.address or not direction:
        refusal = "address and direction fields are mandatory"
    elif link.phase not in PHASES:
        refusal = "autoLink phase must be between 0 and 9"
    elif link.absence and direction == "in":
        refusal = "brokerAbsenceSeconds is for links of direction 'out'"
    if refusal is not None:
        # The text is Dispatch's, which says linkRoute for an auto link, too.
        raise EntityRefused(refusal, f"Error configuring linkRoute: {refusal}")
    return link


def build_exchange(entity: Entity, number: int, others: Iterable[ExchangeConfig]) -> ExchangeConfig:
    """Build an exchange. `others` are the existing ones; `number` is for its generated name. Raises Refused."""
    address, identity = entity.text("address"), f"exchange/{number}"
    name = entity.optional_text("name") or identity
    phases = (entity.optional_number("phase") or 0, entity.optional_number("alternatePhase") or 0)
    refusal = None
    if not address:
        refusal = "exchange address is mandatory"
    elif any(address == other.address for other in others):
        refusal = "duplicate exchange address"
    elif any(phase not in PHASES for phase in phases):
        refusal = "phase must be in the range 0-9"
    if refusal is not None:
        raise EntityRefused(refusal, f"Error configuring exchange: {refusal}")
    return ExchangeConfig(
        name=name,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        address=address,
        phase=phases[0],
        alternate_address=entity.optional_text("alternateAddress") or None,
        alternate_phase=phases[1],
        match_method=entity.text("matchMethod"),
    )


def build_binding(
    entity: Entity, number: int, exchanges: Iterable[ExchangeConfig], others: Iterable[BindingConfig]
) -> BindingConfig:
    """Build a binding. `others` are the existing ones; `number` is for its generated name. Raises Refused."""
    identity = f"binding/{number}"
    binding = BindingConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        exchange_name=entity.text("exchangeName"),
        binding_key=entity.text("bindingKey") if "bindingKey" in entity.values else "#",
        next_hop_address=entity.text("nextHopAddress"),
        next_hop_phase=entity.optional_number("nextHopPhase") or 0,
    )
    exchange = next((each for each in exchanges if each.name == binding.exchange_name), None)
    refusal = _binding_refusal(binding, exchange, others)
    if refusal is not None:
        raise EntityRefused(refusal, f"Error configuring binding: {refusal}")
    return binding


def build_tap(entity: Entity, number: int, others: Collection[TapConfig]) -> TapConfig:
    """Build a tap. `others` are the existing ones; `number` is for its generated name. Raises EntityRefused."""
    identity = f"tap/{number}"
    tap = TapConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        pattern=entity.text("pattern"),
        address=entity.text("address"),
        mode=entity.text("mode"),
    )
    refusal = _tap_refusal(tap, others)
    if refusal is not None:
        raise EntityRefused(refusal, f"Error configuring tap: {refusal}")
    return tap


def _tap_refusal(tap: TapConfig, others: Collection[TapConfig]) -> str | None:
    """Return the reason to refuse a tap, or None."""
    if not address_tokens(tap.address):
        return "a tap needs the attribute address"
    if len(address_tokens(tap.pattern)) > MAX_TOKENS:
        return f"the pattern of a tap has more than {MAX_TOKENS} tokens"
    if any(tap.name == other.name for other in others):
        return f"there is a tap '{tap.name}' already"
    taps = (*others, tap)
    try:
        loops = [(each, to) for each in taps for to in taps if tap in (each, to) and _copies(each, to.address)]
    except PatternError:
        return "a tap needs the attribute pattern, with at least one token"
    for each, to in loops:
        return (
            f"the pattern '{each.pattern}' of tap '{each.name}' matches '{to.address}', which gets the copies of "
            f"tap '{to.name}': copies would be copied"
        )
    return None


def _copies(tap: TapConfig, address: str) -> bool:
    """Return True if a tap copies the messages of an address. Raises PatternError."""
    tree: PatternTree[bool] = PatternTree()
    tree.insert(tap.pattern, True)
    return tree.match(normalise(address)) is not None


def _binding_refusal(
    binding: BindingConfig, exchange: ExchangeConfig | None, others: Iterable[BindingConfig]
) -> str | None:
    """Return the reason to refuse a binding, in the words of management CREATE, or None."""
    if not binding.exchange_name:
        return "Binding configuration requires an exchange"
    if exchange is None:
        return "Named exchange does not exist"
    if not binding.next_hop_address:
        return "No next hop specified"
    tokens = binding.binding_key.split(SYNTAX[exchange.match_method].separator)
    if len(tokens) > MAX_TOKENS or (exchange.match_method == "mqtt" and "#" in tokens[:-1]):
        return INVALID_KEY
    if binding.next_hop_phase not in PHASES:
        return "phase must be in the range 0-9"
    if any(_binding_key(binding) == _binding_key(other) for other in others):
        return "Next hop for key already exists"
    return None


def _binding_key(binding: BindingConfig) -> tuple[str, str, str, int]:
    """Return the fields that must differ between bindings."""
    return binding.exchange_name, binding.binding_key, binding.next_hop_address, binding.next_hop_phase
