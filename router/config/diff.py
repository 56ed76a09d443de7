"""Plan of changes between two configurations, by entity and attribute.

Entities of both are matched by type and by identifying attributes: singletons by type alone, logs by module, all others
by their given name, else by the pattern of an address, host and port of a listener, and so on. Generated names and
identities (`address/3`) are ignored, so a new section at the top of a file changes nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from sluice.router.config.build import build_router
from sluice.router.config.entities import (
    AddressConfig,
    AutoLinkConfig,
    BindingConfig,
    Configuration,
    ConnectorConfig,
    DummyConfig,
    ExchangeConfig,
    LinkRouteConfig,
    ListenerConfig,
    LogConfig,
    RouterConfig,
    TapConfig,
)
from sluice.router.config.entity import EntityConfig
from sluice.router.config.errors import Problems
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.policy_entities import VhostConfig
from sluice.router.config.schema import ChangeClass
from sluice.router.config.validate import Entity
from sluice.router.config.values import written
from sluice.router.record import Record

Kind = Literal["create", "update", "delete"]

_ORDER: tuple[ChangeClass, ...] = ("live", "reconnect", "restart")
_EFFECTS = {
    "live": "at once",
    "reconnect": "for connections opened later",
    "restart": "after a restart",
}
_SIGNS = {"create": "+", "update": "~", "delete": "-"}
_SINGLE = frozenset({"router", "policy", "console", "telemetry", "openTelemetry", "tracing"})
_NUMBERED = frozenset(
    {
        *(AddressConfig.type, LinkRouteConfig.type, AutoLinkConfig.type),
        *(ExchangeConfig.type, BindingConfig.type, TapConfig.type, DummyConfig.type),
    }
)
_HIDDEN = "*******"

_Key = tuple[object, ...]


class Change(Record, frozen=True):
    """Change of one entity.

    `type` is the short name of the type. `identity` is that of the present entity, or of the new one if it is created.
    `attributes` maps names to (old value, new value, change class), with None for no value. `effect` is the strongest
    class of its attributes. `old` and `new` are the entities, or None.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"old", "new"})

    kind: Kind
    type: str
    identity: str
    attributes: Mapping[str, tuple[JsonValue, JsonValue, ChangeClass]]
    effect: ChangeClass
    old: EntityConfig | None
    new: EntityConfig | None

    def as_map(self) -> dict[str, Any]:
        """Return the change as plain values, with hidden values masked."""
        attributes = {
            name: {"old": self._shown(name, old), "new": self._shown(name, new), "effect": effect}
            for name, (old, new, effect) in self.attributes.items()
        }
        title = self.title()
        return {
            "kind": self.kind,
            "type": self._entity.entity_type.long_name,
            "identity": self.identity,
            "title": title,
            "effect": self.effect,
            "attributes": attributes,
        }

    def title(self) -> str:
        """Return type and name, or other identifying attributes, of the entity for texts."""
        entity = self._entity
        return f"{entity.entity_type.dump_key} {describe(entity)}".rstrip()

    def render(self, *, effects: bool = True) -> Iterator[str]:
        """Yield the lines that describe the change. `effects`: with the time when each attribute takes effect."""
        yield f"{_SIGNS[self.kind]} {self.title()}"
        for name, (old, new, effect) in self.attributes.items():
            before, after = self._written(name, old), self._written(name, new)
            if self.kind == "update":
                yield f"    {name}: {before} -> {after}{f'  [{effect}]' if effects else ''}"
            else:
                yield f"    {name}: {after if self.kind == 'create' else before}"

    @property
    def _entity(self) -> EntityConfig:
        entity = self.old or self.new
        if entity is None:
            raise ValueError("a change needs an old or a new entity")
        return entity

    def _shown(self, name: str, value: JsonValue) -> JsonValue:
        return _HIDDEN if value is not None and self._entity.entity_type.attributes[name].hidden else value

    def _written(self, name: str, value: JsonValue) -> str:
        return "(none)" if value is None else written(self._shown(name, value)) or "(empty)"


