"""Validated entities to typed objects, with the rules that the schema cannot express (management specification 2.6).

Rules of the core entities (address, exchange, binding) do not stop the router: the section is left out with a warning,
as Dispatch did.
"""

import os
import re
import secrets
import socket
import string
import unicodedata

from router.config.entities import (
    DEFAULT_LINK_CAPACITY,
    MAX_SESSIONS,
    MIN_FRAME_SIZE,
    AddressConfig,
    BindingConfig,
    ExchangeConfig,
    FailoverServer,
    ListenerConfig,
    LogConfig,
    RouterConfig,
)
from router.config.errors import Problems
from router.config.validate import Entity
from router.log import Clock, ModuleSettings, parse_enable

MAX_ROUTER_ID = 127  # characters; Dispatch's limit, which other routers rely on
GENERATED_ID = 15  # random characters of a generated router id
CLIENT_ROLES = ("normal", "route-container")  # listeners that work without a network of routers
PORTS = {"amqp": 5672, "amqps": 5671}  # IANA; known even where /etc/services is missing
MAX_PORT = 65535
MAX_WORKERS = 64  # workers that the shared memory has room for
PHASES = range(10)
PRIORITIES = range(10)
MECHANISMS = ("ANONYMOUS",)  # SASL mechanisms built in this version
RESERVED_PROPERTIES = frozenset({"product", "version", "failover-server-list", "network-host", "port"})
RESERVED_PREFIXES = ("qd.", "x-opt-qd.")

# [SCHEME://]HOST[:PORT]; an IPv6 address stands in brackets.
_FAILOVER = re.compile(r"(?:([^:/]+)://)?(\[[^\]]*\]|[^:/]*)(?::([0-9]+))?")
_ID_CHARACTERS = string.ascii_letters + string.digits + "+_"


def build_router(entity: Entity, problems: Problems) -> RouterConfig:
    """Return the router of a file."""
    line = entity.line_of("id")
    mode = entity.text("mode")
    identifier = entity.optional_text("id") or _generated_id(mode)
    if len(identifier) > MAX_ROUTER_ID:
        text = f'Router ID "{identifier}" exceeds the maximum allowed length ({MAX_ROUTER_ID} characters)'
        problems.error(line, text)
    bad = next((each for each in identifier if unicodedata.category(each)[0] in "CZ"), None)
    if bad is not None:
        text = f"Router id attribute containing character {bad!a} in id {identifier!a} is disallowed."
        problems.error(line, text)
    _check_timestamp_format(entity, problems)
    identity = f"router/{identifier}"
    workers = entity.optional_number("workers") or min(len(os.sched_getaffinity(0)), MAX_WORKERS)
    return RouterConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line or None,
        values={**entity.values, "id": identifier, "workers": workers},
        id=identifier,
        mode=mode,
        workers=workers,
        hello_interval_seconds=entity.number("helloIntervalSeconds"),
        hello_max_age_seconds=entity.number("helloMaxAgeSeconds"),
        ra_interval_seconds=entity.number("raIntervalSeconds"),
        ra_interval_flux_seconds=entity.number("raIntervalFluxSeconds"),
        remote_ls_max_age_seconds=entity.number("remoteLsMaxAgeSeconds"),
        allow_unsettled_multicast=entity.flag("allowUnsettledMulticast"),
        default_distribution=entity.text("defaultDistribution"),
        metadata=entity.optional_text("metadata"),
        timestamp_format=entity.optional_text("timestampFormat"),
        timestamps_in_utc=entity.flag("timestampsInUTC"),
    )


def _generated_id(mode: str) -> str:
    return f"{mode.capitalize()}_" + "".join(secrets.choice(_ID_CHARACTERS) for _ in range(GENERATED_ID))


def _check_timestamp_format(entity: Entity, problems: Problems) -> None:
    pattern = entity.optional_text("timestampFormat")
    try:
        Clock(pattern, utc=True).stamp(0)
    except ValueError as error:
        problems.error(entity.line_of("timestampFormat"), f"Invalid timestampFormat {pattern!r}: {error}")


def build_listener(entity: Entity, problems: Problems) -> ListenerConfig:
    """Return one listener. Its role is judged by `check_role`."""
    host, port_text = entity.text("host").strip(), entity.text("port").strip()
    name = entity.optional_text("name")
    identity = f"listener/{host}:{port_text}" + (f":{name}" if name else "")
    _check_open_properties(entity, problems)
    strip = entity.text("stripAnnotations")
    max_sessions = entity.number("maxSessions")
    return ListenerConfig(
        name=name or identity,
        identity=identity,
        named=bool(name),
        line=entity.line,
        values=entity.values,
        host=host,
        port=_port(port_text, entity, problems),
        port_text=port_text,
        family=entity.optional_text("socketAddressFamily"),
        role=entity.text("role"),
        cost=entity.number("cost"),
        sasl_mechanisms=_mechanisms(entity, problems),
        max_frame_size=max(entity.number("maxFrameSize"), MIN_FRAME_SIZE),
        max_sessions=max_sessions if 0 < max_sessions <= MAX_SESSIONS else MAX_SESSIONS,
        max_session_frames=entity.optional_number("maxSessionFrames") or None,
        idle_timeout_seconds=entity.number("idleTimeoutSeconds"),
        initial_handshake_timeout_seconds=entity.number("initialHandshakeTimeoutSeconds"),
        strip_annotations_in=strip in ("in", "both"),
        strip_annotations_out=strip in ("out", "both"),
        link_capacity=entity.optional_number("linkCapacity") or DEFAULT_LINK_CAPACITY,
        multi_tenant=entity.flag("multiTenant"),
        failover_servers=_failover_servers(entity, problems),
        open_properties=entity.map("openProperties"),
    )


