"""Links of inter-router connections, on both sides (inter-router.md 2.6 to 2.9, inter-router-protocol.md 3).

The side that opened the connection attaches a pair of control links and ten pairs of data links; the other side
answers. Priorities are not transmitted: each side numbers the data links of a direction in the order in which they are
attached. Further links carry streamed messages.
"""

from typing import TYPE_CHECKING, Final

from sluice.router.addressing.settings import PRIORITIES
from sluice.router.amqp.codec import decode, decode_one
from sluice.router.amqp.errors import NOT_ALLOWED
from sluice.router.amqp.session import Session
from sluice.router.control import messages as control
from sluice.router.links.consumer_link import ConsumerLink
from sluice.workers.links.attach import ROLE, SOURCE_FIELD, TARGET_FIELD
from sluice.workers.links.encoded import NULL
from sluice.workers.links.inter_router_link import CONTROL, DATA, InterRouterLink
from sluice.workers.links.record import IN, OUT
from sluice.workers.links.streams import StreamLinks
from sluice.workers.links.terminus import PeerTerminus

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler

# Time without a control link after which the router closes a connection that it opened.
WITHOUT_CONTROL_MS: Final = 1000
# Most data links of one direction that a peer may attach to one connection: those of the priorities, and streaming
# ones.
MAX_DATA_LINKS: Final = 1034
# Sessions that a neighbour of 1.19 may always begin, even if fewer remain than the priorities need.
SPARE_FEWEST: Final = 2
ROUND_TRIP_MS: Final = 5000  # period of round-trip measurements
# Sessions that a router of 1.19 needs when it opens a connection, plus two for large messages.
SESSIONS_OF_DISPATCH: Final = 14
COST: Final = "qd.inter-router-cost"
BUNDLE: Final = "sluice.bundle"
BUNDLE_CHECKS: Final = 2  # announced by a router that tracks settled deliveries (decision 0013)
VERSION: Final = "qd.annotations-version"
_INTS: Final = (0x54, 0x71)
_MAPS: Final = {0xC1: 3, 0xD1: 9}  # number of octets before the first key


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
                record = InterRouterLink(self, self.client.links.next_number(), capability, direction)
                record.attach(session)
                self._enter(record)

    def attach_stream(self, session: Session) -> "InterRouterLink":
        """Attach a link for streams. Raises RemoteError."""
        record = InterRouterLink(self, self.client.links.next_number(), DATA, OUT, stream=True)
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

    def _enter(self, record: "InterRouterLink") -> "InterRouterLink":
        self.client.links.by_number[record.number] = record
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
        record = InterRouterLink(self, self.client.links.next_number(), capability, direction)
        full = direction in self.control if capability == CONTROL else self._there[direction] >= MAX_DATA_LINKS
        record.answer(session, items, full=full)
        if not full:
            self._enter(record)
            record.up()
        return record

    def measure(self) -> None:
        """Store the round-trip time to the peer, now and periodically, as long as there is a control link to it."""
        record, transport, loop = self.control.get(OUT), self.client.transport, self.client.worker.loop
        if record is not None and transport is not None:
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
            if record.state == "in use" and self.client.initiate is not None:
                loop = self.client.worker.loop
                loop.call_at(loop.scheduler.now + WITHOUT_CONTROL_MS, self._renew, self.client.connection)
        elif record.capability == DATA and record.state != "refused":
            self._there[record.direction] -= 1
            if record.stream:
                self.streams.gone(record.link.session)

    def _renew(self) -> None:
        """Close the connection after the peer has detached a control link, if the router opened it; the connector
        opens another (inter-router-protocol.md 3.5)."""
        if not self.client.connection.ended and len(self.control) < 2:
            self.client.close(control.Close(self.client.number, NOT_ALLOWED, "the peer detached a control link"))

    @property
    def control_out(self) -> ConsumerLink | None:
        """Outgoing control link; None while there is none."""
        record = self.control.get(OUT)
        return None if record is None else record.consumer_link

    @property
    def is_ours(self) -> bool:
        """True if the peer is a Sluice router (inter-router-protocol.md 2.3)."""
        return BUNDLE in self.announced

    @property
    def checks(self) -> bool:
        """True if both routers track settled deliveries for each other."""
        return self.announced.get(BUNDLE, 0) >= BUNDLE_CHECKS


def _shown(error: control.ErrorText) -> str:
    condition, description = error
    return f"{condition} {description or ''}".rstrip()


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
