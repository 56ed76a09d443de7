"""The decision about an attach: refused, anonymous, or bound to which address. No input or output here.

The order of the steps is that of 1.19 (routing semantics, "Decision sequence"): the first that matches decides.
"""
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from router.routing.address import (
    EDGE_MODE,
    FALLBACK_PHASE,
    FALLBACK_PHASE_NUMBER,
    LOCAL,
    LONGEST,
    MOBILE,
    TOPOLOGICAL,
    UPLINK,
    classify,
    generate_temporary,
    key,
    normalise,
    too_long,
)
from router.routing.settings import BALANCED, CLOSEST, UNAVAILABLE, AddressSettings
from supervisor.connections import Connection
from supervisor.linktargets import INTER_ROUTER, Hop, Targets
from supervisor.table import AddressTooLongError, Record, Table, TableFullError


class Refused(NamedTuple):
    """The decision is no; both texts go to the client."""

    condition: str
    description: str


class Accepted(NamedTuple):
    """The decision is yes. `record` is None for an anonymous link."""

    record: Record | None = None
    generated: str | None = None  # text of a dynamic terminus
    to: str | None = None  # text for the annotation of messages that come in over the link
    phase: int = 0
    fallback: bool = True  # False: deliveries of this producer never go to the fallback instance
    source: bool | None = None  # the router itself sends numbered messages to this consumer: settled or not


class Routed(NamedTuple):
    """The decision is that a container has the link. The connection is its, or that to the next router on the way."""

    connection: Connection
    # What the container is to see in the place of the client's text, which of a dynamic node is the address that its
    # properties ask for; None: the same.
    address: str | None
    remove: str  # what is taken off the front of the address that the container answers …
    put: str  # … and what is put there
    hop: Hop | None = None  # None: the container is at this router


NO_ROUTE: Final = Refused("qd:no-route-to-dest", "No route to the destination node")
NOT_FOUND: Final = Refused("amqp:not-found", "Node not found")
FORBIDDEN: Final = Refused("qd:forbidden", "Connectivity to the node is forbidden")
WRONG_ROLE: Final = Refused("qd:connection-role", "Link attach forbidden on inter-router connection")
NO_COORDINATOR: Final = Refused(
    "amqp:precondition-failed",
    "The router can't coordinate transactions by itself, "
    "a linkRoute to a coordinator must be configured to use transactions.",
)
NO_EXPIRATION: Final = Refused("qd:link-expiration", "Requested link expiration not allowed")
ONLY_OUTGOING: Final = Refused("qd:forbidden", "Source function only accepts outgoing links")
TOO_LONG: Final = Refused("amqp:resource-limit-exceeded", f"The address is longer than {LONGEST} octets")
TABLE_FULL: Final = Refused("amqp:resource-limit-exceeded", "No room for another address")
ANONYMOUS: Final = Accepted()

COORDINATOR: Final = "$coordinator"  # what link routes know coordinators by
NEVER: Final = "never"
_ROUTER_CAPABILITIES: Final = ("qd.router", "qd.router-data")
_FALLBACK_CAPABILITY: Final = "qd.fallback"
_WAYPOINT_CAPABILITY: Final = "qd.waypoint"