def check_role(listener: Entity, standalone: bool, problems: Problems) -> None:
    """Refuse a listener for other routers: a standalone router has none, and no other mode is built yet."""
    role = listener.text("role")
    if role in CLIENT_ROLES:
        return
    if standalone:
        text = "role='standalone' not allowed to connect to or accept connections from other routers."
    else:
        text = f"{listener.type.long_name}: value '{role}' of attribute 'role' is not supported yet"
    problems.error(listener.line_of("role"), text)


def _port(text: str, entity: Entity, problems: Problems) -> int:
    """Return the number of a port given as number or service name; 0 after an error."""
    if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PORT)) and int(text) <= MAX_PORT:
        return int(text)
    if text in PORTS:
        return PORTS[text]
    try:
        return socket.getservbyname(text, "tcp")
    except (OSError, ValueError):  # ValueError: a NUL in the name
        line = entity.line_of("port")
        problems.error(line, f"{entity.type.long_name}: port '{text}' is neither 0 to {MAX_PORT} nor a known service")
        return 0


def _mechanisms(entity: Entity, problems: Problems) -> tuple[str, ...]:
    """Return the SASL mechanisms to offer: those asked for, as far as this version has them."""
    text = entity.optional_text("saslMechanisms")
    if text is None:
        return MECHANISMS
    line = entity.line_of("saslMechanisms")
    asked = text.replace(",", " ").split()
    offered = tuple(each for each in MECHANISMS if each in asked)
    if not offered:
        text = f"value '{text}' of attribute 'saslMechanisms' is not supported yet (it must include ANONYMOUS)"
        problems.error(line, f"{entity.type.long_name}: {text}")
    elif missing := [each for each in asked if each not in MECHANISMS]:
        problems.warn("AUTHSERVICE", line, f"SASL mechanisms not supported yet, not offered: {' '.join(missing)}")
    return offered


def _failover_servers(entity: Entity, problems: Problems) -> tuple[FailoverServer, ...]:
    """Return the servers of `failoverUrls`: items `[SCHEME://]HOST[:PORT]` separated by commas."""
    text = entity.optional_text("failoverUrls")
    if text is None:
        return ()
    servers = []
    for item in text.split(","):
        match = _FAILOVER.fullmatch(item.strip())
        host = match.group(2).strip("[]") if match else ""
        if match is None or not host:
            text = f"No network host in failover item '{item.strip()}'"
            problems.error(entity.line_of("failoverUrls"), f"{entity.type.long_name}: {text}")
            continue
        servers.append(FailoverServer(match.group(1), host, match.group(3) or str(PORTS["amqp"])))
    return tuple(servers)


def _check_open_properties(entity: Entity, problems: Problems) -> None:
    for key in entity.map("openProperties"):
        if key in RESERVED_PROPERTIES or key.startswith(RESERVED_PREFIXES):
            line = entity.line_of("openProperties")
            problems.error(line, f"Reserved key '{key}' not allowed in openProperties")


def build_log(entity: Entity, problems: Problems) -> LogConfig:
    """Return the settings of one log module."""
    identity = f"log/{entity.text('module')}"
    mask = None
    enable = entity.optional_text("enable")
    if enable is not None:
        try:
            mask = parse_enable(enable)
        except ValueError as error:
            problems.error(entity.line_of("enable"), str(error))
    settings = ModuleSettings(
        mask=mask,
        timestamp=entity.flag("includeTimestamp") if "includeTimestamp" in entity.values else None,
        source=entity.flag("includeSource") if "includeSource" in entity.values else None,
        output=entity.optional_text("outputFile"),
    )
    return LogConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line,
        values=entity.values,
        module=entity.text("module"),
        settings=settings,
    )


