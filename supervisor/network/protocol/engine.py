"""Engine of the protocol between interior routers: messages and time in, messages and changes out. No input or output.

Use by one owner, in one thread:

    engine = Engine(router_id, instance, Timers(), now)
    … link_up / link_down / receive / announce / withdraw, as things happen
    if engine.deadline() <= now: engine.tick(now)          # after every batch of inputs, and at the deadline
    … take_sends(), take_changes(), take_log()             # after each of the above

`now` is a monotonic clock in seconds, which never goes back. Urgent work (a lost path) makes `deadline()` due at once,
so that inputs that arrive together are handled together. A link is the control link pair of one inter-router
connection. Its number must be unique while the link is up; data links of the connection share its state.
"""

from collections import deque
from typing import Final

from sluice.supervisor.network.protocol import annotations, messages
from sluice.supervisor.network.protocol.advertisements import Advertisements
from sluice.supervisor.network.protocol.annotations import ControlMessageError, Envelope
from sluice.supervisor.network.protocol.decoded_messages import DecodedMessages
from sluice.supervisor.network.protocol.flooding import Flooding
from sluice.supervisor.network.protocol.keys import Keys
from sluice.supervisor.network.protocol.link_state import LinkStates
from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.messages import Message
from sluice.supervisor.network.protocol.mobile import Mobile
from sluice.supervisor.network.protocol.neighbour_table import ControlLink, NeighbourTable
from sluice.supervisor.network.protocol.neighbours import Neighbours
from sluice.supervisor.network.protocol.nodes import RouterNodes
from sluice.supervisor.network.protocol.outbox import DEBUG, ERROR, INFO, WARNING, EngineOutbox
from sluice.supervisor.network.protocol.outputs import Change, EngineLogLine, EngineSend, PathChanged, RouterRow
from sluice.supervisor.network.protocol.requests import RequestQueue
from sluice.supervisor.network.protocol.sync import Sync
from sluice.supervisor.network.protocol.timers import ProtocolLimits, Timers

_LS: Final = "qdrouter"
_MOBILE: Final = "qdrouter.ma"
_HELLO: Final = "qdhello"
_RAISES: Final = 3  # limit of raised instances within _RAISES_IN seconds; more: another router has the same id
_RAISES_IN: Final = 60.0
_LAST_INSTANCE: Final = 2**62  # later instances are ignored