class Attaching:
    """Decides about attaches; creates the address records that it needs. Owner: supervisor."""

    __slots__ = ("_mode", "_refusals", "_router_id", "_settings", "_sources", "_table", "_targets", "resumable")

    def __init__(
        self, router_id: str, mode: str, settings: AddressSettings, table: Table, targets: Targets | None = None
    ) -> None:
        self._router_id = router_id
        self._mode = mode
        self._settings = settings
        self._table = table
        self._targets = targets
        self.resumable = True  # routed links may outlive their connection (allowResumableLinkRoute)
        self._refusals: dict[str, Refused] = {}
        self._sources: dict[str, bool] = {}

    def refuse(self, record_key: str, refusal: Refused) -> None:
        """From now on nobody may attach to this address, for which there is no record."""
        self._refusals[record_key] = refusal

    def produce(self, record_key: str, settled: bool) -> None:
        """From now on the router itself sends numbered messages to whoever receives from this address."""
        self._sources[record_key] = settled

    def decide(self, message: Mapping[str, Any], role: str, usable: bool = False) -> Accepted | Refused | Routed:
        """Decide about an `attach` message of a worker; `role` is that of the listener of its connection.

        usable: a router is at the other end, its control link attached.

        The record of an accepted link is in the table, but the link is not yet counted as its user.
        """
        consumer = message["dir"] == "out"
        capabilities, is_array = message["caps"] or ((), False)
        from_router = role == INTER_ROUTER
        if from_router and not usable:
            return WRONG_ROLE
        if not is_array and capabilities and capabilities[0] in _ROUTER_CAPABILITIES:
            return FORBIDDEN
        if message["coordinator"]:
            return self._route(message, COORDINATOR, from_router) or NO_COORDINATOR
        try:
            if message["dynamic"]:
                wanted = message["dynamic_address"]
                if wanted:
                    return self._route(message, wanted, from_router) or NO_ROUTE
                return NO_ROUTE if from_router else self._dynamic(consumer)
            address = message["address"]
            if not address:
                return NO_ROUTE if consumer else ANONYMOUS
            routed = self._route(message, address, from_router)
            if routed is not None:
                return routed
            if from_router:
                return NO_ROUTE  # the link route that it is for has gone
            return self._bind(address, message["tenant"], consumer, capabilities)
        except AddressTooLongError:
            return TOO_LONG
        except TableFullError:
            return TABLE_FULL

    def _route(self, message: Mapping[str, Any], text: str, from_router: bool) -> Routed | Refused | None:
        """Where link routes send the link; None when none matches `text`."""
        if self._targets is None:
            return None
        tenant = message["tenant"] if text is not COORDINATOR else None
        name = normalise(text)
        match = self._targets.match(message["dir"], name if tenant is None else tenant + name)
        if match is None:
            return None
        if not self.resumable and (message["timeout"] > 0 or message["expiry"] == NEVER):
            return NO_EXPIRATION
        target = self._targets.choose(match, message, from_router)
        if target is None:
            return NO_ROUTE
        if message["coordinator"]:
            return Routed(target.connection, None, "", "", target.hop)
        whole = text if tenant is None else tenant + name
        if target.address is None or message["dynamic"]:
            return Routed(target.connection, None if whole == text else whole, "", "", target.hop)
        seen = target.address.outward(whole)
        put = target.address.delete_prefix.removeprefix(tenant or "")
        return Routed(target.connection, None if seen == text else seen, target.address.add_prefix, put)

    def find(self, text: str) -> Record | None:
        """The record that a message for `text` goes to, None when there is none."""
        cls, name = classify(normalise(text), self._router_id, self._mode)
        phase = self._settings.lookup(name).ingress_phase if cls == MOBILE else 0
        return self._table.records.get(key(cls, name, phase))

    def _dynamic(self, consumer: bool) -> Accepted:
        """A link to an address that is made up for it."""
        while True:
            text = generate_temporary(self._router_id, self._mode, dynamic_target=not consumer)
            address = classify(normalise(text), self._router_id, self._mode)
            record_key = key(address.cls, address.name)
            if record_key not in self._table.records:
                break
        default = self._settings.default
        record = self._table.create(record_key, BALANCED, default.priority, default.overflow)
        record.fixed = True
        return Accepted(record, generated=text, to=None if consumer else text)

    def _bind(self, text: str, tenant: str | None, consumer: bool, capabilities: Sequence[str]) -> Accepted | Refused:
        """A link to the address that the client names."""
        if too_long(text):
            return TOO_LONG
        cls, name = classify(normalise(text), self._router_id, self._mode)
        if cls == MOBILE:
            return self._bind_mobile(text, name, tenant, consumer, capabilities)
        beyond_uplink = self._mode == EDGE_MODE and (cls, name) == (LOCAL, UPLINK)
        elsewhere = beyond_uplink or cls not in (LOCAL, TOPOLOGICAL)
        if elsewhere and consumer:
            return NO_ROUTE
        record = self._table.records.get(key(cls, name))
        if record is None:
            default = self._settings.default
            if not elsewhere and default.distribution == UNAVAILABLE:
                return NOT_FOUND
            treatment = CLOSEST if elsewhere else default.distribution
            record = self._table.create(key(cls, name), treatment, default.priority, default.overflow)
            record.fixed = elsewhere
        return Accepted(record, to=None if consumer else text)

    def _bind_mobile(
        self, text: str, name: str, tenant: str | None, consumer: bool, capabilities: Sequence[str]
    ) -> Accepted | Refused:
        if tenant is not None:
            name = text = tenant + name
        setting = self._settings.lookup(name)
        phase: int | str = setting.egress_phase if consumer else setting.ingress_phase
        fallback = True
        if capabilities:
            waypoint = _waypoint(capabilities)
            if waypoint is not None:
                phase = waypoint - 1 if consumer else waypoint
            if _FALLBACK_CAPABILITY in capabilities:
                fallback = False
                if consumer:
                    phase = FALLBACK_PHASE
        if self._refusals and (refusal := self._refusals.get(key(MOBILE, name, phase))) is not None:
            return refusal
        if self._sources and (settled := self._sources.get(key(MOBILE, name, phase))) is not None:
            return Accepted(source=settled) if consumer else ONLY_OUTGOING
        if setting.distribution == UNAVAILABLE and key(MOBILE, name, phase) not in self._table.records:
            return NOT_FOUND
        record = self._table.open_mobile(name, phase, setting)
        number = FALLBACK_PHASE_NUMBER if isinstance(phase, str) else phase
        return Accepted(record, to=None if consumer else text, phase=number, fallback=fallback)


def _waypoint(capabilities: Sequence[str]) -> int | None:
    """The number of the first waypoint capability: 1 for the plain one, else the digit behind any one character."""
    for capability in capabilities:
        if capability.startswith(_WAYPOINT_CAPABILITY):
            suffix = capability[len(_WAYPOINT_CAPABILITY) :]
            if not suffix:
                return 1
            if len(suffix) == 2 and suffix[1] in "123456789":
                return int(suffix[1])
    return None
