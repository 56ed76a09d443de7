"""Links of the scripted peer, their deliveries and outcomes. Nothing is sent that the test did not request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.peer import frames
from tests.peer.frames import Frame
from tests.peer.types import Described
from tests.peer.wire import TIMEOUT, PeerError

if TYPE_CHECKING:
    from tests.peer.peer import PeerSession

#: Modulus of AMQP's serial numbers.
MODULUS = 1 << 32


class PeerDelivery:
    """Delivery at a receiver, complete or not."""

    def __init__(self, link: PeerReceiver, first: Frame) -> None:
        self.link = link
        self.id: int = first.delivery_id
        self.tag: bytes = first.delivery_tag
        self.format = first.message_format
        self.payload = b""
        self.settled = False
        self.aborted = False
        self.complete = False
        self.state: Described | None = None
        self.transfers: list[Frame] = []

    def add(self, frame: Frame) -> None:
        """Add a transfer frame."""
        self.transfers.append(frame)
        self.payload += frame.payload
        self.settled = self.settled or bool(frame.settled)
        self.aborted = bool(frame.aborted)
        self.complete = not frame.more or self.aborted
        self.state = frame.state if frame.state is not None else self.state

    def settle(self, state: Described | None = frames.ACCEPTED, settled: bool = True) -> None:
        """Send a disposition for this delivery alone."""
        self.link.session.disposition(self.id, state=state, settled=settled)

    def __repr__(self) -> str:
        return f"<delivery {self.id} {len(self.payload)} octets settled={self.settled} aborted={self.aborted}>"


class PeerLink:
    """Base class of senders and receivers. `remote` is the router's attach, `remote_handle` its handle."""

    def __init__(self, session: PeerSession, name: str, handle: int) -> None:
        self.session = session
        self.peer = session.peer
        self.name = name
        self.handle = handle
        self.remote: Frame | None = None
        self.remote_handle: int | None = None
        self.detached: Frame | None = None

    @property
    def source(self) -> dict[str, Any]:
        """Source of the router's attach, by field name."""
        return frames.terminus(self._attach.source)

    @property
    def target(self) -> dict[str, Any]:
        """Target of the router's attach, by field name."""
        return frames.terminus(self._attach.target)

    @property
    def _attach(self) -> Frame:
        if self.remote is None:
            raise PeerError(f"link {self.name} has not been attached by the router")
        return self.remote

    def wait_attached(self, timeout: float = TIMEOUT) -> Frame:
        """Wait for the router's attach."""
        frame: Frame = self.peer.until(lambda: self.remote, f"attach of {self.name}", timeout)
        return frame

    def wait_detached(self, timeout: float = TIMEOUT) -> tuple[str, str | None] | None:
        """Wait for the router's detach. Return its (condition, description), None without an error."""
        frame: Frame = self.peer.until(lambda: self.detached, f"detach of {self.name}", timeout)
        return frames.error_of(frame.error)

    def send_detach(self, closed: bool = True, error: Described | None = None) -> None:
        """Send a detach."""
        self.session.frame("detach", handle=self.handle, closed=closed or None, error=error)

    def detach(self, closed: bool = True) -> Frame:
        """Send a detach and wait for the answer."""
        self.send_detach(closed)
        self.wait_detached()
        assert self.detached is not None
        return self.detached

    def on_flow(self, frame: Frame) -> None:
        """Handle a flow for this link."""


class PeerOutcome:
    """Dispositions for one sent delivery: `steps` in order, the last state, and the settlement."""

    def __init__(self) -> None:
        self.steps: list[tuple[Described | None, bool]] = []

    @property
    def state(self) -> Described | None:
        """Last state received."""
        states = [state for state, _settled in self.steps if state is not None]
        return states[-1] if states else None

    @property
    def settled(self) -> bool:
        """True if the router has settled."""
        return any(settled for _state, settled in self.steps)

    @property
    def name(self) -> str | None:
        """`accepted`, `released`, ...; None without a state."""
        return frames.state_name(self.state)

    @property
    def error(self) -> tuple[str, str | None] | None:
        """(condition, description) of a rejected state."""
        if self.state is None or self.state.descriptor != 0x25 or not self.state.value:
            return None
        return frames.error_of(self.state.value[0])

    def __repr__(self) -> str:
        return f"Outcome({self.steps})"


