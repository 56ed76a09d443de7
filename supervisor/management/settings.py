"""Types router.config.*: configured addresses, exchanges, bindings and taps (management.md 6.7)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from sluice.router.addressing.settings import UNAVAILABLE
from sluice.router.config.entity import EntityConfig
from sluice.supervisor.addresses.taps import MISSED, tap_totals
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.linkroutes.local import LinkRoute
from sluice.supervisor.links.auto import AutoLinkStatus as AutoLinkShown
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.core_type import PREFIX, Column, CoreType, constant
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import (
    BAD_REQUEST,
    CREATED,
    NO_CONTENT,
    NOT_FOUND,
    Response,
    StatusError,
    Steps,
)
from sluice.supervisor.runtime.availability import Availability

ADDRESS: Final = "router.config.address"
LINK_ROUTE: Final = "router.config.linkRoute"
AUTO_LINK: Final = "router.config.autoLink"
EXCHANGE: Final = "router.config.exchange"
BINDING: Final = "router.config.binding"
TAP: Final = "router.config.tap"
# Types whose objects share the number sequence of links, in the order in which a router creates them.
NUMBERED: Final = (ADDRESS, LINK_ROUTE, AUTO_LINK, EXCHANGE, BINDING, TAP)


_MAX_DIGITS: Final = 18  # limit for the digits of a number


class ConfiguredNumbers:
    """Numbers of configured objects. Owner: the agent."""

    def __init__(self, context: AgentContext) -> None:
        """Number the initial configuration, for which the first numbers are reserved."""
        self._context = context
        self._numbers: dict[str, tuple[int, EntityConfig]] = {}  # by store identity
        self._store: dict[int, str] = {}  # store identity by number
        for number, entity in enumerate(self._entities(), 1):
            self._enter(number, entity)

    def _entities(self) -> list[EntityConfig]:
        return [entity for kind in NUMBERED for entity in self._context.changes.entities(kind)]

    def _enter(self, number: int, entity: EntityConfig) -> None:
        before = self._numbers.get(entity.identity)
        if before is not None and before[0] != number:
            del self._store[before[0]]
        self._numbers[entity.identity] = number, entity
        self._store[number] = entity.identity

    def of(self, entity: EntityConfig) -> int:
        """Return the number of an object. A new object gets the next number, a changed one keeps its number."""
        number, known = self._numbers.get(entity.identity, (0, None))
        if known is not entity:
            if known is None or _distinguishing_attributes(known) != _distinguishing_attributes(entity):
                number = self._context.core.take_identity()
            self._enter(number, entity)
        return number

    def store_identity(self, number: str) -> str | None:
        """Return the store identity of the object with this number, or None."""
        if not (number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS):
            return None
        found = self._store.get(int(number))
        # some objects were never shown and have no number yet
        if found is None and len(self._numbers) != self._count():
            for entity in self._entities():
                self.of(entity)
            found = self._store.get(int(number))
        return found

    def forget(self, entity: EntityConfig) -> None:
        """Remove an object, and others that are gone as well. Their store identities may be reused."""
        number, _ = self._numbers.pop(entity.identity, (0, None))
        self._store.pop(number, None)
        if len(self._numbers) > self._count():
            present = {entity.identity for entity in self._entities()}
            for identity in [identity for identity in self._numbers if identity not in present]:
                del self._store[self._numbers.pop(identity)[0]]

    def _count(self) -> int:
        """Return the number of existing objects."""
        return sum(len(self._context.changes.entities(kind)) for kind in NUMBERED)


def _distinguishing_attributes(entity: Any) -> tuple[Any, ...]:
    """Return the attributes that distinguish objects with the same store identity."""
    return entity.name, getattr(entity, "prefix", None), getattr(entity, "pattern", None)


# Attribute names that only requests may use (management.md 5.8).
_OF_THE_WIRE: Final[Mapping[str, tuple[str, ...]]] = {ADDRESS: ("fallback",)}


class ConfiguredTypeRow(NamedTuple):
    """Configured object with its number."""

    entity: Any
    number: int
    context: AgentContext
    counters: Mapping[str, int]


class ConfiguredType(CoreType):
    """Base class of the types router.config.*."""

    kind: ClassVar[str]  # short name of the type
    needs: ClassVar[str] = "name"  # words in the answer to a request without target

    def __init__(self, context: AgentContext, identities: ConfiguredNumbers) -> None:
        super().__init__(context)
        self._identities = identities

    def entities(self) -> Iterable[Any]:
        """Return the configured objects in order of creation."""
        return self.context.changes.entities(self.kind)

    def rows(self) -> Iterable[EntityConfig]:
        """Return the configured objects."""
        return self.entities()

    def row(self, item: EntityConfig) -> NamedTuple:
        """Return the row of an object with its number and counters."""
        return ConfiguredTypeRow(item, self._identities.of(item), self.context, self.counters(item))

    def counters(self, item: EntityConfig) -> Mapping[str, int]:
        """Return the counters of an object."""
        return {}

    def find(self, identity: str | None, name: str | None) -> EntityConfig:
        """Return the object with this number (or store identity), otherwise with the name."""
        if identity is None and name is None:
            raise StatusError(BAD_REQUEST, f"No {self.needs} or identity provided")
        store_identity = None if identity is None else self._identities.store_identity(identity)
        found = self._first(None, identity) if identity is not None else self._first(name, None)
        if found is None and store_identity is not None:
            found = self._first(None, store_identity)
        if found is None:
            raise StatusError(NOT_FOUND)
        return found

    def _first(self, name: str | None, identity: str | None) -> EntityConfig | None:
        """Return the first object of this type with a name, otherwise with a store identity."""
        found = self.context.changes.find(name, identity)
        return next((each for each in found if each.type == self.kind), None)

    def create(self, request: Request) -> Steps:
        """Create an object. Raises StatusError."""
        request.refuse_unknown(self.entity_type, _OF_THE_WIRE.get(self.kind, ()))
        try:
            entity = yield from self.context.changes.create(self.kind, request.name, request.body())
        except ChangeError as error:
            raise StatusError(error.status, error.text, values.NULL) from error
        return self.shown(entity, CREATED)

    def delete(self, request: Request) -> Steps:
        """Remove an object. Raises StatusError."""
        entity = self.find(request.identity, request.name)
        try:
            yield from self.context.changes.delete(entity)
        except ChangeError as error:
            raise StatusError(error.status, error.text) from error
        self._identities.forget(entity)
        return Response(NO_CONTENT)


def shown_name(entity: EntityConfig) -> str | None:
    """Return the name as the core shows it: None for an object created by a request without name."""
    return entity.name if entity.named or entity.line else None


def _name(row: ConfiguredTypeRow) -> bytes:
    return values.string(shown_name(row.entity))


def _identity(row: ConfiguredTypeRow) -> bytes:
    return values.string(str(row.number))


def _in_file(row: "ConfiguredTypeRow | AutoLinkRow") -> bytes:
    return values.boolean(row.context.changes.in_file(row.entity))


def _counter(name: str) -> Callable[[ConfiguredTypeRow], bytes]:
    return lambda row: values.ulong(row.counters.get(name, 0))


def _missed_by_address(row: ConfiguredTypeRow) -> bytes:
    return values.mapping(row.context.core.taps.missed(row.entity.name)[0])


class ConfiguredAddresses(ConfiguredType):
    """Configured address settings."""

    kind = ADDRESS
    name = PREFIX + kind
    columns: ClassVar[Mapping[str, Column]] = {
        "name": _name,
        "identity": _identity,
        "type": constant(values.string(name)),
        "prefix": lambda row: values.string(_stripped(row.entity.prefix)),
        "distribution": lambda row: values.string(_none_if(row.entity.distribution, UNAVAILABLE)),
        "waypoint": lambda row: values.boolean((row.entity.ingress_phase, row.entity.egress_phase) == (0, 1)),
        "ingressPhase": lambda row: values.int32(row.entity.ingress_phase),
        "egressPhase": lambda row: values.int32(row.entity.egress_phase),
        "pattern": lambda row: values.string(_stripped(row.entity.pattern)),
        "priority": lambda row: values.int32(-1 if row.entity.priority is None else row.entity.priority),
        "fallback": lambda row: values.boolean(row.entity.fallback),
    }
    more: ClassVar[Mapping[str, Column]] = {
        "inFile": _in_file,
        "enableFallback": columns["fallback"],
        "presettledOverflow": lambda row: values.string(row.entity.presettled_overflow),
        "scope": lambda row: values.string(row.entity.scope),
    }


def _stripped(text: str | None) -> str | None:
    """Return a prefix or pattern without separators at its ends."""
    return None if text is None else text.strip("./")


def _none_if(text: str, nothing: str) -> str | None:
    return None if text == nothing else text


class ConfiguredLinkRoutes(ConfiguredType):
    """Configured link routes."""

    kind = LINK_ROUTE
    name = PREFIX + kind
    columns: ClassVar[Mapping[str, Column]] = {
        "name": _name,
        "identity": _identity,
        "type": constant(values.string(name)),
        "prefix": lambda row: values.string(_stripped(row.entity.prefix)),
        "distribution": constant(values.string("linkBalanced")),
        "connection": lambda row: values.string(row.entity.connection),
        "containerId": lambda row: values.string(row.entity.container_id),
        "direction": lambda row: values.string(row.entity.direction),
        "dir": lambda row: values.string(row.entity.direction),
        "operStatus": lambda row: values.string(_status(row)),
        "pattern": lambda row: values.string(_stripped(row.entity.pattern)),
        "addExternalPrefix": lambda row: values.string(row.entity.add_prefix),
        "delExternalPrefix": lambda row: values.string(row.entity.delete_prefix),
    }
    more: ClassVar[Mapping[str, Column]] = {
        "inFile": _in_file,
        "stateSeconds": lambda row: _of_route(row, values.uint, lambda route: int(route.availability.seconds)),
        "attempts": lambda row: _of_route(row, values.uint, lambda route: route.address.attempts),
        "refusals": lambda row: _of_route(row, values.uint, lambda route: route.address.refusals),
        "lastRefusal": lambda row: _of_route(row, values.string, lambda route: route.address.last_refusal or None),
        "downReason": lambda row: _of_route(row, values.string, lambda route: route.availability.error or None),
    }


def _of_route(row: ConfiguredTypeRow, encode: Callable[[Any], bytes], value: Callable[[LinkRoute], Any]) -> bytes:
    """Return an encoded value of a link route; null if the core does not have it yet."""
    route = row.context.core.link_routes.get(row.entity)
    found = None if route is None else value(route)
    return values.NULL if found is None else encode(found)


def _status(row: ConfiguredTypeRow) -> str:
    return "active" if row.context.core.link_routes.active(row.entity) else "inactive"


class AutoLinkRow(NamedTuple):
    """Auto link with its number and state."""

    entity: Any
    number: int
    context: AgentContext
    state: AutoLinkShown
    availability: Availability


class ConfiguredAutoLinks(ConfiguredType):
    """Configured auto links."""

    kind = AUTO_LINK
    name = PREFIX + kind
    columns: ClassVar[Mapping[str, Column]] = {
        "name": _name,
        "identity": _identity,
        "type": constant(values.string(name)),
        "address": lambda row: values.string(row.entity.address),
        "addr": lambda row: values.string(row.entity.address),
        "direction": lambda row: values.string(row.entity.direction),
        "dir": lambda row: values.string(row.entity.direction),
        "phase": lambda row: values.int32(row.entity.phase),
        "connection": lambda row: values.string(row.entity.connection),
        "containerId": lambda row: values.string(row.entity.container_id),
        "externalAddress": lambda row: values.string(row.entity.external_address),
        "externalAddr": lambda row: values.string(row.entity.external_address),
        "linkRef": lambda row: values.string(None if row.state.link is None else str(row.state.link)),
        "operStatus": lambda row: values.string(row.state.state),
        "lastError": lambda row: values.string(row.state.error),
        "fallback": lambda row: values.boolean(row.entity.fallback),
    }
    more: ClassVar[Mapping[str, Column]] = {
        "inFile": _in_file,
        "stateSeconds": lambda row: values.uint(int(row.availability.seconds)),
        "attempts": lambda row: values.uint(row.availability.attempts),
        "downReason": lambda row: values.string(row.availability.error or None),
    }

    def row(self, item: Any) -> AutoLinkRow:
        """Return the row of an auto link with its number and state."""
        auto_links = self.context.core.auto_links
        availability = auto_links.availability(item) or Availability(item.name)
        return AutoLinkRow(item, self._identities.of(item), self.context, auto_links.shown(item), availability)


class ConfiguredExchanges(ConfiguredType):
    """Configured exchanges."""

    kind = EXCHANGE
    name = PREFIX + kind
    columns: ClassVar[Mapping[str, Column]] = {
        "name": _name,
        "identity": _identity,
        "address": lambda row: values.string(row.entity.address),
        "phase": lambda row: values.int32(row.entity.phase),
        "alternateAddress": lambda row: values.string(row.entity.alternate_address),
        "alternatePhase": lambda row: values.int32(
            row.entity.alternate_phase if row.entity.alternate_address else None
        ),
        "matchMethod": lambda row: values.string(row.entity.match_method),
        "bindingCount": lambda row: values.uint(_bindings_of(row)),
        "receivedCount": _counter("received"),
        "droppedCount": _counter("dropped"),
        "forwardedCount": _counter("forwarded"),
        "divertedCount": _counter("diverted"),
    }
    more: ClassVar[Mapping[str, Column]] = {"inFile": _in_file, "type": constant(values.string(name))}

    def counters(self, item: EntityConfig) -> Mapping[str, int]:
        """Return the counts of messages received, forwarded, dropped and diverted."""
        number = self.context.core.exchanges.exchange_counters(item.name)
        if number is None:
            return {}
        counted = self.context.region.address_totals(number)
        received, forwarded = counted["ingress"], counted["egress"]
        return {
            "received": received,
            "forwarded": forwarded,
            "dropped": received - forwarded,
            "diverted": counted["redirected"],
        }


def _bindings_of(row: ConfiguredTypeRow) -> int:
    return sum(each.exchange_name == row.entity.name for each in _bindings(row.context))  # type: ignore[attr-defined]


def _bindings(context: AgentContext) -> Iterable[EntityConfig]:
    return context.changes.entities(BINDING)


class ConfiguredBindings(ConfiguredType):
    """Configured bindings, grouped by exchange."""

    kind = BINDING
    name = PREFIX + kind
    needs = "binding name"
    columns: ClassVar[Mapping[str, Column]] = {
        "name": _name,
        "identity": _identity,
        "exchangeName": lambda row: values.string(row.entity.exchange_name),
        "bindingKey": lambda row: values.string(row.entity.binding_key),
        "nextHopAddress": lambda row: values.string(row.entity.next_hop_address),
        "nextHopPhase": lambda row: values.int32(row.entity.next_hop_phase),
        "matchedCount": _counter("matched"),
    }
    more: ClassVar[Mapping[str, Column]] = {"inFile": _in_file, "type": constant(values.string(name))}

    def rows(self) -> Iterable[EntityConfig]:
        """Return the bindings, grouped by exchange."""
        grouped: dict[str, list[EntityConfig]] = {each.name: [] for each in self.context.changes.entities(EXCHANGE)}
        for binding in self.entities():
            grouped.setdefault(binding.exchange_name, []).append(binding)
        return [binding for own in grouped.values() for binding in own]

    def counters(self, item: EntityConfig) -> Mapping[str, int]:
        """Return the count of matching messages."""
        number = self.context.core.exchanges.binding_counters(item.name)
        return {} if number is None else {"matched": self.context.region.address_totals(number)["ingress"]}


class ConfiguredTaps(ConfiguredType):
    """Configured taps."""

    kind = TAP
    name = PREFIX + kind
    columns: ClassVar[Mapping[str, Column]] = {
        "name": _name,
        "identity": _identity,
        "pattern": lambda row: values.string(row.entity.pattern),
        "address": lambda row: values.string(row.entity.address),
        "mode": lambda row: values.string(row.entity.mode),
        "selectedCount": _counter("selected"),
        "acceptedCount": _counter("accepted"),
        "rejectedCount": _counter("rejected"),
        "missedCount": _counter("missed"),
        "returnedCount": _counter("returned"),
        "withoutConsumerCount": _counter("withoutConsumer"),
        "beyondBoundsCount": _counter("beyondBounds"),
        "tooLongCount": _counter("tooLong"),
        "stalledCount": _counter("stalled"),
        "missedByAddress": _missed_by_address,
        "missedElsewhereCount": _counter("missedElsewhere"),
    }
    more: ClassVar[Mapping[str, Column]] = {"type": constant(values.string(name))}

    def counters(self, item: EntityConfig) -> Mapping[str, int]:
        """Return the counts of messages, of copies by outcome, and of missed messages by reason."""
        number = self.context.core.taps.counters(item.name)
        if number is None:
            return {}
        counted = tap_totals(self.context.region.address_totals(number))
        elsewhere = self.context.core.taps.missed(item.name)[1]
        return {**counted, "missed": sum(counted[reason] for reason in MISSED), "missedElsewhere": elsewhere}