class Engine:
    """Protocol state machine of one router. Owner: the supervisor's core."""

    def __init__(
        self,
        router_id: str,
        instance: int,
        timers: Timers,
        now: float,
        limits: ProtocolLimits | None = None,
        process: int = 0,
    ) -> None:
        """Create the engine.

        instance: seconds since 1970 at the start of the process; must differ from that of the last start. process:
        random number that distinguishes Sluice routers of the same id and instance; 0: none.
        """
        limits = limits or ProtocolLimits()
        self._local = local = LocalRouter(router_id, instance, process, timers, limits, now)
        self._decoded = DecodedMessages()
        self._raised: deque[float] = deque(maxlen=_RAISES)  # times at which this router raised its instance
        self._outbox = outbox = EngineOutbox()
        # Each module gets earlier ones only.
        self._nodes = nodes = RouterNodes(local, outbox)
        self._table = table = NeighbourTable()
        self._flooding = flooding = Flooding(local, nodes, table, outbox)
        self._requests = requests = RequestQueue(local)
        self._advertisements = advertisements = Advertisements(local, nodes, flooding)
        self._mobile = mobile = Mobile(local, nodes, flooding, outbox, requests, advertisements)
        self._link_state = link_state = LinkStates(
            local, nodes, table, flooding, outbox, requests, advertisements, mobile
        )
        self._sync = Sync(local, nodes, table, flooding, outbox, requests, mobile, link_state)
        self._neighbours = Neighbours(local, nodes, table, outbox, self._sync)
        outbox.log(
            "ROUTER",
            INFO,
            f"Router Engine Instantiated: id={router_id} instance={instance} max_routers={limits.routers}",
        )

    @property
    def timers(self) -> Timers:
        return self._local.timers

    @timers.setter
    def timers(self, timers: Timers) -> None:
        """Replace the timers. Each value takes effect at its next use."""
        self._local.timers = timers

    # -- inputs

    def link_up(self, link: int, cost: int, ours: bool, now: float, only: str | None = None) -> None:
        """Report an attached outgoing control link of an inter-router connection, or a changed cost of a known link.

        ours: the peer is Sluice as well (several connections to it form a bundle, and it may know more than 128
        routers). only: the only id that the peer may have; None: any.
        """
        self._neighbours.link_up(link, cost, ours, now, only)

    def link_down(self, link: int, now: float) -> None:
        """Report a detached control link or lost connection. Unknown links are ignored."""
        self._neighbours.link_down(link, now)
        self._mobile.link_down(link)

    def receive(self, link: int, octets: bytes, now: float) -> None:
        """Handle a whole message of a control link, for this router or to be relayed (then in take_sends).

        Never raises for input of a peer: an invalid message is dropped and logged.
        """
        found = self._table.links.get(link)
        if found is None:
            return
        if len(octets) > self._local.limits.message_octets:
            sender = found.peer or f"connection {link}"
            text = f"Control message from {sender} dropped: it has {len(octets)} octets"
            text += f", and at most {self._local.limits.message_octets} are allowed"
            self._outbox.log("ROUTER", WARNING, text, "too large")
            return
        try:
            envelope = annotations.read(octets)
            address = envelope.to or messages.address(octets, envelope.tail_at)
            self._route(found, envelope, address, now)
            if self._table.unready:
                self._sync.check(now)
        except ControlMessageError as error:
            sender = found.peer or f"connection {link}"
            self._outbox.log("ROUTER", ERROR, f"Control message from {sender} dropped: {error}", "dropped")

    def announce(self, key: str, treatment: int, now: float) -> None:
        """Announce a destination for a key. The class is M, C, D, E, F or H; treatment is 0 to 4."""
        self._mobile.announce(key, treatment, now)

    def withdraw(self, key: str, now: float) -> None:
        """Withdraw an announced key. Other keys are ignored."""
        self._mobile.withdraw(key, now)

    def neighbour_ready(self, router_id: str, now: float) -> None:
        """Let other routers use paths by a neighbour, whose state is in force (NeighbourSynced)."""
        self._sync.ready(router_id, now)

    def drain(self, now: float) -> None:
        """Announce that paths through this router cost more, because it is about to exit."""
        self._link_state.drain(now)

    def deadline(self) -> float:
        """Return the time at which tick() is due, which may be in the past."""
        return min(
            self._neighbours.deadline(),
            self._link_state.deadline(),
            self._sync.deadline(),
            self._requests.due_at,
            self._mobile.send_at,
            self._advertisements.send_at,
        )

    def tick(self, now: float) -> None:
        """Do all work that is due. Without effect before deadline()."""
        neighbours, link_state, mobile = self._neighbours, self._link_state, self._mobile
        late = now - min(neighbours.hello_at, link_state.maintain_at)
        if late > self._local.timers.held_up:
            # After a time in which this process did not run, messages of that time may still arrive.
            neighbours.went_on(now)
            link_state.went_on(late, now)
        maintain = link_state.maintain_at <= now
        if maintain or neighbours.hello_at <= now:
            neighbours.expire(now)
        neighbours.release(now)
        if self._table.unready:
            self._sync.check(now)
        if neighbours.hello_at <= now:
            neighbours.send_hellos(now)
        if maintain:
            link_state.maintain(now)
            self._flooding.expire(now)
        if link_state.announce_at <= now:
            link_state.announce(now)
        if link_state.compute_at <= now:
            link_state.compute(now)
        if self._requests.due_at <= now:
            self._sync.send_requests(now)
        if mobile.send_at <= now:
            mobile.send(now)
        if self._advertisements.send_at <= now:
            self._advertisements.send(now)

    # -- outputs

    def take_sends(self) -> list[EngineSend]:
        """Return the messages to send since the last call, in order."""
        return self._outbox.take_sends()

    def take_changes(self) -> list[Change]:
        """Return the changes of the network since the last call, in order."""
        return self._outbox.take_changes()

    def take_log(self) -> list[EngineLogLine]:
        """Return the log lines since the last call."""
        return self._outbox.take_lines()

    def routers(self) -> list[RouterRow]:
        """Return this router, then all others by index."""
        own = RouterRow(
            index=0,
            id=self._local.id,
            protocol_version=messages.VERSION,
            instance=self._local.instance,
            link_state=tuple(self._table.announced),
            next_hop="(self)",
            reachable=True,
            links=(),
            cost=None,
            valid_origins=(),
            ls_seq=self._local.ls_seq,
            mobile_seq=self._local.mobile_seq,
            keys=self._mobile.count(),
            last_topology_change=self._advertisements.last_change,
        )
        return [own, *(self._row(index) for index in sorted(self._nodes.by_index))]

    def _row(self, index: int) -> RouterRow:
        node = self._nodes.by_index[index]
        path = node.path
        direct = path is not None and path.next_hop == index
        return RouterRow(
            index=index,
            id=node.id,
            protocol_version=node.version,
            instance=node.instance,
            link_state=tuple(peer for peer, _ in node.edges),
            next_hop=None if path is None or direct else self._nodes.by_index[path.next_hop].id,
            reachable=path is not None,
            links=path.links if path is not None and direct else (),
            cost=path.cost if path is not None else None,
            valid_origins=self._nodes.ids(path.valid_origins) if path is not None else (),
            ls_seq=node.ls_seq,
            mobile_seq=node.mobile_seq,
            keys=len(node.keys),
            last_topology_change=None,
        )

    def path(self, router_id: str) -> PathChanged | None:
        """Return the path to a router, or None if it is unreachable or unknown."""
        node = self._nodes.by_id.get(router_id)
        return node.path if node is not None else None

    def keys_of(self, router_id: str) -> Keys | None:
        """Return the keys of a router, or None if it is unknown."""
        node = self._nodes.by_id.get(router_id)
        return node.keys if node is not None else None

    def keys(self, index: int) -> Keys:
        """Return the keys of a known router with their treatments; index 0 is this router. Must not be modified.

        Raises KeyError.
        """
        return self._nodes.by_index[index].keys if index else self._mobile.own_keys()

    # -- input by destination

    def _route(self, link: ControlLink, envelope: Envelope, address: str | None, now: float) -> None:
        if address is None:
            raise ControlMessageError("no address present")
        scope, name = _scope(address, self._local.id)
        if link.doubted is not None and name != _HELLO:
            return
        if scope == "":
            self._outbox.log("ROUTER", DEBUG, f"Control message for {address} released: not an address of the protocol")
        elif scope == "local":
            self._take(link, address, name, envelope.tail(), now)
        elif scope == "all":
            tail = envelope.tail()
            if envelope.ingress_id() != self._local.id and self._flooding.first(envelope, tail, now):
                self._take(link, address, name, tail, now)
                self._flooding.relay_to_all(envelope, link.number)
        else:
            self._flooding.relay_to_router(envelope, name)

    def _take(self, link: ControlLink, address: str, name: str, tail: bytes, now: float) -> None:
        """Handle a message for this router, or for this router and others."""
        if name not in (_HELLO, _LS, _MOBILE):
            return
        message = self._decoded.decode(tail)
        if message is None:
            return
        if message.version > messages.VERSION:
            self._outbox.log_once(
                "ROUTER",
                WARNING,
                f"Messages of router {message.id} are ignored: protocol version {message.version} is unknown",
            )
        elif isinstance(message, messages.Hello):
            if name == _HELLO:
                self._hello(link, message, now)
        elif message.id == self._local.id:
            if isinstance(message, messages.LinkStateUpdate):
                self._raise_instance(message.instance, message.ls_seq, now)
        elif isinstance(message, messages.MobileRequest | messages.MobileChange | messages.MobileState):
            if name == _MOBILE:
                self._take_mobile(link, message, tail, now)
        elif name == _LS:
            self._take_link_state(link, address, message, tail, now)

    def _take_mobile(
        self,
        link: ControlLink,
        message: messages.MobileRequest | messages.MobileChange | messages.MobileState,
        tail: bytes,
        now: float,
    ) -> None:
        if isinstance(message, messages.MobileRequest):
            self._mobile.request(message)
        elif isinstance(message, messages.MobileChange):
            self._mobile.change(message, link.ours, now)
        else:
            self._mobile.state(message, link, tail, now)

    def _take_link_state(self, link: ControlLink, address: str, message: Message, tail: bytes, now: float) -> None:
        if isinstance(message, messages.Advertisement):
            self._link_state.advertisement(message, link.ours, now)
        elif isinstance(message, messages.LinkStateRequest):
            self._link_state.request(message, now)
        elif isinstance(message, messages.LinkStateUpdate):
            pushed = link.ours and address == messages.TO_NEIGHBOUR_LS
            self._link_state.update(message, link, tail, pushed, now)
        elif isinstance(message, messages.Summary) and link.ours:
            instance, ls_seq, _ = message.routers.get(self._local.id, (0, 0, 0))
            self._raise_instance(instance, ls_seq, now)
            self._sync.answer(message, link, now)

    def _hello(self, link: ControlLink, message: messages.Hello, now: float) -> None:
        node = None
        if len(message.id) > self._local.limits.id_octets:
            self._nodes.too_long()  # a HELLO of this router would contain the id
            return
        if message.id != self._local.id and self._local.id in message.seen:
            node = self._nodes.create(message.id, now)
            if node is None:
                return
        if self._neighbours.hello(link.number, message, now) and node is not None:
            if link.ours and node.instance is not None and message.instance < node.instance:
                # Its clock was set back: others would take its messages for old ones.
                self._flooding.to_link(link.number, self._link_state.encode(node, node.instance, now))
            self._link_state.check_instance(node, message.instance, message.version, now)

    def _raise_instance(self, instance: int, ls_seq: int, now: float) -> None:
        """Continue with a later instance if the network has a later state of this router.

        Other routers ignore messages of an earlier instance.
        """
        local = self._local
        # A sequence that this process has not reached belongs to another router with the same id and instance.
        if not (local.instance, self._local.ls_seq) < (instance, ls_seq) or instance >= _LAST_INSTANCE:
            return
        raised = self._raised
        if len(raised) == _RAISES and now - raised[0] < _RAISES_IN:
            self._neighbours.log_duplicate()
            return
        raised.append(now)
        known = f"Other routers know instance {instance} of this router"
        if instance > local.instance:
            known += f", later than its own, {local.instance} (was the clock set back?)"
        else:
            known += f" with sequence {ls_seq}, later than its own (does another router have its id?)"
        self._outbox.log("ROUTER_LS", WARNING, f"{known}, so it continues as instance {instance + 1}")
        local.instance = instance + 1
        self._neighbours.instance_raised(now)
        self._link_state.instance_raised(now)
        self._advertisements.instance_raised(now)


def _scope(address: str, own_id: str) -> tuple[str, str]:
    """Return the destination of an address: ("local" or "all", name at the destination) or ("router", id).

    The first value is "" for an address that is not of the protocol. inter-router.md 3.1.
    """
    text = address
    at = text.find(":/")
    if at >= 0:
        text = text[at + 2 :]
        if text.startswith("/"):
            text = text[1:].partition("/")[2]
    elif text.startswith("//"):
        text = text[2:].partition("/")[2]
    elif text.startswith("/"):
        text = text[1:]
    if text.endswith((".", "/")):
        text = text[:-1]
    kind, _, rest = text.partition("/")
    if kind == "_local":
        return "local", rest
    if kind != "_topo":
        return "", ""
    area, _, rest = rest.partition("/")
    router, _, name = rest.partition("/")
    if router == "all":
        return "all", name
    if area not in ("0", "all"):
        return "", ""
    return ("local", name) if router == own_id else ("router", router)
