"""Client in a random conversation: sessions with windows, links with credit, delivery-ids that wrap."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.component.engine.deliveries.model import DeliveryModel, Report
from tests.component.engine.host import InProcessPeer
from tests.peer.codec import decode
from tests.peer.frames import AMQP_HEADER, FRAME_HEADER, Frame, parse_frame, source, target
from tests.peer.talk import MANY, message, say
from tests.peer.types import Raw

SERIAL: Final = 1 << 32
FIRST: Final = 0  # rcv-settle-mode
PART: Final = 14_000  # octets of payload in a frame
LIST8: Final = 0xC0
DESCRIPTOR: Final = 3  # octets of a performative's descriptor
#: Data section with the number of a message.
MESSAGE: Final = re.compile(rb"\x00\x53\x75(?:\xa0.|\xb0.{4})(\d+);", re.DOTALL)
STATE_AT: Final = {"transfer": 7, "disposition": 4}


def frames_of(octets: bytes) -> Iterator[tuple[Frame, bytes | None]]:
    """Yield each frame with the encoded octets of its delivery state."""
    at = 0
    while at < len(octets):
        if octets.startswith(b"AMQP", at):
            at += FRAME_HEADER
            continue
        size = int.from_bytes(octets[at : at + 4], "big")
        frame = parse_frame(octets[at : at + size])
        state = None
        if frame.name in STATE_AT and frame.state is not None:
            state = field_octets(octets[at + FRAME_HEADER + DESCRIPTOR : at + size], STATE_AT[frame.name])
        yield frame, state
        at += size


def field_octets(octets: bytes, index: int) -> bytes:
    """Return the encoded field number `index` of a list."""
    at = 3 if octets[0] == LIST8 else 9
    for _ in range(index):
        at = decode(octets, at)[1]
    return octets[at : decode(octets, at)[1]]


def raw(state: bytes | None) -> Raw | None:
    return None if state is None else Raw(state)


class ClientLink:
    """Link of a client."""

    def __init__(self, session: "ClientSession", handle: int, name: str, sends: bool) -> None:
        self.session = session
        self.handle = handle
        self.name = name
        self.sends = sends
        self.mode = FIRST
        self.attached = False
        self.ended = False
        self.count = 0  # delivery-count
        self.limit = 0  # delivery-count at which the credit ends
        self.deliveries: list[DeliveryModel] = []
        self.incomplete: DeliveryModel | None = None  # delivery whose first frame has arrived and whose last has not
        self.incomplete_settled = False

    @property
    def credit(self) -> int:
        return self.limit - self.count

    def grant(self, credit: int) -> None:
        self.limit = self.count + credit
        self.session.flow(handle=self.handle, delivery_count=self.count, link_credit=credit)


class ClientSession:
    """Session of a client."""

    def __init__(self, client: "ModelledClient", channel: int, window: int, first_id: int) -> None:
        """first_id: delivery-id of the client's first delivery, and transfer-id of both ends' first transfer."""
        self.client = client
        self.channel = channel
        self.window = self.left = window
        self.next_incoming = 0
        self.next_outgoing = first_id
        self.remote_window = 0
        self.next_id = first_id
        self.sent: dict[int, DeliveryModel] = {}
        self.received: dict[int, DeliveryModel] = {}
        self.last_came = first_id - 1
        self.links: list[ClientLink] = []
        self.by_remote_handle: dict[int, ClientLink] = {}
        self.ended = False

    def put(self, performative: str, *, payload: bytes = b"", **fields: Any) -> None:
        self.client.out += say(performative, channel=self.channel, payload=payload, **fields)

    def flow(self, **fields: Any) -> None:
        self.left = self.window
        self.put(
            "flow", next_incoming_id=self.next_incoming, incoming_window=self.window,
            next_outgoing_id=self.next_outgoing, outgoing_window=MANY, **fields,
        )  # fmt: skip

    def attach(self, address: str, sends: bool, **fields: Any) -> ClientLink:
        handle = len(self.links)
        link = ClientLink(self, handle, f"{self.client.name}-{self.channel}-{handle}", sends)
        self.links.append(link)
        ends: dict[str, Any] = (
            {"source": source(), "target": target(address)}
            if sends
            else {"source": source(address), "target": target()}
        )
        if sends:
            fields = {**fields, "initial_delivery_count": 0}
        self.put("attach", name=link.name, handle=handle, role=not sends, **ends, **fields)
        return link

    def answer(self, frame: Frame) -> ClientLink:
        """Attach the other end of a link that the router attaches."""
        handle = len(self.links)
        link = ClientLink(self, handle, frame.fields["name"], bool(frame.role))
        self.links.append(link)
        fields: dict[str, Any] = {"initial_delivery_count": 0} if link.sends else {}
        self.put(
            "attach", name=link.name, handle=handle, role=not link.sends, source=frame.source, target=frame.target,
            **fields,
        )  # fmt: skip
        return link

    def send(self, link: ClientLink, delivery: DeliveryModel, size: int, state: bytes | None) -> None:
        """Send a delivery whose message contains its number, in as many frames as the octets need."""
        head = b"%d;" % delivery.number
        octets = message(head + b"x" * max(size - len(head), 0))
        parts = [octets[at : at + PART] for at in range(0, len(octets), PART)]
        for index, part in enumerate(parts):
            self.put(
                "transfer", payload=part, handle=link.handle, delivery_id=self.next_id, message_format=0,
                delivery_tag=b"%d" % delivery.number, more=index < len(parts) - 1 or None,
                settled=delivery.presettled or None, state=raw(state) if index == 0 else None,
            )  # fmt: skip
            self.next_outgoing = (self.next_outgoing + 1) % SERIAL
            self.remote_window -= 1
        link.count += 1
        link.deliveries.append(delivery)
        if not delivery.presettled:
            self.sent[self.next_id] = delivery
        self.next_id = (self.next_id + 1) % SERIAL

    def disposition(
        self, role: bool, first: int, count: int, state: bytes | None, settled: bool, batchable: bool
    ) -> None:
        """Send a disposition for deliveries `first` to `first + count - 1` and update the model."""
        last = (first + count - 1) % SERIAL
        self.put(
            "disposition", role=role, first=first, last=last if count > 1 else None, settled=settled or None,
            state=raw(state), batchable=batchable or None,
        )  # fmt: skip
        deliveries = self.received if role else self.sent
        found = range(count) if count <= len(deliveries) else ((number - first) % SERIAL for number in list(deliveries))
        for at in found:
            delivery = deliveries.get((first + at) % SERIAL) if at < count else None
            if delivery is not None and role:
                delivery.report_from_consumer(state, settled)
            elif delivery is not None:
                delivery.report_from_producer(state, settled)


class ModelledClient:
    """Connection whose frames the conversation's model follows."""

    def __init__(self, peer: InProcessPeer, name: str, deliveries: dict[int, DeliveryModel], *, routed: bool) -> None:
        """routed: the links belong to a link route; the other ends attach and detach them."""
        self.peer = peer
        self.name = name
        self.deliveries = deliveries
        self.out = bytearray(AMQP_HEADER + say("open", container_id=name))
        self.sessions: list[ClientSession] = []
        self.by_remote_channel: dict[int, ClientSession] = {}
        self.gone = False
        self.window = 2048  # incoming window of sessions that the router begins
        self.routed = routed
        self.answered: list[ClientLink] = []

    def begin(self, window: int, first_id: int = 0, **fields: Any) -> ClientSession:
        session = ClientSession(self, len(self.sessions), window, first_id)
        self.sessions.append(session)
        session.put("begin", next_outgoing_id=first_id, incoming_window=window, outgoing_window=MANY, **fields)
        return session

    def write(self) -> bool:
        """Deliver the queued octets to the router. Return True if there were any."""
        octets, self.out = bytes(self.out), bytearray()
        if octets and not self.gone:
            self.peer.feed(octets)
        return bool(octets)

    def read(self) -> bool:
        """Read the router's frames and reopen windows. Return True if there were any."""
        octets = self.peer.take()
        for frame, state in frames_of(octets):
            self.on_frame(frame, state)
        for session in self.sessions:
            if session.left <= session.window // 2 and not session.ended:
                session.flow()
        return bool(octets)

    def on_frame(self, frame: Frame, state: bytes | None) -> None:
        where = f"{self.name}: {frame}"
        if frame.name == "begin":
            if frame.remote_channel is None:
                session = self.begin(self.window, remote_channel=frame.channel)
            else:
                session = self.sessions[frame.remote_channel]
            session.next_incoming = frame.next_outgoing_id
            session.remote_window = frame.incoming_window
            self.by_remote_channel[frame.channel] = session
            return
        if frame.name in ("open", "heartbeat"):
            return
        assert frame.name != "close", where
        session = self.by_remote_channel[frame.channel]
        if session.ended:
            return
        if frame.name == "end":
            raise AssertionError(where)
        elif frame.name == "attach":
            self.on_attach(session, frame)
        elif frame.name == "detach":
            self.on_detach(session, frame)
        elif frame.name == "flow":
            self.on_flow(session, frame)
        elif frame.name == "transfer":
            self.on_transfer(session, frame, state)
        elif frame.name == "disposition":
            self.on_disposition(session, frame, (state, bool(frame.settled)))

    def on_attach(self, session: ClientSession, frame: Frame) -> None:
        link = next((each for each in session.links if each.name == frame.fields["name"]), None)
        if link is None:
            assert self.routed, f"{self.name}: {frame}"
            link = session.answer(frame)
            self.answered.append(link)
        link.attached = True
        session.by_remote_handle[frame.handle] = link

    def on_detach(self, session: ClientSession, frame: Frame) -> None:
        link = session.by_remote_handle.pop(frame.handle)
        if not link.ended:
            assert self.routed, f"{self.name}: {frame}"
            link.ended = True
            for delivery in link.deliveries:
                delivery.excluded = True
            session.put("detach", handle=link.handle, closed=True)

    def on_flow(self, session: ClientSession, frame: Frame) -> None:
        if frame.next_incoming_id is not None:
            session.remote_window = (frame.next_incoming_id + frame.incoming_window - session.next_outgoing) % SERIAL
        link = session.by_remote_handle.get(frame.handle) if frame.handle is not None else None
        if link is not None and link.sends:
            link.limit = frame.delivery_count + frame.link_credit
        if frame.echo:
            session.flow()

    def on_transfer(self, session: ClientSession, frame: Frame, state: bytes | None) -> None:
        session.next_incoming = (session.next_incoming + 1) % SERIAL
        session.left -= 1
        assert session.left >= 0, f"{self.name}: beyond the window"
        link = session.by_remote_handle[frame.handle]
        if link.incomplete is None:
            link.count += 1
            link.incomplete = delivery = self.deliveries[number_in(frame.payload)]
            link.incomplete_settled = False
            if link.ended:
                delivery.receive_after_detach()
            else:
                delivery.begin(state)
            session.received[frame.delivery_id] = delivery
            session.last_came = frame.delivery_id
            link.deliveries.append(delivery)
        link.incomplete_settled |= bool(frame.settled)
        if frame.aborted:
            assert link.incomplete.over, f"{link.incomplete.where} is aborted"
        elif not frame.more and not link.ended:
            link.incomplete.receive_last_frame(link.incomplete_settled)
        if not frame.more or frame.aborted:
            link.incomplete = None

    def on_disposition(self, session: ClientSession, frame: Frame, report: Report) -> None:
        last = frame.first if frame.last is None else frame.last
        deliveries = session.sent if frame.role else session.received
        count = (last - frame.first) % SERIAL + 1
        for at in range(count):
            number = (frame.first + at) % SERIAL
            where = f"{self.name}, channel {session.channel}, id {number}"
            delivery = deliveries.get(number)
            assert delivery is not None, f"{where}: {frame} is of no delivery"
            if report == (None, False) or delivery.excluded:
                continue
            if frame.role:
                delivery.report_to_producer(report, f"{where}, {delivery.where}")
            else:
                delivery.to_consumer.receive(report, f"{where}, {delivery.where}")


def number_in(payload: bytes) -> int:
    """Return the message number in the payload of a first frame."""
    found = MESSAGE.search(payload)
    assert found is not None
    return int(found[1])
