"""Links of inter-router connections, on both sides (inter-router.md 2.6 to 2.9, inter-router-protocol.md 3).

The side that opened the connection attaches a pair of control links and ten pairs of data links; the other side
answers. Priorities are not transmitted: each side numbers the data links of a direction in the order in which they are
attached. Further links carry streamed messages.
"""

import secrets
import string
from typing import TYPE_CHECKING, Any, Final, Literal

from router.amqp.codec import decode, decode_one, encode_described, encode_string, encode_symbol, encode_uint
from router.amqp.session import Session
from router.delivery.control_handler import ControlHandler
from router.delivery.router_handler import RouterHandler
from router.links.control_link import ControlIn, ControlOut
from router.links.data_link import RouterIn, RouterOut

from router.addressing.settings import PRIORITIES
from router.amqp.errors import NOT_ALLOWED, RESOURCE_LIMIT
from router.control import messages as control
from router.control.names import CONTROL_KEY
from workers.links.initiated_link import LINK_DETACH, described
from workers.links.record import (
    HANDLE,
    IN,
    INITIAL_COUNT,
    NAME,
    OUT,
    RECEIVER,
    ROLE,
    SENDER,
    SND_MODE,
    SOURCE_FIELD,
    TARGET_FIELD,
    LinkRecord,
)
from workers.links.streams import StreamLinks
from workers.links.terminus import (
    DURABLE,
    DYNAMIC,
    EXPIRY,
    NULL,
    SESSION_END,
    SOURCE,
    SOURCE_CAPABILITIES,
    TARGET,
    TARGET_CAPABILITIES,
    TIMEOUT,
    PeerTerminus,
)

if TYPE_CHECKING:
    from workers.connections.handler import ConnectionHandler

CONTROL: Final = "qd.router"
DATA: Final = "qd.router-data"
CONTROL_PRIORITY: Final = 9
# Time without a control link after which the router closes a connection that it opened.
WITHOUT_CONTROL_MS: Final = 1000
STREAM_PRIORITY: Final = 4  # priority shown for streaming links
# Most data links of one direction that a peer may attach to one connection: those of the priorities, and streaming
# ones.
MAX_DATA_LINKS: Final = 1034
SND_MIXED: Final = b"\x50\x02"
RCV_FIRST: Final = b"\x50\x00"
ZERO: Final = b"\x43"
FALSE: Final = b"\x42"
ULONG_ZERO: Final = b"\x44"
# Sessions that a neighbour of 1.19 may always begin, even if fewer remain than the priorities need.
SPARE_FEWEST: Final = 2
ROUND_TRIP_MS: Final = 5000  # period of round-trip measurements
# Sessions that a router of 1.19 needs when it opens a connection, plus two for large messages.
SESSIONS_OF_DISPATCH: Final = 14
COST: Final = "qd.inter-router-cost"
BUNDLE: Final = "sluice.bundle"
BUNDLE_CHECKS: Final = 2  # announced by a router that tracks settled deliveries (decision 0013)
VERSION: Final = "qd.annotations-version"
UNREADABLE: Final = ("an error", "that cannot be read")
_INTS: Final = (0x54, 0x71)
_MAPS: Final = {0xC1: 3, 0xD1: 9}  # number of octets before the first key
_NAME_CHARACTERS: Final = string.ascii_letters + string.digits + "+_"
_RANDOM_PART: Final = 15