def build_address(entity: Entity, number: int, problems: Problems) -> AddressConfig | None:
    """Return one address, the `number`th of the file (from 0); None, with a warning, where a rule is broken."""
    prefix, pattern = entity.optional_text("prefix"), entity.optional_text("pattern")
    if prefix is not None and pattern is not None:
        text = f"Cannot set both 'prefix' and 'pattern': ignoring configured address {prefix}, {pattern}"
        problems.warn("ROUTER", entity.line, text)
        return None
    if prefix is None and pattern is None:
        text = "Must set either 'prefix' or 'pattern' attribute: ignoring configured address"
        problems.warn("ROUTER", entity.line, text)
        return None
    waypoint, fallback = entity.flag("waypoint"), entity.flag("enableFallback")
    ingress, egress = entity.optional_number("ingressPhase"), entity.optional_number("egressPhase")
    priority = entity.optional_number("priority")
    refusal = _address_refusal(entity, ingress, egress, priority)
    if refusal is not None:
        problems.warn("ROUTER_CORE", entity.line, f"Error configuring address: {refusal}")
        return None
    if priority is not None and priority < 0:
        problems.warn("ROUTER_CORE", entity.line_of("priority"), f"Priority {priority} counts as absent")
        priority = None
    identity = f"address/{number}"
    return AddressConfig(
        name=entity.optional_text("name") or identity,
        identity=identity,
        named="name" in entity.values,
        line=entity.line,
        values=entity.values,
        prefix=prefix,
        pattern=pattern,
        distribution=entity.text("distribution"),
        waypoint=waypoint,
        ingress_phase=ingress or 0,
        egress_phase=egress if egress is not None else int(waypoint),
        priority=priority,
        fallback=fallback,
        presettled_overflow=entity.text("presettledOverflow"),
    )


def _address_refusal(entity: Entity, ingress: int | None, egress: int | None, priority: int | None) -> str | None:
    """Return why an address cannot be configured, in the words of management CREATE, or None."""
    phased = entity.flag("waypoint") or (ingress or 0) > 0 or (egress or 0) > 0
    if entity.flag("enableFallback") and phased:
        return "Fallback cannot be specified with waypoint or non-zero ingress and egress phases"
    kind = "Prefix" if "prefix" in entity.values else "Pattern"
    text = entity.text(kind.lower())
    if not text:
        return f"{kind} must be a non-empty string type"
    if not text.strip("./"):
        return f"{kind} invalid - no tokens"
    alone = (ingress is None) != (egress is None)
    if alone or any(phase is not None and phase not in PHASES for phase in (ingress, egress)):
        return "Phase values must be between 0 and 9"
    if priority is not None and priority > PRIORITIES[-1]:
        return "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY"
    return None


def build_exchanges(entities: list[Entity], problems: Problems) -> list[ExchangeConfig]:
    """Return the exchanges of a file, those that break a rule left out with a warning."""
    built: list[ExchangeConfig] = []
    for number, entity in enumerate(entities):
        address, identity = entity.text("address"), f"exchange/{number}"
        phases = (entity.optional_number("phase") or 0, entity.optional_number("alternatePhase") or 0)
        refusal = None
        if not address:
            refusal = "exchange address is mandatory"
        elif any(address == other.address for other in built):
            refusal = "duplicate exchange address"
        elif any(phase not in PHASES for phase in phases):
            refusal = "phase must be in the range 0-9"
        if refusal is not None:
            problems.warn("ROUTER_CORE", entity.line, f"Error configuring exchange: {refusal}")
            continue
        built.append(
            ExchangeConfig(
                name=entity.optional_text("name") or identity,
                identity=identity,
                named="name" in entity.values,
                line=entity.line,
                values=entity.values,
                address=address,
                phase=phases[0],
                alternate_address=entity.optional_text("alternateAddress") or None,
                alternate_phase=phases[1],
                match_method=entity.text("matchMethod"),
            )
        )
    return built


def build_bindings(entities: list[Entity], exchanges: list[ExchangeConfig], problems: Problems) -> list[BindingConfig]:
    """Return the bindings of a file, those that break a rule left out with a warning."""
    by_name = {exchange.name: exchange for exchange in exchanges}
    built: list[BindingConfig] = []
    for number, entity in enumerate(entities):
        identity = f"binding/{number}"
        binding = BindingConfig(
            name=entity.optional_text("name") or identity,
            identity=identity,
            named="name" in entity.values,
            line=entity.line,
            values=entity.values,
            exchange_name=entity.text("exchangeName"),
            binding_key=entity.text("bindingKey") if "bindingKey" in entity.values else "#",
            next_hop_address=entity.text("nextHopAddress"),
            next_hop_phase=entity.optional_number("nextHopPhase") or 0,
        )
        refusal = _binding_refusal(binding, by_name.get(binding.exchange_name), built)
        if refusal is None:
            built.append(binding)
        else:
            problems.warn("ROUTER_CORE", entity.line, f"Error configuring binding: {refusal}")
    return built


def _binding_refusal(
    binding: BindingConfig, exchange: ExchangeConfig | None, others: list[BindingConfig]
) -> str | None:
    """Return why a binding cannot be configured, in the words of management CREATE, or None."""
    if not binding.exchange_name:
        return "Binding configuration requires an exchange"
    if exchange is None:
        return "Named exchange does not exist"
    if not binding.next_hop_address:
        return "No next hop specified"
    if exchange.match_method == "mqtt" and "#" in binding.binding_key.split("/")[:-1]:
        return "The binding key pattern is invalid"
    if binding.next_hop_phase not in PHASES:
        return "phase must be in the range 0-9"
    if any(_way(binding) == _way(other) for other in others):
        return "Next hop for key already exists"
    return None


def _way(binding: BindingConfig) -> tuple[str, str, str, int]:
    """Return what must differ between any two bindings."""
    return binding.exchange_name, binding.binding_key, binding.next_hop_address, binding.next_hop_phase