class Plan(Struct, frozen=True):
    """Plan from `old` to `new`. The changes are in an order in which a router can make them.

    Removals come first, in reverse order of creation; new and changed entities follow.
    """

    old: Configuration
    new: Configuration
    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def effect(self) -> ChangeClass | None:
        """Strongest class of the changes; None without changes."""
        return max((change.effect for change in self.changes), key=_ORDER.index, default=None)

    def reached(self) -> Configuration:
        """Return the configuration in force after the changes: `new`, without changes that require a restart."""
        router = self.new.router
        for change in self.changes:
            if isinstance(change.old, RouterConfig):
                waiting = {name for name, (_, _, effect) in change.attributes.items() if effect == "restart"}
                values = {name: value for name, value in router.values.items() if name not in waiting}
                values |= {name: value for name, value in change.old.values.items() if name in waiting}
                generated = (router.generated - waiting) | (change.old.generated & waiting)
                router = replace(rebuilt(router, values), generated=generated)
        return replace(self.new, router=router)

    def applied(self) -> Configuration:
        """Return `old` with the changes applied one by one: the entities of `new` in the order of `old`."""
        gone = {id(change.old): change.new for change in self.changes if change.old is not None}
        kept = (gone.get(id(entity), entity) for entity in self.old.entities())
        made = (change.new for change in self.changes if change.old is None)
        entities = [entity for entity in (*kept, *made) if entity is not None]
        return Configuration.of(self.new.path, entities, self.new.warnings)

    def as_maps(self) -> list[dict[str, Any]]:
        """Return the changes as plain values."""
        return [change.as_map() for change in self.changes]

    def render_differences(self) -> str:
        """Return the plan as text, for two configurations neither of which is about to change."""
        if not self.changes:
            return "No difference."
        return "\n\n".join("\n".join(change.render(effects=False)) for change in self.changes)

    def render(self) -> str:
        """Return the plan as text, without a final line end."""
        if not self.changes:
            return "Nothing changes."
        lines = [_count(len(self.changes), "change") + ":"]
        for change in self.changes:
            lines += ["", *change.render()]
        lines.append("")
        for effect in _ORDER:
            count = sum(change.effect == effect for change in self.changes)
            if count:
                lines.append(
                    f"{_count(count, 'change')} {'takes' if count == 1 else 'take'} effect {_EFFECTS[effect]}."
                )
        return "\n".join(lines)


def diff(old: Configuration, new: Configuration) -> Plan:
    """Return the plan that leads from `old`, the configuration of a running router, to `new`.

    The plan's `new` keeps values that were generated for `old` and that the given `new` does not set: the id of the
    router, and the numbers in identities and names such as `address/3`.
    """
    new, pairs = _with_generated_values(old, new)
    partner = {id(theirs): mine for mine, theirs in pairs}
    kept = {id(mine) for mine, _ in pairs}
    deleted = [_change("delete", entity, None) for entity in old.entities() if id(entity) not in kept]
    made = [_change("create" if id(each) not in partner else "update", partner.get(id(each)), each)
            for each in new.entities()]  # fmt: skip
    changes = (*reversed(deleted), *(change for change in made if change.kind == "create" or change.attributes))
    return Plan(old, new, changes)


_Pairs = list[tuple[EntityConfig, EntityConfig]]


def _with_generated_values(old: Configuration, new: Configuration) -> tuple[Configuration, _Pairs]:
    """Return `new` with the values generated for `old`, and the matching pairs of entities.

    Bindings are matched last, since they name exchanges, whose generated names depend on `old`.
    """
    router = new.router
    made_up = {name: old.router.values[name] for name in router.generated & old.router.generated}
    if any(router.values[name] != value for name, value in made_up.items()):
        router = rebuilt(router, {**router.values, **made_up})
    new = replace(new, router=router)
    numbers = _Numbers(old, new)
    pairs: _Pairs = []
    final: dict[str, list[EntityConfig]] = {}
    for bindings in (False, True):
        mine = [each for each in old.entities() if isinstance(each, BindingConfig) == bindings]
        theirs = [each for each in new.entities() if isinstance(each, BindingConfig) == bindings]
        if bindings:
            called = dict(zip((each.name for each in new.exchanges), final.get(ExchangeConfig.type, ()), strict=True))
            theirs = [_bound(each, called) for each in theirs if isinstance(each, BindingConfig)]
        partner = {id(entity): same for same, entity in _matched(mine, theirs)}
        for entity in theirs:
            same = partner.get(id(entity))
            entity = numbers.settle(entity, same)
            final.setdefault(entity.type, []).append(entity)
            if same is not None:
                pairs.append((same, entity))
    return Configuration.of(new.path, (each for same in final.values() for each in same), new.warnings), pairs


def _bound(binding: BindingConfig, called: Mapping[str, EntityConfig]) -> BindingConfig:
    """Return the binding with the new name of its exchange."""
    name = called[binding.exchange_name].name
    return replace(binding, exchange_name=name, values={**binding.values, "exchangeName": name})


class _Numbers:
    """Numbers in identities such as `address/3`. Matched entities keep theirs; new ones get the next free number."""

    def __init__(self, old: Configuration, new: Configuration) -> None:
        self._used = {each.identity for each in old.entities()} | {each.name for each in old.entities()}
        self._used |= {each.name for each in new.entities() if each.named}
        self._next: dict[str, int] = {}

    def settle(self, entity: EntityConfig, same: EntityConfig | None) -> EntityConfig:
        """Return `entity` with the number of `same`, or with a new number if `same` is None."""
        kind, _, digits = entity.identity.rpartition("/")
        if not digits.isdecimal() or entity.type not in _NUMBERED:
            return entity
        identity = self._fresh(kind) if same is None else same.identity
        return replace(entity, identity=identity, name=entity.name if entity.named else identity)

    def _fresh(self, kind: str) -> str:
        number = self._next.get(kind, 0)
        while f"{kind}/{number}" in self._used:
            number += 1
        self._next[kind] = number + 1
        return f"{kind}/{number}"


