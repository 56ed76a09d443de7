"""Loading of configuration files: `load(path)` returns a Configuration or raises a ConfigError with all errors.

Specification: management.md 2, 2.10.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sluice.router.config.build import (
    INVALID,
    build_connector,
    build_console,
    build_dummy,
    build_listener,
    build_log,
    build_policy,
    build_router,
    build_ssl_profile,
    check_role,
)
from sluice.router.config.build_audit import build_audit, check_audit
from sluice.router.config.build_auth import (
    build_auth_service,
    build_sasl_users,
    build_token_issuer,
    check_providers,
    check_users_file,
)
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
    AuditConfig,
    BindingConfig,
    Configuration,
    ExchangeConfig,
    LogConfig,
    TapConfig,
)
from sluice.router.config.entity import EntityConfig
from sluice.router.config.errors import ConfigError, ConfigFileError, Problems
from sluice.router.config.grammar import Section, parse
from sluice.router.config.policy_entities import PolicyConfig, VhostConfig
from sluice.router.config.schema import SCHEMA
from sluice.router.config.validate import Entity, validate
from sluice.router.config.variables import expand, wants_variables
from sluice.router.config.vhosts import POLICY_ERROR, VhostNames, build_vhost
from sluice.router.policy.hosts import Resolve, resolve_host

VHOST = VhostConfig.type


def load(path: str, *, files: bool = True) -> Configuration:
    """Load the configuration file at `path` (JSON syntax if it ends in `.json`).

    Host names in vhosts are resolved by name servers. Without `files`, neither host names nor files and secrets that
    the configuration names are looked up. Raises ConfigFileError if the file cannot be read, ConfigError if it is
    invalid. management.md 2.1.
    """
    return load_text(path, read(path), resolve_host if files else None, files=files)


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


def load_text(path: str, text: str, resolve: Resolve | None = None, *, files: bool = True) -> Configuration:
    """Return the configuration in `text` and in its policyDir. Raises ConfigError.

    `path` selects the syntax and appears in errors. `resolve` looks up host names in vhosts; None: they are resolved
    later. Without `files`, the files and secrets that it names need not exist.
    """
    problems = Problems(path, files=files)
    entities: dict[str, list[Entity]] = {}
    sections = parse(text, problems)
    problems.variables = wants_variables(sections)
    for section in expand(sections, problems) if problems.variables else sections:
        entity = validate(section, problems)
        if entity is not None:
            _add(entity, entities, problems)
    for name in ("router", "policy"):
        entities.setdefault(name, [_empty(name)])
    (router_entity,), (policy_entity,) = entities["router"], entities["policy"]

    router = build_router(router_entity, problems)
    policy = build_policy(policy_entity)
    # The roles of listeners cannot be checked if the mode is invalid.
    mode = None if "mode" in router_entity.refused else router.mode
    for entity in (*entities.get("connector", []), *entities.get("listener", [])):
        # For a section before the router section, Dispatch checks the role only when it creates the listener.
        known = 0 < router_entity.line < entity.line
        check_role(entity, mode, problems, None if known else INVALID)
    built: list[EntityConfig] = [
        *_logs(entities.get("log", []), problems),
        router,
        policy,
        *(build_ssl_profile(entity, problems) for entity in entities.get("sslProfile", [])),
        *_core_entities(entities, problems),
        *_vhosts(entities.get(VHOST, []), policy, problems, resolve),
        *(build_console(entity, number, problems) for number, entity in enumerate(entities.get("console", []))),
        *(build_dummy(entity, number) for number, entity in enumerate(entities.get("dummy", []))),
        *(build_sasl_users(entity) for entity in entities.get("saslUsers", [])),
        *(build_token_issuer(entity, problems) for entity in entities.get("tokenIssuer", [])),
        *(build_auth_service(entity, problems) for entity in entities.get("authServicePlugin", [])),
        *(build_telemetry(entity, problems) for entity in entities.get("telemetry", [])),
        *(build_open_telemetry(entity, problems) for entity in entities.get("openTelemetry", [])),
        *(build_connector(entity, problems) for entity in entities.get("connector", [])),
    ]
    for entity in entities.get("saslUsers", []):
        if files:
            check_users_file(entity, problems)
    for entity in entities.get("tracing", []):
        tracing = build_tracing(entity, problems)
        check_tracing(tracing, built, entity, problems)
        built.append(tracing)
    for entity in entities.get("listener", []):
        listener = build_listener(entity, problems)
        check_providers(listener, built, entity, problems)
        built.append(listener)
    for entity in entities.get("placement", []):
        placement = build_placement(entity, problems)
        check_placement(placement, built, router.workers, entity, problems)
        built.append(placement)
    audits: list[AuditConfig] = []
    for entity in entities.get("audit", []):
        audit = build_audit(entity, problems)
        check_audit(audit, audits, entity, problems)
        audits.append(audit)
    built += audits
    unsound = {entity.line for same in entities.values() for entity in same if entity.refused}
    for duplicate, reason in duplicates(each for each in built if each.file is not None or each.line not in unsound):
        problems.error(duplicate.line, reason, file=duplicate.file)
    problems.raise_errors()
    return Configuration.of(path, built, problems.warnings)


def _empty(name: str) -> Entity:
    """Return the entity for an absent section. The schema must allow it without attributes."""
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
    """Yield the entities of the routing core. An entity that breaks a rule is ignored with a warning."""
    exchanges: list[ExchangeConfig] = []
    bindings: list[BindingConfig] = []
    tokens: set[tuple[str, ...]] = set()
    for number, entity in enumerate(entities.get("router.config.address", [])):
        try:
            address = build_address(entity, number, tokens)
        except EntityRefused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
        else:
            tokens.add(address.tokens)
            yield address
            if (priority := entity.optional_number("priority")) is not None and priority < 0:
                text = f"Priority {priority} is ignored, because it is negative"
                problems.warn("ROUTER_CORE", entity.line_of("priority"), text)
    for number, entity in enumerate(entities.get("router.config.linkRoute", [])):
        try:
            yield build_link_route(entity, number)
        except EntityRefused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    for number, entity in enumerate(entities.get("router.config.autoLink", [])):
        try:
            yield build_auto_link(entity, number)
        except EntityRefused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    for number, entity in enumerate(entities.get("router.config.exchange", [])):
        try:
            exchanges.append(build_exchange(entity, number, exchanges))
        except EntityRefused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    for number, entity in enumerate(entities.get("router.config.binding", [])):
        try:
            bindings.append(build_binding(entity, number, exchanges, bindings))
        except EntityRefused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    taps: list[TapConfig] = []
    for number, entity in enumerate(entities.get("router.config.tap", [])):
        try:
            taps.append(build_tap(entity, number, taps))
        except EntityRefused as refused:
            problems.warn(refused.module, entity.line, refused.warning)
    yield from exchanges
    yield from bindings
    yield from taps


def _vhosts(
    entities: list[Entity], policy: PolicyConfig, problems: Problems, resolve: Resolve | None
) -> Iterator[VhostConfig]:
    """Yield the vhosts of a file, then those of policyDir (security.md P-6)."""
    names = VhostNames(patterns=policy.vhost_patterns)
    found = [build_vhost(entity, problems, resolve) for entity in entities]
    for file in _policy_files(policy, problems):
        inner = Problems(file, files=problems.files)
        inner.variables = problems.variables
        found += [build_vhost(entity, inner, resolve, file) for entity in _read_vhosts(file, inner)]
        problems.include(inner)
    for vhost in found:
        if (fault := names.add(vhost)) is not None:
            problems.error(vhost.line, fault, POLICY_ERROR, vhost.file)
        yield vhost


def _policy_files(policy: PolicyConfig, problems: Problems) -> Iterator[str]:
    """Yield the files of policyDir in the order of their names, so results do not depend on the file system."""
    if not policy.directory:
        return
    try:
        names = sorted(os.listdir(policy.directory))
    except (OSError, ValueError) as error:
        if not problems.files:
            return
        reason = getattr(error, "strerror", None) or str(error)
        problems.error(policy.line, f"policyDir '{policy.directory}' cannot be read: {reason}")
        return
    yield from (os.path.join(policy.directory, name) for name in names if name.endswith(".json"))


def _read_vhosts(file: str, problems: Problems) -> Iterator[Entity]:
    """Yield the vhosts of one file of policyDir. Other sections in it are checked and ignored."""
    try:
        text = read(file)
    except ConfigError as error:
        problems.errors.append(error)
        return
    sections = parse(text, problems)
    for section in expand(sections, problems) if problems.variables else sections:
        entity = validate(section, problems)
        if entity is not None and entity.type.name == VHOST:
            yield entity


def _add(entity: Entity, entities: dict[str, list[Entity]], problems: Problems) -> None:
    """Add `entity` to those of its type; record an error for the second entity of a singleton type."""
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
    """Yield each entity with the name or identity of another one, and the error text.

    Names and identities are unique over all types. The error is reported for the later entity in the file, and for a
    configured entity rather than a generated one. brokers-and-edge.md C-4.
    """
    taken: dict[tuple[str, str], EntityConfig] = {}
    for entity in sorted(entities, key=lambda each: (each.file or "", each.line or 0)):
        for attribute, value in (("name", entity.name), ("identity", entity.identity)):
            other = taken.setdefault((attribute, value), entity)
            if other is not entity or value == SELF:
                existing = MANAGEMENT if value == SELF else shown(other)
                fault = f"duplicates unique attribute '{attribute}' from existing {existing}"
                yield entity, f"adding {shown(entity)} {fault}"
                break


def shown(entity: EntityConfig) -> str:
    """Return an entity as shown in error texts."""
    if not entity.line:
        return f"{{{entity.identity}}}"
    where = f"line {entity.line}" if entity.file is None else f"{entity.file}:{entity.line}"
    return f"{{{entity.identity}, {where}}}"