class InterRouterLinks:
    """All links of one inter-router connection. Owner: its client."""

    __slots__ = ("_attached", "_there", "announced", "client", "control", "refuses", "streams")

    def __init__(self, client: "ConnectionHandler") -> None:
        self.client = client
        self.announced: dict[str, int] = {}  # integer properties of the peer's open
        self.streams = StreamLinks(self)
        self.control: dict[control.Direction, InterRouterLink] = {}  # by direction
        self._there = {IN: 0, OUT: 0}  # number of data links attached or being attached
        self._attached = {IN: 0, OUT: 0}  # number of data links attached so far; the next one's priority
        self.refuses = False  # a refused link was logged

    # -- links attached by this router --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Attach all links, after the peer has answered the open. Raises RemoteError. inter-router-protocol.md 3.1."""
        control_session, *data = self._sessions()
        sessions = [(control_session, CONTROL), *((session, DATA) for session in data)]
        # A peer that allows fewer sessions gets the remaining links on the last one.
        sessions += [(sessions[-1][0], DATA)] * (PRIORITIES - len(data))
        for session, capability in sessions:
            for direction in (IN, OUT):
                record = InterRouterLink(self.client, self._next(), capability, direction)
                record.attach(session)
                self._enter(record)

    def attach_stream(self, session: Session) -> "InterRouterLink":
        """Attach a link for streams. Raises RemoteError."""
        record = InterRouterLink(self.client, self._next(), DATA, OUT, stream=True)
        record.attach(session)
        return self._enter(record)

    def _sessions(self) -> list[Session]:
        connection = self.client.connection
        most = connection.channels_left()
        if BUNDLE not in self.announced:
            if most < SESSIONS_OF_DISPATCH:
                self.client.worker.send_log(
                    "warning",
                    "ROUTER",
                    f"[C{self.client.number}] This connection allows {most} sessions, but a router of Dispatch needs"
                    f" {SESSIONS_OF_DISPATCH}: raise maxSessions",
                )
            most = max(most - SPARE_FEWEST, 1)
        return [self.client.begin_session() for _ in range(min(1 + PRIORITIES, most))]

    def _next(self) -> int:
        number = self.client.next_link
        self.client.next_link += 1
        return number

    def _enter(self, record: "InterRouterLink") -> "InterRouterLink":
        self.client.links[record.number] = record
        if record.capability == CONTROL:
            self.control[record.direction] = record
        else:
            self._there[record.direction] += 1
        return record

    # -- links of the peer --------------------------------------------------------------------------------------------

    def accept(self, session: Session, items: list[bytes]) -> "InterRouterLink | None":
        """Accept the peer's attach of an inter-router link; None: it is a link of another kind. Raises RemoteError."""
        direction = OUT if decode_one(items[ROLE]) is True else IN
        field = SOURCE_FIELD if direction == OUT else TARGET_FIELD
        terminus = PeerTerminus(items[field] if len(items) > field else NULL)
        capability = terminus.capabilities[0] if terminus.capabilities and not terminus.array else ""
        if capability not in (CONTROL, DATA):
            return None
        if capability == DATA and self._there[direction] >= PRIORITIES and self.client.worker.slots.full:
            return None  # the connection works without another streaming link
        record = InterRouterLink(self.client, self._next(), capability, direction)
        full = direction in self.control if capability == CONTROL else self._there[direction] >= MAX_DATA_LINKS
        record.answer(session, items, full=full)
        if not full:
            self._enter(record)
            record.up()
        return record

    def measure(self) -> None:
        """Store the round-trip time to the peer, now and periodically, as long as there is a control link to it."""
        record, transport, loop = self.control.get(OUT), self.client.transport, self.client.worker.loop
        if record is not None and record.slot is not None and transport is not None:
            record.slot.set_round_trip(transport.round_trip())
            loop.call_at(loop.scheduler.now + ROUND_TRIP_MS, self.measure, self.client.connection)

    # -- all links ----------------------------------------------------------------------------------------------------

    def number(self, record: "InterRouterLink") -> int | None:
        """Return the priority of the data link just attached; None: a streaming link."""
        count = self._attached[record.direction]
        self._attached[record.direction] = count + 1
        return count if count < PRIORITIES else None

    def refused(self, record: "InterRouterLink") -> None:
        """Log the first link that the peer refuses."""
        if not self.refuses and record.error is not None:
            self.refuses = True
            self.client.worker.send_log(
                "warning",
                "ROUTER",
                f"[C{self.client.number}] The peer refuses inter-router links: {_shown(record.error)}"
                + (" (its end of the connection needs role inter-router, too)" if record.capability == CONTROL else ""),
            )

    def gone(self, record: "InterRouterLink") -> None:
        """Handle the end of a link."""
        if self.control.get(record.direction) is record:
            del self.control[record.direction]
            if record.reported and self.client.initiate is not None:
                loop = self.client.worker.loop
                loop.call_at(loop.scheduler.now + WITHOUT_CONTROL_MS, self._renew, self.client.connection)
        elif record.capability == DATA and record.entered:
            self._there[record.direction] -= 1
            if record.stream:
                self.streams.gone(record.link.session)

    def _renew(self) -> None:
        """Close the connection after the peer has detached a control link, if the router opened it; the connector
        opens another (inter-router-protocol.md 3.5)."""
        if not self.client.connection.ended and len(self.control) < 2:
            self.client.close(control.Close(self.client.number, NOT_ALLOWED, "the peer detached a control link"))

    @property
    def control_out(self) -> Any:
        """Outgoing control link; None while there is none."""
        record = self.control.get(OUT)
        return None if record is None else record.link


