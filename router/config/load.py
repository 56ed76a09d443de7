"""Reads a configuration file: `load(path)` returns a Configuration or raises a ConfigError that tells every error."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from router.config.build import (
    build_address,
    build_bindings,
    build_exchanges,
    build_listener,
    build_log,
    build_router,
    check_role,
)
from router.config.entities import Configuration, EntityConfig, LogConfig
from router.config.errors import ConfigError, ConfigFileError, Problems
from router.config.grammar import Section, parse
from router.config.validate import Entity, validate
from router.log import MODULES


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
    sections = parse(text, problems)
    for section in sections:
        entity = validate(section, problems)
        if entity is not None:
            _add(entity, entities, problems)
    default_router = validate(Section("router", 0, {}), problems)
    if default_router is None:
        raise TypeError("schema.json: a router section must need no attribute")
    router_entity = entities.get("router", [default_router])[0]

    router = build_router(router_entity, problems)
    logs = [build_log(entity, problems) for entity in entities.get("log", [])]
    router_refused = "router" not in entities and any(section.name == "router" for section in sections)
    for entity in entities.get("listener", []):
        check_role(entity, router.mode == "standalone" and not router_refused, problems)
    listeners = [build_listener(entity, problems) for entity in entities.get("listener", [])]
    numbered = enumerate(entities.get("address", []))
    addresses = [build_address(entity, number, problems) for number, entity in numbered]
    exchanges = build_exchanges(entities.get("exchange", []), problems)
    bindings = build_bindings(entities.get("binding", []), exchanges, problems)

    kept = [address for address in addresses if address is not None]
    _check_unique(chain([router], logs, listeners, kept, exchanges, bindings), problems)
    problems.raise_errors()
    return Configuration(
        path=path,
        router=router,
        listeners=tuple(listeners),
        addresses=tuple(kept),
        logs=tuple(logs),
        exchanges=tuple(exchanges),
        bindings=tuple(bindings),
        warnings=problems.warnings,
    )


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


def _check_unique(entities: Iterable[EntityConfig], problems: Problems) -> None:
    """Names, and identities, are unique over all entities, whatever their type."""
    ordered = sorted(entities, key=lambda each: each.line or 0)
    identities: dict[str, str] = {}
    # Every log module is an entity, also one without section.
    names = {f"log/{module}": f"{{log/{module}}}" for module in MODULES}
    for entity in ordered:
        if isinstance(entity, LogConfig):
            names.pop(entity.identity, None)
    for entity in ordered:
        shown = f"{{{entity.identity}, line {entity.line}}}"
        for attribute, value, taken in (("name", entity.name, names), ("identity", entity.identity, identities)):
            other = taken.setdefault(value, shown)
            if other is not shown:
                text = f"adding {shown} duplicates unique attribute '{attribute}' from existing {other}"
                problems.error(entity.line, text)
                break