def rebuilt(router: RouterConfig, values: Mapping[str, JsonValue]) -> RouterConfig:
    """Return `router` with other values, which must be valid."""
    problems = Problems("")
    made = build_router(Entity(router.entity_type, router.line or 0, values, {}), problems)
    problems.raise_errors()
    return replace(made, generated=router.generated)


def describe(entity: EntityConfig) -> str:
    """Return the identifying attributes of an entity for texts; empty for a singleton."""
    if entity.type in _SINGLE:
        return ""
    if isinstance(entity, LogConfig):
        return entity.module
    if entity.named:
        return f"'{entity.name}'"
    match entity:
        case AddressConfig(prefix=str(prefix)):
            return f"(prefix {prefix})"
        case AddressConfig(pattern=pattern):
            return f"(pattern {pattern})"
        case LinkRouteConfig():
            return f"({entity.direction} {entity.prefix or entity.pattern})"
        case AutoLinkConfig():
            return f"({entity.direction} {entity.address})"
        case ExchangeConfig():
            return f"({entity.address})"
        case BindingConfig():
            return f"({entity.exchange_name}: {entity.binding_key} to {entity.next_hop_address})"
        case TapConfig():
            return f"({entity.pattern} to {entity.address})"
        case VhostConfig():
            return f"'{entity.hostname}'"
        case ListenerConfig():
            return f"{entity.host or '*'}:{entity.port_text}"
        case ConnectorConfig():
            return entity.place
    return entity.identity


def _nature_key(entity: EntityConfig) -> _Key:
    """Return the key that identifies an entity apart from its name."""
    match entity:
        case LogConfig():
            key: _Key = (entity.module,)
        case AddressConfig():
            key = entity.tokens
        case LinkRouteConfig():
            key = (entity.direction, entity.whole_pattern, entity.container_id, entity.connection)
        case AutoLinkConfig():
            key = (entity.address, entity.direction, entity.phase, entity.container_id, entity.connection)
        case ExchangeConfig():
            key = (entity.address,)
        case BindingConfig():
            key = (entity.exchange_name, entity.binding_key, entity.next_hop_address, entity.next_hop_phase)
        case TapConfig():
            key = (entity.tokens, entity.address)
        case VhostConfig():
            key = (entity.hostname,)
        case ListenerConfig() | ConnectorConfig():
            key = (entity.host, entity.port_text)
        case _:
            key = () if entity.type in _SINGLE else (entity.identity,)
    return (entity.type, *key)


def _matched(old: list[EntityConfig], new: list[EntityConfig]) -> _Pairs:
    """Return the matching pairs of entities: by given name, else by `_nature_key`."""
    pairs: _Pairs = []
    for key in (_name_key, _nature_key):
        taken = {id(entity) for pair in pairs for entity in pair}
        mine = _by_key((each for each in old if id(each) not in taken), key)
        theirs = _by_key((each for each in new if id(each) not in taken), key)
        for value, entities in theirs.items():
            pairs += zip(mine.get(value, ()), entities, strict=False)
    return pairs


def _by_key(
    entities: Iterable[EntityConfig], key: Callable[[EntityConfig], _Key | None]
) -> Mapping[_Key, list[EntityConfig]]:
    """Return the entities by key; entities without a key are left out."""
    found: dict[_Key, list[EntityConfig]] = {}
    for entity in entities:
        if (value := key(entity)) is not None:
            found.setdefault(value, []).append(entity)
    return found


def _name_key(entity: EntityConfig) -> _Key | None:
    return (entity.type, entity.name) if entity.named and not isinstance(entity, LogConfig) else None


def _change(kind: Kind, old: EntityConfig | None, new: EntityConfig | None) -> Change:
    """Return the change from `old` to `new`. An update may have no changed attributes."""
    entity = old or new
    if entity is None:
        raise ValueError("a change needs an old or a new entity")
    before = {} if old is None else old.given
    after = {} if new is None else new.given
    attributes: dict[str, tuple[JsonValue, JsonValue, ChangeClass]] = {}
    for name, attribute in entity.entity_type.attributes.items():
        mine, theirs = before.get(name), after.get(name)
        if type(mine) is type(theirs) and mine == theirs:
            continue
        # Defaults are not listed.
        if kind == "update" or (mine if theirs is None else theirs) != attribute.default:
            attributes[name] = (mine, theirs, attribute.change)
    effect: ChangeClass = "live"
    if kind == "update":
        effect = max((change for _, _, change in attributes.values()), key=_ORDER.index, default="live")
    return Change(kind, entity.type, entity.identity, attributes, effect, old, new)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
