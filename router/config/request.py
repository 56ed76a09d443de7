"""Conversion of management requests that create or change entities: from AMQP values to configuration objects.

As in Dispatch, there are two sets of rules (management.md 5.7 to 5.9). Types of the routing core use the attributes
that they know and report missing ones. All other types convert and check every attribute by the schema. The functions
here do not change the router.
"""

import uuid
from collections.abc import Collection, Mapping

from sluice.router.amqp.codec import Char, Described, Timestamp
from sluice.router.config.build import (
    build_connector,
    build_dummy,
    build_listener,
    build_log,
    build_ssl_profile,
    check_role,
)
from sluice.router.config.build_auth import build_auth_service, build_sasl_users, build_token_issuer, check_providers
from sluice.router.config.build_core import (
    EntityRefused,
    build_address,
    build_auto_link,
    build_binding,
    build_exchange,
    build_link_route,
    build_tap,
)
from sluice.router.config.build_open_telemetry import build_open_telemetry
from sluice.router.config.build_telemetry import build_placement, build_telemetry, check_placement
from sluice.router.config.build_tracing import build_tracing, check_tracing
from sluice.router.config.entities import (
    MANAGEMENT,
    SELF,
    AddressConfig,
    AuthServiceConfig,
    AutoLinkConfig,
    BindingConfig,
    Configuration,
    DummyConfig,
    ExchangeConfig,
    LinkRouteConfig,
    LogConfig,
    OpenTelemetryConfig,
    PlacementConfig,
    SaslUsersConfig,
    SslProfileConfig,
    TapConfig,
    TelemetryConfig,
    TokenIssuerConfig,
    TracingConfig,
)
from sluice.router.config.entity import EntityConfig
from sluice.router.config.errors import Problems, RequestError
from sluice.router.config.inventory import Inventory, number_in
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.password import NOT_IN_ENVIRONMENT
from sluice.router.config.policy_entities import VhostConfig
from sluice.router.config.schema import SCHEMA, Attribute, EntityType
from sluice.router.config.validate import Entity, fill
from sluice.router.config.values import InvalidValue
from sluice.router.config.vhosts import POLICY_ERROR, VhostNames, build_vhost

CORE = frozenset(
    {
        *(AddressConfig.type, LinkRouteConfig.type, AutoLinkConfig.type),
        *(ExchangeConfig.type, BindingConfig.type, TapConfig.type),
    }
)

_LOST = (float, Char, uuid.UUID, Described)  # value types that Dispatch ignores


def create(
    entity_type: EntityType, name: str | None, body: object, inventory: Inventory, number: int | None = None
) -> tuple[EntityConfig, list[tuple[str, str]]]:
    """Return the entity of a CREATE request, and warnings as (log module, text). Raises RequestError.

    `inventory` has the existing entities. `number` is for the generated identity; None: the next one after those in
    use.
    """
    if not entity_type.supported:
        raise RequestError(501, f"entity '{entity_type.dump_key}' is not supported yet")
    if "CREATE" not in entity_type.operations:
        operations = list(entity_type.operations)
        raise RequestError(501, f"Operation 'CREATE' not implemented for '{entity_type.long_name}' {operations}")
    if not isinstance(body, Mapping):
        raise RequestError(400, "Body of request must be a map")
    problems = Problems("")
    if number is None:
        number = inventory.next_number(entity_type.name)
    if entity_type.name in CORE:
        return _create_core(entity_type, name, body, inventory, number), problems.warnings
    given = _renamed(entity_type, {str(key): value for key, value in body.items() if key != "type"}, problems)
    if name is not None:
        given["name"] = name
    for key in given:
        _known(entity_type, key, "create", f"Cannot set attribute '{key}' in CREATE")
    entity = _validated(entity_type, given, given.keys(), problems)
    config = _built(entity, inventory.configuration, number, problems, None)
    if clash := conflict(config, inventory):
        raise RequestError(400, clash)
    return config, problems.warnings