class PeerSender(PeerLink):
    """Link on which the test sends."""

    def __init__(self, session: PeerSession, name: str, handle: int, delivery_count: int = 0) -> None:
        super().__init__(session, name, handle)
        self.delivery_count = delivery_count
        #: Delivery-count at which the credit of the router's last flow ends.
        self.limit = delivery_count
        self.draining = False
        self.flows: list[Frame] = []
        self._open_delivery: int | None = None

    @property
    def credit(self) -> int:
        """Number of deliveries that may be sent now."""
        left = (self.limit - self.delivery_count) % MODULUS
        return left if left < MODULUS // 2 else left - MODULUS

    def on_flow(self, frame: Frame) -> None:
        self.flows.append(frame)
        base = frame.delivery_count if frame.delivery_count is not None else 0
        self.limit = (base + (frame.link_credit or 0)) % MODULUS
        self.draining = bool(frame.drain)

    def wait_credit(self, at_least: int = 1, timeout: float = TIMEOUT) -> int:
        """Wait until the router has granted at least `at_least` credits."""
        self.peer.until(lambda: self.credit >= at_least, f"{at_least} credits on {self.name}", timeout)
        return self.credit

    def send(
        self, payload: bytes, settled: bool | None = None, more: bool = False, tag: bytes | None = None, **fields: Any
    ) -> int:
        """Send a delivery, or, while the one before has `more`, its continuation. Return the delivery-id.

        The payload is cut to the router's max-frame-size, and each frame waits for the session window. Credit is not
        checked.
        """
        session = self.session
        if self._open_delivery is None:
            delivery = session.take_delivery_id()
            self.delivery_count = (self.delivery_count + 1) % MODULUS
            first: dict[str, Any] = {
                "delivery_id": delivery,
                "delivery_tag": delivery.to_bytes(4, "big") if tag is None else tag,
                "message_format": fields.pop("message_format", 0),
            }
        else:
            delivery, first = self._open_delivery, {}
        room = self.peer.payload_room
        pieces = [payload[at : at + room] for at in range(0, len(payload), room)] or [b""]
        for number, piece in enumerate(pieces):
            last = number == len(pieces) - 1
            given = {"handle": self.handle, **first, "settled": settled, "more": True if more or not last else None}
            if last:
                given.update(fields)
            session.wait_window(look=len(pieces) > 1)
            self.peer.raw(session.transfer_octets(piece, **given))
            first = {}
        self._open_delivery = delivery if more else None
        return delivery

    def send_some(self, payload: bytes, timeout: float, **fields: Any) -> bool:
        """Send as far as window and socket allow within `timeout` seconds. Return False if they did not take all of
        it.

        After False the connection can only be dropped: a frame may be half written.
        """
        peer, session = self.peer, self.session
        first: dict[str, Any] = {}
        if self._open_delivery is None:
            first = {"delivery_id": session.take_delivery_id(), "delivery_tag": b"some"}
            self.delivery_count = (self.delivery_count + 1) % MODULUS
        room = peer.payload_room
        deadline = time.monotonic() + timeout
        for at in range(0, len(payload), room):
            peer.read_available()
            while session.remote_window <= 0:
                if time.monotonic() > deadline:
                    return False
                peer.idle_until(min(deadline, time.monotonic() + 0.05))
            more = at + room < len(payload) or fields.get("more")
            octets = session.transfer_octets(
                payload[at : at + room], **{"handle": self.handle, **first, **fields, "more": more or None}
            )
            first = {}
            if peer.raw_some(octets, max(0.01, deadline - time.monotonic())) < len(octets):
                return False
        self._open_delivery = 0 if fields.get("more") else None
        return True

    def abort(self) -> None:
        """Abort the unfinished delivery."""
        self.peer.raw(self.session.transfer_octets(b"", handle=self.handle, aborted=True))
        self._open_delivery = None

    def outcome(self, delivery: int, settled: bool = True, timeout: float = TIMEOUT) -> PeerOutcome:
        """Wait until the delivery has been settled or, with settled=False, has any disposition."""
        outcomes = self.session.outcomes

        def come() -> bool:
            return delivery in outcomes and (outcomes[delivery].settled or not settled)

        self.peer.until(come, f"outcome of delivery {delivery} on {self.name}", timeout)
        return outcomes[delivery]

    def request(self, payload: bytes, **fields: Any) -> PeerOutcome:
        """Send unsettled and wait for the settled outcome."""
        return self.outcome(self.send(payload, **fields))

    def settle(self, delivery: int, state: Described | None = None, settled: bool = True) -> None:
        """Send a disposition as sender."""
        self.session.disposition(delivery, state=state, settled=settled, role=False)


class PeerReceiver(PeerLink):
    """Link on which the test receives. `deliveries` holds all deliveries, `taken` counts those returned by `next`."""

    def __init__(self, session: PeerSession, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.deliveries: list[PeerDelivery] = []
        self.taken = 0
        self.flows: list[Frame] = []
        #: Delivery-count at this receiver.
        self.delivery_count = 0

    @property
    def address(self) -> str:
        """Address of the source; for a dynamic one, the router's generated address."""
        return str(self.source["address"])

    def on_flow(self, frame: Frame) -> None:
        self.flows.append(frame)

    def on_transfer(self, frame: Frame) -> None:
        """Handle a transfer for this link."""
        if self.deliveries and not self.deliveries[-1].complete:
            self.deliveries[-1].add(frame)
        else:
            delivery = PeerDelivery(self, frame)
            delivery.add(frame)
            self.deliveries.append(delivery)
            self.delivery_count = (self.delivery_count + 1) % MODULUS

    def flow(self, credit: int, drain: bool = False, echo: bool = False, delivery_count: int | None = None) -> None:
        """Grant credit, counted from the delivery-count seen so far."""
        count = self.delivery_count if delivery_count is None else delivery_count
        self.session.flow(
            handle=self.handle, delivery_count=count, link_credit=credit, drain=drain or None, echo=echo or None
        )

    def next(self, timeout: float = TIMEOUT, complete: bool = True) -> PeerDelivery:
        """Return the next delivery; with complete=False as soon as its first transfer has arrived."""

        def come() -> bool:
            return len(self.deliveries) > self.taken and (self.deliveries[self.taken].complete or not complete)

        self.peer.until(come, f"a delivery on {self.name} (got {self.taken})", timeout)
        self.taken += 1
        return self.deliveries[self.taken - 1]

    def receive(self, count: int, timeout: float = TIMEOUT) -> list[PeerDelivery]:
        """Return the next `count` deliveries."""
        deadline = time.monotonic() + timeout
        return [self.next(max(0.0, deadline - time.monotonic())) for _ in range(count)]