class InterRouterLink(LinkRecord):
    """Record of an inter-router link. Owner: its client."""

    __slots__ = ("capability", "direction", "entered", "error", "reported", "stream")

    def __init__(
        self,
        client: "ConnectionHandler",
        number: int,
        capability: str,
        direction: control.Direction,
        *,
        stream: bool = False,
    ) -> None:
        """Create the record. stream: the router attaches the link for streams."""
        self.client = client
        self.number = number
        self.capability = capability
        self.direction = direction
        self.outgoing = direction == OUT
        self.entered = True
        self.stream = stream
        self.reported = False  # reported to the supervisor
        self.error: control.ErrorText | None = None  # of the peer's detach
        self.items: list[bytes] = []
        self.address = None
        self.route = None
        self.gone = False
        self.identity = 0
        self.ends = None
        self.source = self.target = None
        capacity = client.profile.link_capacity
        if capability == CONTROL:
            self.link: Any = ControlOut(capacity=capacity) if self.outgoing else ControlIn(capacity=capacity)
        elif self.outgoing:
            self.link = RouterOut(capacity=capacity)
            if self._checks():
                self.link.enable_tracking()
        else:
            self.link = RouterIn(capacity=self._window(capacity))
            if not self._is_ours():
                # Dispatch 1.19 leaves the settlement to its producers, which leave it to their router
                self.link.settle_first()
        self.link.context = self

    def _checks(self) -> bool:
        """True if both routers track settled deliveries for each other."""
        router = self.client.router
        return router is not None and router.announced.get(BUNDLE, 0) >= BUNDLE_CHECKS

    def _window(self, capacity: int) -> int:
        """Return the most deliveries in flight on a link on which the peer sends. capacity: for a Dispatch router.

        inter-router-protocol.md 3.2.
        """
        return int(self.client.profile.bundle_capacity) if self._is_ours() else capacity

    def _is_ours(self) -> bool:
        """True if the peer is a Sluice router (inter-router-protocol.md 2.3)."""
        router = self.client.router
        return router is not None and BUNDLE in router.announced

    # -- attach -------------------------------------------------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """Send the attach."""
        name = "qdlink." + "".join(secrets.choice(_NAME_CHARACTERS) for _ in range(_RANDOM_PART))
        self.slot = self.client.worker.enter_link(session, self.link, name, None, incoming=not self.outgoing)
        source, target = node(SOURCE, self.capability), node(TARGET, self.capability)
        self.source, self.target = PeerTerminus(source), PeerTerminus(target)
        self._send(encode_string(name), SND_MIXED, RCV_FIRST, source, target)

    def answered(self, items: list[bytes]) -> None:
        """Handle the peer's attach. If its terminus is missing, a detach with the reason follows."""
        items = items + [NULL] * (INITIAL_COUNT + 1 - len(items))
        self._begin_count(items)
        if items[TARGET_FIELD if self.outgoing else SOURCE_FIELD] == NULL:
            self.link.decided()
        else:
            self.up()

    def answer(self, session: Session, items: list[bytes], *, full: bool) -> None:
        """Answer the peer's attach. full: there are too many links. Raises RemoteError."""
        items = items + [NULL] * (INITIAL_COUNT + 1 - len(items))
        self.source, self.target = PeerTerminus(items[SOURCE_FIELD]), PeerTerminus(items[TARGET_FIELD])
        name, handle = decode_one(items[NAME]), decode_one(items[HANDLE])
        self.slot = self.client.worker.enter_link(session, self.link, name, handle, incoming=not self.outgoing)
        source, target = mirrored(self.source), mirrored(self.target)
        if full:
            self.entered = False
            source, target = (NULL, target) if self.outgoing else (source, NULL)
        modes = [items[SND_MODE], items[SND_MODE + 1]]
        snd_mode = SND_MIXED if modes[0] == NULL else modes[0]
        self._send(items[NAME], snd_mode, RCV_FIRST if modes[1] == NULL else modes[1], source, target)
        if full:
            self.link.decided()
            self.link.close_with(RESOURCE_LIMIT, "too many inter-router links")
        else:
            self._begin_count(items)

    def _begin_count(self, items: list[bytes]) -> None:
        if not self.outgoing:
            count = decode_one(items[INITIAL_COUNT])
            valid = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= 0xFFFFFFFF
            self.link.begin_at(count if valid else 0)

    def _send(self, name: bytes, snd_mode: bytes, rcv_mode: bytes, source: bytes, target: bytes) -> None:
        role = SENDER if self.outgoing else RECEIVER
        head = [name, encode_uint(self.link.handle), role, snd_mode, rcv_mode, source, target]
        self.link.session.send_attach([*head, NULL, NULL, ZERO, ULONG_ZERO, NULL, NULL, NULL])

    # -- use ----------------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Take the link into use, after both sides have attached it."""
        links = self.client.router
        assert links is not None
        priority: int | None = CONTROL_PRIORITY
        kind: Literal["control", "data", "stream"] = "control"
        if self.capability == DATA:
            priority = None if self.stream else links.number(self)
            kind = "stream" if priority is None else "data"
        if not self.outgoing:
            self._route(self._make_route(streaming=priority is None))
        elif kind == "data":
            self.link.pool = links.streams.pool
        self.link.decided()
        if not self.outgoing:
            self.link.set_flowing(True)
        elif kind == "control":
            links.measure()
        self._announce(kind, STREAM_PRIORITY if priority is None else priority)
        self._remember_ends(None)
        self._forget_attach()

    def _make_route(self, *, streaming: bool) -> Any:
        worker = self.client.worker
        if self.capability == CONTROL:
            return ControlHandler(worker.table, CONTROL_KEY, self._too_long)
        return RouterHandler(worker.table, self.client.number, streaming=streaming, checks=self._checks())

    def _too_long(self) -> None:
        """Log that a control message was refused, which the network will miss."""
        client = self.client
        text = f"[C{client.number}] A control message of the peer was dropped: it is too large"
        client.worker.send_log("error", "ROUTER", text)

    def _announce(self, kind: Literal["control", "data", "stream"], priority: int) -> None:
        self.reported = True
        self.client.worker.control.send_event(
            control.RouterLink(
                conn=self.client.number,
                link=self.number,
                dir=self.direction,
                kind=kind,
                priority=priority,
                slot=self.slot.index,
                gen=self.slot.generation,
                name=self.link.name,
                text=f"source={self.source} target={self.target}",
            )
        )

    def attached(self, answer: control.Attached) -> None:
        """Store the identity that the supervisor has given the link."""
        self.identity = answer.identity

    # -- end ----------------------------------------------------------------------------------------------------------

    def detached(self) -> bool:
        """Handle the end of the link."""
        if self.link.initiated:
            self.link.close_on_detach()
        if self.link.detach_error is not None:
            self.error = described(self.link.detach_error) or UNREADABLE
        links = self.client.router
        assert links is not None
        links.gone(self)
        if not self.reported and not self.client.connection.ended:
            links.refused(self)
        return super().detached()


