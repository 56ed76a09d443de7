"""Composition of the router from its subsystems, each wired by its constructor, in the order in which they are called.

To add a subsystem, create it here and put it into the list. docs/internals/supervisor.md gives the reasons for the
order.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from sluice.router.addressing.address import EDGE_MODE, INTERIOR_MODE, MOBILE, key
from sluice.router.addressing.address import LOCAL as LOCAL_CLASS
from sluice.router.cgroup import read_limits
from sluice.router.config.entities import Configuration
from sluice.router.log import ProcessLog
from sluice.router.policy.management import SERVED_KEYS
from sluice.supervisor.addresses.counter_slots import CounterSlots
from sluice.supervisor.addresses.exchanges import Exchanges
from sluice.supervisor.addresses.inprocess import InProcessAddresses
from sluice.supervisor.addresses.lookup import RecordFinder
from sluice.supervisor.addresses.settings import Settings
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.addresses.taps import Taps
from sluice.supervisor.addresses.testhooks import add_test_hooks
from sluice.supervisor.audit.audit import Audit
from sluice.supervisor.auth.authentication import Authentication
from sluice.supervisor.auth.providers import asks_supervisor
from sluice.supervisor.configuration.ops import address_entries
from sluice.supervisor.connections.admission import Admission
from sluice.supervisor.connections.containers import Containers
from sluice.supervisor.connections.opens import OpenDecider
from sluice.supervisor.connections.registry import Connections
from sluice.supervisor.connections.watches import Watches
from sluice.supervisor.connectors.connectors import Connectors
from sluice.supervisor.core import Core
from sluice.supervisor.edge.absence import UplinkAbsence
from sluice.supervisor.edge.announced import AnnouncedAddresses
from sluice.supervisor.edge.attachments import Attachments
from sluice.supervisor.edge.interior import Edges
from sluice.supervisor.edge.peers import EdgePeers
from sluice.supervisor.edge.router_links import RouterLinks
from sluice.supervisor.edge.uplink import Uplink
from sluice.supervisor.history.history import FigureHistory
from sluice.supervisor.history.neighbourhood import Neighbourhood
from sluice.supervisor.history.processor_limit import ProcessorLimit
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.journal.replicas import Replicas
from sluice.supervisor.linkroutes.local import LocalLinkRoutes
from sluice.supervisor.linkroutes.pairs import LinkPairs
from sluice.supervisor.linkroutes.targets import LinkTargets
from sluice.supervisor.links.accepted import AcceptedLinks
from sluice.supervisor.links.attach import AttachDecider
from sluice.supervisor.links.attach_requests import AttachRequests
from sluice.supervisor.links.auto import AutoLinks
from sluice.supervisor.links.handler import LinkHandler
from sluice.supervisor.links.initiated import InitiatedLinks
from sluice.supervisor.links.links import Links
from sluice.supervisor.listeners.accept_rate import AcceptRateLimiter
from sluice.supervisor.listeners.acceptor import Acceptor
from sluice.supervisor.listeners.inherited_sockets import InheritedSockets
from sluice.supervisor.listeners.listener import Listener
from sluice.supervisor.listeners.open_listeners import OpenListeners
from sluice.supervisor.listeners.placement import Placements
from sluice.supervisor.listeners.profiles import ListenerProfiles
from sluice.supervisor.listeners.runtime_listeners import RuntimeListeners
from sluice.supervisor.network.absence import AbsentRouters
from sluice.supervisor.network.neighbour_connections import NeighbourConnections
from sluice.supervisor.policy.policy import Policy
from sluice.supervisor.runtime.host_names import Resolver
from sluice.supervisor.subsystem import Events
from sluice.supervisor.telemetry.logging import Logging
from sluice.supervisor.tls.profiles import TlsProfiles
from sluice.supervisor.tls.retirement import Retirement
from sluice.supervisor.tls.watch import CredentialWatch
from sluice.supervisor.tracing.delivery_traces import DeliveryTraces
from sluice.supervisor.web.lazy import HttpListeners, LazyHttp

if TYPE_CHECKING:
    from sluice.supervisor.network.adapter import Routers

MANAGEMENT: Final = "$management"
# Class and name of the addresses that the router itself serves.
IN_PROCESS: Final = ((MOBILE, MANAGEMENT), (LOCAL_CLASS, MANAGEMENT))


class RouterCore(Core):
    """Core with all subsystems of a router that need no event loop. Owner: supervisor.

    The attributes are for management, metrics and tests; the core itself does not use them.
    """

    def __init__(
        self,
        configuration: Configuration,
        log: ProcessLog,
        addresses: int,
        reset_address: Callable[[int], None],
        *,
        admission: Admission | None = None,
        test_hooks: bool = False,
        program: str = "sluice",
        inherited: InheritedSockets | None = None,
    ) -> None:
        """Create all subsystems.

        addresses: number of counter slots in shared memory. reset_address: zero a slot before its id is used again.
        admission: policy for opens; None: the policy subsystem. test_hooks: option -T. inherited:
        sockets that the service manager has opened.
        """
        journal, events = Journal(), Events()
        super().__init__(journal, events)
        self.counter_slots = slots = CounterSlots(journal, addresses, reset_address)
        self.table = table = AddressTable(journal, slots)
        router = configuration.router
        self.program: Final = program
        self.inherited_sockets: Final = inherited or InheritedSockets({}, log)
        # Links and configured objects share one range of identities; the configured objects have the first ones.
        identities = itertools.count(1 + _configured(configuration))
        self.take_identity: Callable[[], int] = identities.__next__  # each identity is used once

        # Addresses
        entries, refused = address_entries(configuration.addresses)
        for text in refused:
            log.error("ERROR", text)
        self.settings = Settings(table, journal, entries, router.default_distribution)
        current = self.settings.current
        self.exchanges = Exchanges(
            router.id, router.mode, current, table, slots, journal, lambda text: log.error("ROUTER_CORE", text)
        )
        self.taps = Taps(
            router.id, router.mode, self.settings, table, slots, journal, lambda text: log.error("ROUTER_CORE", text)
        )
        lookup = RecordFinder(router.id, router.mode, current, table)
        self.in_process = InProcessAddresses(table, journal, self.workers, lookup.find, log, self.waker.wake)

        # Connections
        self.logging = Logging(journal, self.waker, log)
        self.profiles = ListenerProfiles(
            journal, configuration.listeners, lambda listener: asks_supervisor(listener, router)
        )
        self.audit = Audit(configuration, self.waker, log)
        trail = self.audit.trail
        self.policy = Policy(configuration, self.workers, trail, log)
        self.tls = TlsProfiles(journal, self.waker, log)
        self.placements = Placements()
        opens = OpenDecider(self.tls, self.policy if admission is None else admission, trail, log)
        self.connections = Connections(self.workers, journal, self.profiles, opens, events, trail, log)
        self.policy.join(self.connections)
        self.authentication = Authentication(
            configuration, self.connections, self.in_process, self.policy, self.waker, trail, log, program
        )
        self.watches = Watches(self.connections.send)
        self.delivery_traces = DeliveryTraces(journal, self.waker)
        self.containers = Containers()

        # Links
        self.links = Links(table, log)
        self.initiated_links = InitiatedLinks(self.take_identity, self.connections.send)
        self.auto_links = AutoLinks(self.containers, self.initiated_links, self.settings, table, self.waker, log)
        self.link_routes = LocalLinkRoutes(self.containers, self.waker, log)

        # Other routers
        self.absent_routers = AbsentRouters(
            router.router_absence_seconds if router.mode == INTERIOR_MODE else 0, journal, self.waker, log
        )
        self.neighbours = NeighbourConnections(
            journal, self.in_process, self.links, self.absent_routers, self.take_identity
        )
        self.routers: Routers | None = None  # only at an interior router
        if router.mode == INTERIOR_MODE:
            # Imported on demand: the engine takes long to load, and only interior routers need it.
            from sluice.supervisor.network import adapter

            self.routers = adapter.Routers(
                router, table, journal, self.settings, self.neighbours, self.absent_routers, log
            )
            self.neighbours.join(self.routers)
            self.link_routes.watch_local(self.routers.link_address_changed)

        # Attaches
        router_of = self.neighbours.router_of
        targets = LinkTargets(router.id, self.link_routes, self.routers, router_of)
        self.edges: Edges | None = None  # only at an interior router
        self.uplink: Uplink | None = None  # only at an edge router
        self.peers: EdgePeers | None = None  # only at an edge router
        if router.mode == INTERIOR_MODE:
            self.edges = Edges(table, journal, self.in_process, targets, log, router.id, self.routers)
        elif router.mode == EDGE_MODE:
            attachments = Attachments(
                router, table, journal, AnnouncedAddresses(table, self.settings),
                RouterLinks(self.initiated_links, self.in_process), self.link_routes, self.waker,
                UplinkAbsence(router.router_absence_seconds, table, journal, self.waker, log),
            )  # fmt: skip
            self.uplink = Uplink(router, attachments, journal, log)
            self.peers = EdgePeers(
                router.id, table, self.settings, self.initiated_links, self.connections.close_link, self.waker, log,
            )  # fmt: skip
        attaching = AttachDecider(
            router.id, router.mode, current, table, targets, resumable=router.resumable_routed_links
        )
        pairs = LinkPairs(self.workers, self.take_identity, self.links.add, router_of)
        accepted = AcceptedLinks(table, journal, self.absent_routers, self.edges, self.uplink)
        requests = AttachRequests(
            attaching, self.policy, self.neighbours, self.links, accepted, pairs, self.take_identity,
            None if self.uplink is None else self.uplink.lookups,
        )  # fmt: skip

        limit = ProcessorLimit(read_limits().cores, log)
        self.history = FigureHistory(self.waker, Neighbourhood(self.routers, self.uplink), limit, log)

        events.add(
            # Log settings and profiles come first in a snapshot.
            self.logging,
            self.tls,  # before the profiles, which refer to credentials
            self.profiles,
            # Connections come before subsystems that depend on them: if a worker is lost, they are closed first.
            self.watches,
            self.delivery_traces,
            self.placements,
            self.connections,
            Retirement(self.tls, self.connections, self.workers, self.waker, log),
            self.authentication,
            self.policy,  # before users of connections, because it may refuse a connection
            self.audit,  # after the subsystems that report why a connection ends or is refused
            # Addresses depend on settings, routers and next hops.
            self.settings,
            *([] if self.routers is None else [self.routers]),
            self.neighbours,  # after the routers, because next hops contain their indexes
            slots,
            self.taps,  # before the addresses, which refer to taps
            table,
            self.exchanges,  # after the addresses they refer to
            Replicas(self.workers, journal, log),  # after connections; before the consumers that workers have
            self.links,
            accepted,
            requests,
            LinkHandler(journal, self.links, self.initiated_links, requests, accepted, events, log, self.edges),
            pairs,
            self.initiated_links,
            self.containers,  # before link routes and auto links, which search for containers
            self.link_routes,
            self.auto_links,
            attaching,
            # After the subsystems that use addresses, and before the handling of messages.
            *([] if self.edges is None else [self.edges]),
            *([] if self.uplink is None else [self.uplink]),
            *([] if self.peers is None else [self.peers]),
            self.in_process,  # after neighbours, whose control messages have priority
            self.history,
        )  # fmt: skip
        events.check_complete()

        for cls, name in IN_PROCESS:
            self.in_process.open(key(cls, name))
        if test_hooks:
            add_test_hooks(self.in_process, attaching)
        self.exchanges.use(configuration)
        self.taps.use(configuration.taps)
        self.link_routes.replace(configuration.link_routes)

    @property
    def addresses(self) -> int:
        """Number of addresses, including those of link routes."""
        link_routes = {address.key for address in self.link_routes.addresses()}
        if self.routers is not None:
            link_routes.update(address.key for address in self.routers.link_routes)
        return len(self.table.records) - len(SERVED_KEYS.keys() & self.table.records.keys()) + len(link_routes)


class Services(NamedTuple):
    """Subsystems of a router that open sockets."""

    acceptor: Acceptor
    connectors: Connectors
    http: LazyHttp
    listening: RuntimeListeners


def add_services(
    core: RouterCore,
    loop: asyncio.AbstractEventLoop,
    names: Resolver,
    configuration: Configuration,
    make_http: Callable[[Acceptor], HttpListeners],
    announce: Callable[[Listener], None],
    heard: Callable[[], bool],
    log: ProcessLog,
) -> Services:
    """Add the subsystems that need an event loop to a core.

    names: resolver of host names. make_http: create the HTTP service. announce: called when a listener accepts
    connections. heard: True if a worker has lately read from an established client.
    """
    core.policy.connect(loop)
    limit = configuration.policy.max_connections
    acceptor = Acceptor(
        loop, core.workers, core.connections, core.neighbours, AcceptRateLimiter(heard), log, limit, core.placements
    )
    connectors = Connectors(loop, core.connections, core.profiles, core.journal, acceptor, core.waker, log)
    http = LazyHttp(loop, lambda: make_http(acceptor), log)
    listeners = OpenListeners(acceptor, http, core.profiles, core.journal, announce, log)
    listening = RuntimeListeners(loop, names, listeners, core.waker, log, core.inherited_sockets)
    core.events.add(
        CredentialWatch(loop, core.tls, log),
        connectors,
        acceptor,
        http,
        listening,  # last, because the listeners it opens are visible from outside
    )
    return Services(acceptor, connectors, http, listening)


def _configured(configuration: Configuration) -> int:
    """Return the number of configured objects that have an identity."""
    return sum(
        len(entities)
        for entities in (
            configuration.addresses,
            configuration.link_routes,
            configuration.auto_links,
            configuration.exchanges,
            configuration.bindings,
            configuration.taps,
        )
    )