def update(
    config: EntityConfig, body: object, configuration: Configuration
) -> tuple[EntityConfig, list[tuple[str, str]]]:
    """Return `config` changed by an UPDATE request, and warnings as (log module, text). Raises RequestError."""
    entity_type = config.entity_type
    if not isinstance(body, Mapping):
        raise RequestError(400, "Body of request must be a map")
    problems = Problems("")
    merged: dict[str, object] = {**config.values}
    changed: set[str] = set()
    for key, value in _renamed(entity_type, {str(key): value for key, value in body.items()}, problems).items():
        attribute = _known(entity_type, key)
        if attribute.update:
            merged[key] = value
            changed.add(key)
        elif not _same(key, value, config):
            raise RequestError(400, f"Cannot update attribute '{key}' in UPDATE")
    entity = _validated(entity_type, merged, changed, problems)
    return _built(entity, configuration, number_in(config.identity) or 0, problems, config), problems.warnings


def conflict(config: EntityConfig, inventory: Inventory) -> str | None:
    """Return the conflict of `config` with entities of `inventory` as text, or None."""
    if config.entity_type.singleton:
        for other in inventory.of_type(config.type):
            return f"Adding {config.entity_type.long_name} singleton {shown(config)} when {shown(other)} already exists"
    for attribute, value, taken in (
        ("name", config.name, inventory.named(config.name)),
        ("identity", config.identity, inventory.identified(config.identity)),
    ):
        if value == SELF:
            return f"adding {shown(config)} duplicates unique attribute '{attribute}' from existing {MANAGEMENT}"
        for other in taken:
            return f"adding {shown(config)} duplicates unique attribute '{attribute}' from existing {shown(other)}"
    return None


def shown(config: EntityConfig) -> str:
    """Return an entity as shown in texts of the management protocol, with hidden values masked."""
    attributes = config.entity_type.attributes
    values = {name: "*******" if attributes[name].hidden else value for name, value in config.attributes.items()}
    kind = config.entity_type.dump_key
    return f"{kind[0].upper()}{kind[1:]}Entity({', '.join(f'{name}={value}' for name, value in values.items())})"


def plain(value: object) -> JsonValue:
    """Convert an AMQP value to a configuration value; return None for types that Dispatch ignores.

    Raises InvalidValue.
    """
    return None if isinstance(value, _LOST) else _inner(value)


