"""Reads a configuration file: `load(path)` returns a Configuration or raises a ConfigError that tells every error."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from router.config.build import (
    INVALID,
    build_connector,
    build_console,
    build_dummy,
    build_listener,
    build_log,
    build_policy,
    build_router,
    check_role,
)
from router.config.build_core import (
    Refused,
    build_address,
    build_auto_link,
    build_binding,
    build_exchange,
    build_link_route,
)
from router.config.entities import (
    MANAGEMENT,
    SELF,
    BindingConfig,
    Configuration,
    EntityConfig,
    ExchangeConfig,
    LogConfig,
)
from router.config.errors import ConfigError, ConfigFileError, Problems
from router.config.grammar import Section, parse
from router.config.schema import SCHEMA
from router.config.validate import Entity, validate


def load(path: str) -> Configuration:
    """Return the configuration in the file at `path` (JSON syntax if it ends in `.json`).

    Raises ConfigFileError if it cannot be read, ConfigError if it cannot be used.
    """
    return load_text(path, read(path))


def read(path: str) -> str:
    """Return the text of a configuration file. Raises ConfigError."""
    try:
        octets = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        summary = "Not found: Configuration file could not be opened"
        raise ConfigFileError(path, summary, f"the configuration file cannot be opened: {reason}") from error
    if not octets:
        raise ConfigFileError(path, "Configuration: Configuration file was empty", "the configuration file is empty")
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        line = octets.count(b"\n", 0, error.start) + 1
        raise ConfigError(path, line, f"not UTF-8 text: octet 0x{octets[error.start]:02x}") from error


def load_text(path: str, text: str) -> Configuration:
    """Return the configuration in `text`; `path` names it in errors and chooses the syntax. Raises ConfigError."""
    problems = Problems(path)
    entities: dict[str, list[Entity]] = {}
    for section in parse(text, problems):
        entity = validate(section, problems)
        if entity is not None:
            _add(entity, entities, problems)
    for name in ("router", "policy"):
        entities.setdefault(name, [_empty(name)])
    (router_entity,), (policy_entity,) = entities["router"], entities["policy"]

    router = build_router(router_entity, problems)
    # A mode that was refused says nothing about the roles of listeners.
    mode = None if "mode" in router_entity.refused else router.mode
    for entity in (*entities.get("connector", []), *entities.get("listener", [])):
        # Before the router's section Dispatch does not know the mode, and judges when it makes the listener.
        known = 0 < router_entity.line < entity.line
        check_role(entity, mode, problems, None if known else INVALID)
    built: list[EntityConfig] = [
        *_logs(entities.get("log", []), problems),
        router,
        build_policy(policy_entity),
        *_core_entities(entities, problems),
        *(build_console(entity, number, problems) for number, entity in enumerate(entities.get("console", []))),
        *(build_dummy(entity, number) for number, entity in enumerate(entities.get("dummy", []))),
        *(build_connector(entity, problems) for entity in entities.get("connector", [])),
        *(build_listener(entity, problems) for entity in entities.get("listener", [])),
    ]
    unsound = {entity.line for same in entities.values() for entity in same if entity.refused}
    for duplicate, reason in duplicates(each for each in built if each.line not in unsound):
        problems.error(duplicate.line, reason)
    problems.raise_errors()
    return Configuration.of(path, built, problems.warnings)


def _empty(name: str) -> Entity:
    """Return the entity of an empty section, which the schema must allow."""
    problems = Problems("")
    entity = validate(Section(name, 0, {}), problems)
    if entity is None:
        raise TypeError(f"schema.json: {problems.errors[0].message}")
    return entity


def _logs(entities: list[Entity], problems: Problems) -> Iterator[LogConfig]:
    """Yield the log entities of a file, then one for each other module."""
    given = [build_log(entity, problems) for entity in entities]
    yield from given
    for module in SCHEMA.types["log"].attributes["module"].values:
        if all(log.module != module for log in given):
            yield build_log(Entity(SCHEMA.types["log"], 0, {"module": module}, {}), problems)


def _core_entities(entities: Mapping[str, list[Entity]], problems: Problems) -> Iterator[EntityConfig]:
    """Yield the entities of the routing core; one that breaks a rule of it is left out with a warning."""
    exchanges: list[ExchangeConfig] = []
    bindings: list[BindingConfig] = []
    tokens: set[tuple[str, ...]] = set()
    for number, entity in enumerate(entities.get("router.config.address", [])):
        try:
            address = build_address(entity, number, tokens)
        except Refused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
        else:
            tokens.add(address.tokens)
            yield address
            if (priority := entity.optional_number("priority")) is not None and priority < 0:
                text = f"Priority {priority} counts as absent"
                problems.warn("ROUTER_CORE", entity.line_of("priority"), text)
    for number, entity in enumerate(entities.get("router.config.linkRoute", [])):
        try:
            yield build_link_route(entity, number)
        except Refused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    for number, entity in enumerate(entities.get("router.config.autoLink", [])):
        try:
            yield build_auto_link(entity, number)
        except Refused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    for number, entity in enumerate(entities.get("router.config.exchange", [])):
        try:
            exchanges.append(build_exchange(entity, number, exchanges))
        except Refused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    for number, entity in enumerate(entities.get("router.config.binding", [])):
        try:
            bindings.append(build_binding(entity, number, exchanges, bindings))
        except Refused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    yield from exchanges
    yield from bindings


def _add(entity: Entity, entities: dict[str, list[Entity]], problems: Problems) -> None:
    """File `entity` under its type, unless it is the second of a singleton."""
    same = entities.setdefault(entity.type.name, [])
    if same and entity.type.singleton:
        long_name = entity.type.long_name
        text = f"Adding {long_name} singleton {_shown(entity)} when {_shown(same[0])} already exists"
        problems.error(entity.line, text)
        return
    same.append(entity)


def _shown(entity: Entity) -> str:
    given = ", ".join(f"{name}: {entity.values[name]}" for name in entity.lines if name in entity.values)
    return f"{{line {entity.line}: {given}}}"


def duplicates(entities: Iterable[EntityConfig]) -> Iterator[tuple[EntityConfig, str]]:
    """Yield each entity whose name or identity another one has, and what is wrong.

    Both are unique over all entities, whatever their type. The one that comes later in the file, or was made by a
    user, is the one at fault.
    """
    taken: dict[tuple[str, str], EntityConfig] = {}
    for entity in sorted(entities, key=lambda each: each.line or 0):
        for attribute, value in (("name", entity.name), ("identity", entity.identity)):
            other = taken.setdefault((attribute, value), entity)
            if other is not entity or value == SELF:
                existing = MANAGEMENT if value == SELF else shown(other)
                fault = f"duplicates unique attribute '{attribute}' from existing {existing}"
                yield entity, f"adding {shown(entity)} {fault}"
                break


def shown(entity: EntityConfig) -> str:
    """Return an entity as error texts show it."""
    return f"{{{entity.identity}, line {entity.line}}}" if entity.line else f"{{{entity.identity}}}"
