"""Decision about an attach: refuse it, accept it as anonymous, or bind the link to an address.

Does no input or output. routing-semantics.md 4.2 to 4.5. The checks run in the order of 1.19; the first match decides.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from sluice.router.addressing.address import (
    EDGE,
    EDGE_MODE,
    FALLBACK_PHASE,
    FALLBACK_PHASE_NUMBER,
    INTERIOR_MODE,
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
from sluice.router.addressing.settings import BALANCED, CLOSEST, UNAVAILABLE, AddressSettings
from sluice.router.addressing.settings import LOCAL as SCOPE_LOCAL
from sluice.router.config.roles import CLIENT_ROLES, INTER_EDGE, INTER_ROUTER
from sluice.router.config.roles import EDGE as EDGE_ROLE
from sluice.router.control.messages import Attach
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable, AddressTooLongError, TableFullError
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.linkroutes.local import LinkAddress
from sluice.supervisor.linkroutes.targets import LinkNextHop, LinkTargets
from sluice.supervisor.links.resolved_addresses import ResolvedAddress, ResolvedAddresses
from sluice.supervisor.links.suspended import SuspendedConsumer
from sluice.supervisor.subsystem import Subsystem


class AttachRefused(NamedTuple):
    """Decision to refuse an attach. The client receives both texts."""

    condition: str | None  # None: the detach carries no error
    description: str | None


class AttachAccepted(Struct, frozen=True):
    """Decision to accept an attach. `record` is None for an anonymous link."""

    record: AddressRecord | None = None
    generated: str | None = None  # generated address of a dynamic terminus
    to: str | None = None  # address for the `to` annotation of incoming messages
    phase: int = 0
    fallback: bool = True  # False: deliveries of this producer never reach the fallback instance
    # for a consumer of numbered messages that the router itself sends: whether they are settled
    source: bool | None = None
    capacity: int | None = None  # credit of a producer; None: as configured for its listener
    service: Literal["anonymous", "heartbeat"] | None = None  # how the worker handles a link without record
    owner: str | None = None  # key of the service that uses a link without record
    link_type: str | None = None  # link type shown by management; None: the default type
    # Called when the worker has suspended the link, whose peer is lost. Returns whether the peer is awaited. None: the
    # worker never suspends it.
    on_suspended: Callable[[SuspendedConsumer], bool] | None = None
    resumes: SuspendedConsumer | None = None  # suspended consumer that the link takes over


class AttachRouted(NamedTuple):
    """Decision to route an attach to a container. `connection` leads to the container or to the next hop."""

    connection: RegisteredConnection
    # Address sent to the container in place of the client's; None: unchanged. For a dynamic node, the address in its
    # properties is replaced.
    address: str | None
    # Prefix to remove from the address in the container's answer, then prefix to add.
    remove: str
    put: str
    hop: LinkNextHop | None = None  # None: the container is connected to this router
    route: LinkAddress | None = None  # link-route address of the container; None: another router has the container
    # the interior router appends the client's container id to the name (brokers-and-edge.md ED-22)
    keeps_name: bool = False


MISUSED: Final = AttachRefused(None, None)
NO_ROUTE: Final = AttachRefused("qd:no-route-to-dest", "No route to the destination node")
NOT_FOUND: Final = AttachRefused("amqp:not-found", "Node not found")
FORBIDDEN: Final = AttachRefused("qd:forbidden", "Connectivity to the node is forbidden")
WRONG_ROLE: Final = AttachRefused("qd:connection-role", "Link attach forbidden on inter-router connection")
WRONG_LINK: Final = AttachRefused("qd:connection-role", "Link attach forbidden on inter-edge connection")
NO_COORDINATOR: Final = AttachRefused(
    "amqp:precondition-failed",
    "The router can't coordinate transactions by itself, "
    "a linkRoute to a coordinator must be configured to use transactions.",
)
NO_EXPIRATION: Final = AttachRefused("qd:link-expiration", "Requested link expiration not allowed")
ONLY_OUTGOING: Final = AttachRefused("qd:forbidden", "Source function only accepts outgoing links")
TOO_LONG: Final = AttachRefused("amqp:resource-limit-exceeded", f"The address is longer than {LONGEST} octets")
TOO_MANY_PEERS: Final = AttachRefused(
    "amqp:resource-limit-exceeded", "Too many edge routers have consumers of this address already"
)
TABLE_FULL: Final = AttachRefused("amqp:resource-limit-exceeded", "The address table is full")
ANONYMOUS: Final = AttachAccepted()

# Limit of other edge routers with consumers of one address: a record between workers must have room for their marks.
MOST_PEERS: Final = 256
COORDINATOR: Final = "$coordinator"  # address of transaction coordinators in link routes
NEVER: Final = "never"
_ROUTER_CAPABILITIES: Final = ("qd.router", "qd.router-data")
_SERVICES: Final = "_$qd."
FALLBACK_CAPABILITY: Final = "qd.fallback"
WAYPOINT_CAPABILITY: Final = "qd.waypoint"
DOWNLINK_CAPABILITY: Final = "qd.router-edge-downlink"
NO_LINK_ROUTE: Final = "sluice.no-link-route"  # target capability: this link of an edge router is for a mobile address
DOWNLINK: Final = "edge-downlink"  # link type of an edge downlink in management

# Services for edge routers (inter-router.md 14.4 to 14.6), and the credit granted for their messages.
TRACKING: Final = "_$qd.edge_addr_tracking"
LOOKUP: Final = "_$qd.addr_lookup"
HEARTBEAT: Final = "_$qd.edge_heartbeat"
UPLINKS: Final = "_$qd.sluice.uplinks"
TRACKING_KEY: Final = key(MOBILE, TRACKING)
LOOKUP_KEY: Final = key(MOBILE, LOOKUP)
HEARTBEAT_KEY: Final = key(MOBILE, HEARTBEAT)
UPLINKS_KEY: Final = key(MOBILE, UPLINKS)
LOOKUP_CREDIT: Final = 32
HEARTBEAT_CREDIT: Final = 2
UPLINKS_CREDIT: Final = 8


class AttachDecider(Subsystem):
    """Decides about attaches, and creates address records as needed. Owner: supervisor."""

    __slots__ = (
        "_mode", "_refusals", "_resolved", "_resumable", "_router_id", "_settings", "_sources", "_table", "_targets",
    )  # fmt: skip

    def __init__(
        self,
        router_id: str,
        mode: str,
        settings: AddressSettings,
        table: AddressTable,
        targets: LinkTargets | None = None,
        *,
        resumable: bool = True,
    ) -> None:
        """resumable: routed links may outlive their connection (allowResumableLinkRoute)."""
        self._router_id = router_id
        self._mode = mode
        self._settings = settings
        self._table = table
        self._targets = targets
        self._resumable = resumable
        self._refusals: dict[str, AttachRefused] = {}
        self._sources: dict[str, bool] = {}
        self._resolved = ResolvedAddresses()
        settings.watch(self._resolved.forget)
        if targets is not None:
            targets.watch_patterns(self._resolved.forget)

    def commit(self, change: ConfigurationChange) -> None:
        self._resumable = change.new.router.resumable_routed_links

    def refuse(self, record_key: str, refusal: AttachRefused) -> None:
        """Refuse all further attaches to this address, which has no record."""
        self._refusals[record_key] = refusal
        self._resolved.forget()

    def produce(self, record_key: str, settled: bool) -> None:
        """Accept receivers of this address, which has no record, as consumers of the router's own numbered messages.

        settled: whether these messages are sent settled.
        """
        self._sources[record_key] = settled
        self._resolved.forget()

    def decide(self, message: Attach, role: str, usable: bool = False) -> AttachAccepted | AttachRefused | AttachRouted:
        """Decide about an `attach` message of a worker.

        role: role of the listener of the link's connection. usable: the peer is a router with an attached control
        link. The record of an accepted link is in the table, but the link is not counted as a user of the record yet.
        """
        consumer = message.dir == "out"
        capabilities, is_array = message.caps
        # An attach whose address is resolved by nothing but its text and direction.
        plain = role in CLIENT_ROLES and not (
            capabilities or message.dynamic or message.coordinator or message.tenant is not None
        )
        if plain and (text := message.address):
            resolved = (self._resolved.consumers if consumer else self._resolved.producers).get(text)
            if resolved is not None:
                try:
                    record = resolved.record_in(self._table)
                except TableFullError:
                    return TABLE_FULL
                return AttachAccepted(record, to=None if consumer else text, phase=resolved.phase)
        from_router = role == INTER_ROUTER
        if from_router and not usable:
            return WRONG_ROLE
        if not is_array and capabilities and capabilities[0] in _ROUTER_CAPABILITIES:
            return FORBIDDEN
        if role == INTER_EDGE and (message.coordinator or message.dynamic):
            return WRONG_LINK
        if message.coordinator:
            return self._route(message, COORDINATOR, COORDINATOR, from_router) or NO_COORDINATOR
        try:
            if message.dynamic:
                wanted = message.dynamic_address
                if wanted:
                    return self._route(message, wanted, normalise(wanted), from_router) or NO_ROUTE
                return NO_ROUTE if from_router else self._dynamic(consumer)
            address = message.address
            if not address:
                return NO_ROUTE if consumer else ANONYMOUS
            name = normalise(address)
            if role == INTER_EDGE:
                return self._from_edge(name, consumer, capabilities)
            if role != EDGE_ROLE or not self._is_early_proxy(message):
                routed = self._route(message, address, name, from_router)
                if routed is not None:
                    return routed
            if from_router:
                return NO_ROUTE  # the link route has been removed since the other router chose it
            if role == EDGE_ROLE and self._mode == EDGE_MODE:
                return NO_ROUTE  # an interior router attaches links to an edge router for link routes only
            edge = role == EDGE_ROLE
            if edge and consumer and DOWNLINK_CAPABILITY in capabilities:
                return self._downlink(address)
            if name.startswith(_SERVICES):
                service = self._service(address, name, consumer, edge)
                if service is not None:
                    return service
            decision = self._bind(address, name, message.tenant, consumer, capabilities, edge)
            if plain and isinstance(decision, AttachAccepted):
                self._remember(address, name, consumer, decision)
            return decision
        except AddressTooLongError:
            return TOO_LONG
        except TableFullError:
            return TABLE_FULL

    def _remember(self, address: str, name: str, consumer: bool, decision: AttachAccepted) -> None:
        """Remember the address of a plain attach, if it is mobile. name: `address`, normalised."""
        record = decision.record
        setting = self._settings.lookup(name)
        # Attaches to addresses without a record are refused if they are unavailable.
        if (
            record is not None
            and record.key == key(MOBILE, name, decision.phase)
            and setting.distribution != UNAVAILABLE
        ):
            self._resolved.remember(address, consumer, ResolvedAddress(record.key, name, decision.phase, setting))

    def _route(self, message: Attach, text: str, name: str, from_router: bool) -> AttachRouted | AttachRefused | None:
        """Return the target by link routes, a refusal, or None if no link route matches `text`. name: `text`,
        normalised.
        """
        if self._targets is None:
            return None
        tenant = message.tenant if text is not COORDINATOR else None
        match = self._targets.match(message.dir, name if tenant is None else tenant + name)
        if match is None:
            return None
        if not self._resumable and (message.timeout > 0 or message.expiry == NEVER):
            return NO_EXPIRATION
        target = self._targets.choose(match, message, from_router)  # brokers-and-edge.md L-12, LR-10, LR-10a
        if target is None:
            return NO_ROUTE
        if message.coordinator:
            return AttachRouted(target.connection, None, "", "", target.hop, target.address)
        whole = text if tenant is None else tenant + name
        if target.address is None or message.dynamic:
            sent = None if whole == text else whole
            return AttachRouted(target.connection, sent, "", "", target.hop, target.address)
        seen = target.address.outward(whole)
        put = target.address.delete_prefix.removeprefix(tenant or "")
        sent = None if seen == text else seen
        return AttachRouted(target.connection, sent, target.address.add_prefix, put, route=target.address)

    def _is_early_proxy(self, message: Attach) -> bool:
        """Return whether an edge router attaches before it knows if the address belongs to a link route.

        The edge router closes the link if the address does (docs/internals/edge.md).
        """
        return self._mode == INTERIOR_MODE and message.dir == "in" and NO_LINK_ROUTE in message.caps[0]

    def mobile_key_of_sender(self, message: Attach) -> str | None:
        """Return the key of the mobile address that a client's sender is bound to unless a link route matches.

        Returns None for other kinds of attach, for an attach that will be refused, and for an address that no early
        proxy may serve. Creates no record.
        """
        address = message.address
        if message.dir != "in" or message.dynamic or message.coordinator or message.caps[0] or not address:
            return None
        cls, name = classify(normalise(address), self._router_id, self._mode)
        if cls != MOBILE or name.startswith(_SERVICES):
            return None
        if message.tenant is not None:
            name = message.tenant + name
        setting = self._settings.lookup(name)
        found = key(MOBILE, name, setting.ingress_phase)
        if too_long(address) or setting.distribution == UNAVAILABLE:
            return None
        return None if found in self._refusals or found in self._sources else found

    def route_to_interior(
        self, message: Attach, connection: RegisteredConnection, served: bool
    ) -> AttachRouted | AttachRefused:
        """Decide, on an edge router, about an attach for a link route of its interior router (brokers-and-edge.md
        ED-18).
        """
        if not self._resumable and (message.timeout > 0 or message.expiry == NEVER):
            return NO_EXPIRATION
        if not served or connection.closing:
            return NO_ROUTE
        if message.coordinator:
            return AttachRouted(connection, None, "", "", keeps_name=True)
        text = message.address or ""
        whole = text if message.tenant is None else message.tenant + normalise(text)
        return AttachRouted(connection, None if whole == text else whole, "", "", keeps_name=True)

    def _dynamic(self, consumer: bool) -> AttachAccepted:
        """Accept a link to a generated address."""
        while True:
            text = generate_temporary(self._router_id, self._mode, dynamic_target=not consumer)
            address = classify(normalise(text), self._router_id, self._mode)
            record_key = key(address.cls, address.name)
            if record_key not in self._table.records:
                break
        default = self._settings.default
        record = self._table.create(record_key, BALANCED, default.priority, default.overflow)
        record.fixed = True
        return AttachAccepted(record, generated=text, to=None if consumer else text)

    def _from_edge(self, name: str, consumer: bool, capabilities: Sequence[str]) -> AttachAccepted | AttachRefused:
        """Decide about a link of another edge router: for its clients, for itself, or for its heartbeats."""
        if not consumer:
            return self._service(name, name, False, False) or WRONG_LINK
        if DOWNLINK_CAPABILITY in capabilities:
            return self._downlink(name) if name != self._router_id else WRONG_LINK
        if too_long(name):
            return TOO_LONG
        record = self._table.records.get(key(MOBILE, name))
        elsewhere = classify(name, self._router_id, self._mode).cls != MOBILE
        if elsewhere or name.startswith(_SERVICES) or (record is not None and record.inproc):
            return WRONG_LINK
        if self._settings.lookup(name).scope == SCOPE_LOCAL:
            return NO_ROUTE
        found = self._bind_mobile(name, name, None, True, capabilities, True)
        if (
            isinstance(found, AttachAccepted)
            and found.record is not None
            and found.record.consumers_at_peers >= MOST_PEERS
        ):
            return TOO_MANY_PEERS
        return found

    def _downlink(self, edge_id: str) -> AttachAccepted | AttachRefused:
        """Accept the link that brings an edge router the messages for itself (inter-router.md 14.3)."""
        if too_long(edge_id):
            return TOO_LONG
        record = self._table.records.get(key(EDGE, edge_id)) or self._elsewhere(key(EDGE, edge_id), BALANCED)
        return AttachAccepted(record, link_type=DOWNLINK)

    def _elsewhere(self, record_key: str, treatment: str) -> AddressRecord:
        """Create a record for an address whose destination is another router."""
        default = self._settings.default
        record = self._table.create(record_key, treatment, default.priority, default.overflow)
        record.fixed = True
        return record

    def _service(self, text: str, name: str, consumer: bool, edge: bool) -> AttachAccepted | AttachRefused | None:
        """Decide about a link to a service for edge routers (brokers-and-edge.md ED-30); None for any other address.
        name: `text`, normalised.
        """
        if name == HEARTBEAT:
            if consumer:
                return MISUSED
            return AttachAccepted(service="heartbeat", owner=HEARTBEAT_KEY, capacity=HEARTBEAT_CREDIT)
        if self._mode != INTERIOR_MODE:
            return None
        if name == TRACKING:
            return AttachAccepted(service="anonymous", owner=TRACKING_KEY) if consumer and edge else MISUSED
        if name == LOOKUP:
            if consumer or not edge:
                return MISUSED
            return AttachAccepted(self._table.records[LOOKUP_KEY], to=text, capacity=LOOKUP_CREDIT)
        if name == UPLINKS:
            if consumer or not edge:
                return MISUSED
            return AttachAccepted(self._table.records[UPLINKS_KEY], to=text, capacity=UPLINKS_CREDIT)
        return None

    def _bind(
        self, text: str, name: str, tenant: str | None, consumer: bool, capabilities: Sequence[str], edge: bool
    ) -> AttachAccepted | AttachRefused:
        """Bind a link to the address that the client names. name: `text`, normalised. edge: the link is on an edge
        connection.
        """
        if too_long(text):
            return TOO_LONG
        cls, name = classify(name, self._router_id, self._mode)
        if cls == MOBILE:
            return self._bind_mobile(text, name, tenant, consumer, capabilities, edge)
        beyond_uplink = self._mode == EDGE_MODE and (cls, name) == (LOCAL, UPLINK)
        elsewhere = beyond_uplink or cls not in (LOCAL, TOPOLOGICAL)
        if elsewhere and consumer:
            return NO_ROUTE
        record = self._table.records.get(key(cls, name))
        if record is None:
            default = self._settings.default
            if not elsewhere and default.distribution == UNAVAILABLE:
                return NOT_FOUND
            if elsewhere:
                return AttachAccepted(self._elsewhere(key(cls, name), CLOSEST), to=None if consumer else text)
            record = self._table.create(key(cls, name), default.distribution, default.priority, default.overflow)
        return AttachAccepted(record, to=None if consumer else text)

    def _bind_mobile(
        self, text: str, name: str, tenant: str | None, consumer: bool, capabilities: Sequence[str], edge: bool
    ) -> AttachAccepted | AttachRefused:
        # brokers-and-edge.md WP-2, WP-5, WP-7.
        if tenant is not None:
            name = text = tenant + name
        setting = self._settings.lookup(name)
        phase: int | str = setting.egress_phase if consumer else setting.ingress_phase
        fallback = True
        if capabilities:
            waypoint = _waypoint(capabilities)
            if waypoint is not None:
                phase = waypoint - 1 if consumer else waypoint
            if FALLBACK_CAPABILITY in capabilities:
                fallback = False
                if consumer or edge:
                    phase = FALLBACK_PHASE
        if self._refusals and (refusal := self._refusals.get(key(MOBILE, name, phase))) is not None:
            return refusal
        if self._sources and (settled := self._sources.get(key(MOBILE, name, phase))) is not None:
            return AttachAccepted(source=settled) if consumer else ONLY_OUTGOING
        if setting.distribution == UNAVAILABLE and key(MOBILE, name, phase) not in self._table.records:
            return NOT_FOUND
        record = self._table.open_mobile(name, phase, setting)
        number = FALLBACK_PHASE_NUMBER if isinstance(phase, str) else phase
        return AttachAccepted(record, to=None if consumer else text, phase=number, fallback=fallback)


def _waypoint(capabilities: Sequence[str]) -> int | None:
    """Return the number of the first waypoint capability: 1 without suffix, otherwise the digit after one separator.

    brokers-and-edge.md WP-4; inter-router.md 3.3.
    """
    for capability in capabilities:
        if capability.startswith(WAYPOINT_CAPABILITY):
            suffix = capability[len(WAYPOINT_CAPABILITY) :]
            if not suffix:
                return 1
            if len(suffix) == 2 and suffix[1] in "123456789":
                return int(suffix[1])
    return None