def _inner(value: object) -> JsonValue:
    """Convert a value at any depth. Inside maps and lists, floating-point numbers are kept."""
    match value:
        case None | bool() | float():
            return value
        case Timestamp() | int():
            return int(value)
        case str():
            return str(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise InvalidValue("Binary value is not text in UTF-8") from error
        case list():
            return [_inner(each) for each in value]
        case Mapping():
            return {_key(key): _inner(each) for key, each in value.items()}
        case _:
            raise InvalidValue(f"Value of a type that cannot be configured: {type(value).__name__}")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidValue("Property keys must be ASCII encoded")
    return str(key)


def _renamed(entity_type: EntityType, body: Mapping[str, object], problems: Problems) -> dict[str, object]:
    """Return the attributes of a request under their present names. Raises RequestError."""
    old_names = {each.old_name: each for each in entity_type.attributes.values() if each.old_name}
    aliases = {each.alias: each for each in entity_type.attributes.values() if each.alias}
    renamed: dict[str, object] = {}
    for name, value in body.items():
        attribute = old_names.get(name) or aliases.get(name)
        if attribute is not None and attribute.name in body:
            text = f"Both '{name}' and '{attribute.name}' cannot be specified for entity '{entity_type.dump_key}'"
            raise RequestError(400, f"{entity_type.long_name}: {text}")
        if attribute is not None and name == attribute.old_name:
            text = f"Attribute '{name}' of entity '{entity_type.dump_key}' has been deprecated."
            problems.warn("AGENT", 0, f"{text} Use '{attribute.name}' instead")
        renamed[name if attribute is None else attribute.name] = value
    return renamed


def _same(name: str, value: object, config: EntityConfig) -> bool:
    """Return whether `value` equals the entity's attribute `name`, in value and type."""
    if name == "type" and isinstance(value, str):
        return SCHEMA.find(value) is config.entity_type
    present = config.attributes.get(name)
    return value == present and (type(value) is type(present) or (isinstance(value, str) and isinstance(present, str)))


def _known(entity_type: EntityType, name: str, flag: str | None = None, refusal: str = "") -> Attribute:
    """Return the attribute `name`, which must exist and have `flag`. Raises RequestError."""
    attribute = entity_type.attributes.get(name)
    if attribute is None:
        raise RequestError(400, f"Unknown attribute '{name}' for '{entity_type.long_name}'")
    if flag is not None and not getattr(attribute, flag):
        raise RequestError(400, refusal)
    return attribute


def _validated(
    entity_type: EntityType, given: Mapping[str, object], asked: Collection[str], problems: Problems
) -> Entity:
    """Return an entity with these attributes and defaults. `asked` has the names of those in the request.

    Raises RequestError.
    """
    values: dict[str, JsonValue] = {}
    for name, raw in given.items():
        attribute = entity_type.attributes[name]
        try:
            value = attribute.convert(plain(raw))
        except InvalidValue as error:
            raise RequestError(400, f"{entity_type.long_name}: {error}") from error
        if value is None or (name == "name" and value == ""):  # an empty name counts as absent
            continue
        values[name] = value
        if name not in asked:
            continue
        if (refusal := attribute.unsupported(value)) is not None:
            raise RequestError(501, f"{entity_type.long_name}: {refusal}")
        if not attribute.effect and value != attribute.default:
            text = f"Attribute '{name}' of entity '{entity_type.dump_key}' has no effect in this version"
            problems.warn("AGENT", 0, text)
    for text in fill(entity_type, values, values):
        raise RequestError(400, f"{entity_type.long_name}: {text}")
    if entity_type.references and "name" not in values:
        raise RequestError(400, f"{entity_type.long_name}: Missing required attribute 'name'")
    return Entity(entity_type, 0, values, {})


def _built(
    entity: Entity, configuration: Configuration, number: int, problems: Problems, before: EntityConfig | None
) -> EntityConfig:
    """Build the typed object of an entity outside the core. `before` is the object to replace. Raises RequestError."""
    config: EntityConfig
    match entity.type.name:
        case "listener":
            check_role(entity, configuration.router.mode, problems)
            config = listener = build_listener(entity, problems)
            check_providers(listener, configuration.others, entity, problems)
        case "connector":
            check_role(entity, configuration.router.mode, problems)
            config = build_connector(entity, problems)
        case LogConfig.type:
            config = build_log(entity, problems)
        case SslProfileConfig.type:
            config = build_ssl_profile(entity, problems)
        case DummyConfig.type:
            config = build_dummy(entity, number)
        case SaslUsersConfig.type:
            config = build_sasl_users(entity)
        case TokenIssuerConfig.type:
            config = build_token_issuer(entity, problems)
        case AuthServiceConfig.type:
            config = build_auth_service(entity, problems)
        case TelemetryConfig.type:
            config = build_telemetry(entity, problems)
        case TracingConfig.type:
            config = tracing = build_tracing(entity, problems)
            check_tracing(tracing, configuration.others, entity, problems)
        case OpenTelemetryConfig.type:
            config = build_open_telemetry(entity, problems)
        case PlacementConfig.type:
            config = placement = build_placement(entity, problems)
            workers = configuration.router.workers
            check_placement(placement, configuration.listeners, workers, entity, problems)
        case VhostConfig.type:
            config = build_vhost(entity, problems)
            others = (each for each in configuration.vhosts if each is not before)
            clash = VhostNames(others, patterns=configuration.policy.vhost_patterns).add(config)
            if clash is not None:
                problems.error(None, clash, POLICY_ERROR)
        case name:
            raise RequestError(501, f"entity '{name}' is not supported yet")
    if problems.errors:
        text = problems.errors[0].message
        if problems.errors[0].kind == POLICY_ERROR:  # 1.19 checks rules when it compiles them: management.md 5.7
            raise RequestError(500, f"{POLICY_ERROR}: {text}")
        if config.type == LogConfig.type:  # 1.19 checks levels when it applies them: management.md 5.9
            raise RequestError(500, f"CError: Configuration: {text}")
        # 1.19 reads the password when it makes the profile.
        if text == NOT_IN_ENVIRONMENT and config.type == SslProfileConfig.type:
            raise RequestError(500, text)
        raise RequestError(400, text)
    return config


def _create_core(
    entity_type: EntityType, name: str | None, body: Mapping[object, object], inventory: Inventory, number: int
) -> EntityConfig:
    """Create an entity of the routing core (management.md 5.8). Raises RequestError."""
    if name and entity_type.name in _NAMED and any(each.type == entity_type.name for each in inventory.named(name)):
        raise RequestError(400, "Name conflicts with an existing entity")
    entity = Entity(entity_type, 0, _core_values(entity_type, name, body), {})
    try:
        match entity_type.name:
            case AddressConfig.type:
                return build_address(entity, number, inventory.tokens)
            case LinkRouteConfig.type:
                return build_link_route(entity, number)
            case AutoLinkConfig.type:
                return build_auto_link(entity, number)
            case ExchangeConfig.type:
                return _create_exchange(entity, inventory.configuration, number)
            case TapConfig.type:
                return build_tap(entity, number, inventory.configuration.taps)
            case _:
                return _create_binding(entity, inventory.configuration, number)
    except EntityRefused as refused:
        raise RequestError(400, str(refused)) from refused


def _create_exchange(entity: Entity, configuration: Configuration, number: int) -> ExchangeConfig:
    if "name" not in entity.values:
        raise RequestError(400, "exchange requires a unique name")
    exchange = build_exchange(entity, number, configuration.exchanges)
    if any(other.name == exchange.name for other in configuration.exchanges):
        raise RequestError(400, "duplicate exchange name")
    return exchange


def _create_binding(entity: Entity, configuration: Configuration, number: int) -> BindingConfig:
    binding = build_binding(entity, number, configuration.exchanges, configuration.bindings)
    if binding.named and any(other.name == binding.name for other in configuration.bindings):
        raise RequestError(400, "Duplicate next hop name")
    return binding


def _core_values(entity_type: EntityType, name: str | None, body: Mapping[object, object]) -> dict[str, JsonValue]:
    """Return the values of a core entity: the attributes that the core knows, in the types that it accepts."""
    values: dict[str, JsonValue] = {"name": name} if name else {}
    given = {str(key): value for key, value in body.items()}
    if entity_type.name == AddressConfig.type and "fallback" in given:
        given["enableFallback"] = given["fallback"]
    for attribute in entity_type.own_attributes.values():
        value = given.get(attribute.name)
        if value is None and attribute.old_name:
            value = given.get(attribute.old_name)
        if value is None or not attribute.create:
            value = attribute.default
        else:
            value = _core_value(entity_type, attribute, value)
        if value is not None:
            values[attribute.name] = value
        elif attribute.required:
            values[attribute.name] = ""  # the builder reports the missing value
    return values


def _core_value(entity_type: EntityType, attribute: Attribute, value: object) -> JsonValue:
    """Convert one value. Raises RequestError, with Dispatch's text where it has one."""
    match attribute.type:
        case "boolean":
            return value is True
        case "integer":
            try:
                return attribute.convert(plain(value))
            except InvalidValue as error:
                text = _NUMBERS.get((entity_type.name, attribute.name), f"{attribute.name}: {error}")
                raise RequestError(400, text) from error
        case "enum":
            if isinstance(value, str) and value in attribute.values:
                return str(value)
            if attribute.name == "distribution" and entity_type.name != LinkRouteConfig.type:
                return attribute.default
            if attribute.name == "matchMethod":
                raise RequestError(400, "Exchange matchMethod must be either 'amqp' or 'mqtt'")
            if attribute.name in ("direction", "distribution"):
                raise RequestError(400, f"Invalid value for '{attribute.name}'")
            raise RequestError(400, f"Invalid value for enum{list(attribute.values)}: '{value}'")
        case _:
            return str(value) if isinstance(value, str) else ""


# Types of the core that report a duplicate name as a conflict.
_NAMED = frozenset({AddressConfig.type, LinkRouteConfig.type, AutoLinkConfig.type})
_ADDRESS_PHASE = "Phase values must be between 0 and 9"
_PHASE = "phase must be in the range 0-9"
_NUMBERS = {
    (AddressConfig.type, "ingressPhase"): _ADDRESS_PHASE,
    (AddressConfig.type, "egressPhase"): _ADDRESS_PHASE,
    (AddressConfig.type, "priority"): "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY",
    (AutoLinkConfig.type, "phase"): "autoLink phase must be between 0 and 9",
    (ExchangeConfig.type, "phase"): _PHASE,
    (ExchangeConfig.type, "alternatePhase"): _PHASE,
    (BindingConfig.type, "nextHopPhase"): _PHASE,
}