def _shown(error: control.ErrorText) -> str:
    condition, description = error
    return f"{condition} {description or ''}".rstrip()


def node(code: int, capability: str) -> bytes:
    """Encode a terminus of a link between routers, as the attaching router writes it."""
    last = SOURCE_CAPABILITIES if code == SOURCE else TARGET_CAPABILITIES
    items = [NULL, ZERO, encode_symbol(LINK_DETACH), ZERO, FALSE] + [NULL] * (last - DYNAMIC)
    items[last] = encode_symbol(capability)
    encoded: bytes = encode_described(code, items)
    return encoded


def mirrored(terminus: PeerTerminus) -> bytes:
    """Encode the peer's terminus for the answer. Without an address, its expiry policy is session-end."""
    if terminus.code not in (SOURCE, TARGET):
        return NULL
    last = SOURCE_CAPABILITIES if terminus.code == SOURCE else TARGET_CAPABILITIES
    items = terminus.items + [NULL] * (last + 1 - len(terminus.items))
    for index, default in ((DURABLE, ZERO), (TIMEOUT, ZERO), (DYNAMIC, FALSE)):
        if items[index] == NULL:
            items[index] = default
    if terminus.address is None:
        items[EXPIRY] = SESSION_END
    encoded: bytes = encode_described(terminus.code, items)
    return encoded


def announced(raw: bytes) -> dict[str, int]:
    """Return the router properties of the peer's encoded open, by key.

    Only values of type int count, and only up to a key that is not a symbol (inter-router.md 2.2).
    """
    found: dict[str, int] = {}
    at = _MAPS.get(raw[0]) if raw else None
    while at is not None and at < len(raw):
        if raw[at] not in (0xA3, 0xB3):  # sym8, sym32
            break
        name, at = decode(raw, at)
        code = raw[at]
        value, at = decode(raw, at)
        if code in _INTS and name in (COST, BUNDLE, VERSION):
            found.setdefault(str(name), value)
    return found
