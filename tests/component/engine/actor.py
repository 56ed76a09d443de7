"""AMQP actors, clients or a broker, that obey flow control against an in-process router.

An actor sends only within the session window and the link credit that it has received. All its frames leave in one
order, as from a client with one output queue: a flow that grants credit stands behind the transfers written before it.
Nothing moves by itself:

    actor.act()           queue the frames that may be written
    actor.feed(octets)    deliver that many queued octets to the router, cut anywhere
    actor.read_frames()   read the router's frames

Each link keeps the messages that it has sent and received.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.peer.frames import ACCEPTED, AMQP_HEADER, FRAME_HEADER, Frame, parse_frame, source, target
from tests.peer.talk import MANY, message, say

SERIAL = 1 << 32
HALF = 1 << 31
PART = 16000  # octets of payload in a frame
FIRST = 100  # channel of the first session that the router begins
ROUNDS = 600  # most iterations of `run`; more is a standstill


def numbered(producer: str, number: int, size: int) -> bytes:
    """Return a message of about `size` octets that names its producer and number."""
    head = b"<%s:%d>" % (producer.encode(), number)
    octets: bytes = message(head + b"x" * max(size - len(head), 0))
    return octets


class ActorSender:
    """Link on which the actor sends."""

    def __init__(self, session: "ActorSession", handle: int, name: str) -> None:
        self.session = session
        self.handle = handle
        self.name = name
        self.attached = False
        self.ended: Any = None  # the router's detach, or "detached" after the actor's own
        self.delivery_count = 0
        self.credit = 0
        self.drain = False
        self.capacity = 0  # the highest credit so far
        self.waiting: deque[tuple[bytes, bool]] = deque()  # (message, settled)
        self.current: tuple[int, bytes, int, bool] | None = None  # delivery-id, message, octets written, settled
        self.sent: list[bytes] = []
        self.count = 0  # number of messages given to `send`
        self.outcomes: dict[int, Any] = {}  # by delivery-id
        self.unsettled: set[int] = set()
        self.returned_credit = 0
        self.frames_at_once = 0  # transfers before the next link may write; 0: no limit
        self.empty_frames = False  # send an empty frame after each partial transfer
        self.stalls_after = 0  # octets of a message after which it stalls; 0: never

    def send(self, octets: bytes, *, settled: bool = False) -> None:
        self.count += 1
        self.waiting.append((octets, settled))

    def detach(self) -> None:
        self.ended = "detached"
        self.session.put("detach", handle=self.handle, closed=True)

    @property
    def idle(self) -> bool:
        """True if everything is sent and has its outcome."""
        return not self.waiting and self.current is None and not self.unsettled

    def on_flow(self, frame: Frame) -> None:
        count = frame.delivery_count or 0
        left = (count + frame.link_credit - self.delivery_count) % SERIAL
        if (count - self.delivery_count) % SERIAL >= HALF:
            # The flow was written before the last transfers arrived: subtract those under way.
            left = max(frame.link_credit - (self.delivery_count - count) % SERIAL, 0)
        self.credit = left
        self.capacity = max(self.capacity, left)
        self.drain = bool(frame.drain)

    def write(self) -> bool:
        """Write one transfer if there is one and it is allowed. Return True if one was written."""
        session = self.session
        if self.ended is not None or not self.attached or session.remote_window <= 0:
            return False
        if self.current is None:
            if not self.waiting or not self.credit:
                return False
            octets, settled = self.waiting.popleft()
            self.current = (session.next_delivery_id, octets, 0, settled)
            session.next_delivery_id += 1
            self.credit -= 1
            self.delivery_count = (self.delivery_count + 1) % SERIAL
            session.owners[self.current[0]] = self
            if not settled:
                self.unsettled.add(self.current[0])
        number, octets, at, settled = self.current
        if self.stalls_after and at >= self.stalls_after:
            return False
        part = octets[at : at + PART]
        more = at + len(part) < len(octets)
        session.transfer(self.handle, number, part, more=more, settled=settled)
        self.current = (number, octets, at + len(part), settled) if more else None
        if more and self.empty_frames and session.remote_window > 0:
            session.transfer(self.handle, number, b"", more=True, settled=settled)
        if not more:
            self.sent.append(octets)
        return True

    def write_drain(self) -> None:
        """Give the remaining credit back if the router drains and nothing is left to send."""
        if self.drain and self.current is None and (not self.waiting or not self.credit) and self.ended is None:
            self.drain = False
            self.returned_credit += self.credit
            self.delivery_count = (self.delivery_count + self.credit) % SERIAL
            self.credit = 0
            self.session.flow(self.handle, self.delivery_count, 0, drain=True)


class ActorReceiver:
    """Link on which the actor receives. pattern: credit granted at a time; 0: none automatically."""

    def __init__(self, session: "ActorSession", handle: int, name: str, pattern: int) -> None:
        self.session = session
        self.handle = handle
        self.name = name
        self.pattern = pattern
        self.attached = False
        self.ended: Any = None
        self.withholds_credit = False  # grants no further credit
        self.withholds_settlement = False  # settles nothing
        self.delivery_count = 0
        self.limit = 0  # delivery-count up to which the sender may send
        self.partial = b""
        self.octets = 0
        self.got: list[bytes] = []
        self.open: list[int] = []  # delivery-ids to be settled
        self.draining = False

    def detach(self) -> None:
        self.ended = "detached"
        self.session.put("detach", handle=self.handle, closed=True)

    @property
    def credit(self) -> int:
        return self.limit - self.delivery_count

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the link's credit to `credit`."""
        self.limit = self.delivery_count + credit
        self.draining = drain
        self.session.flow(self.handle, self.delivery_count % SERIAL, credit, drain=drain)

    def on_flow(self, frame: Frame) -> None:
        ahead = (frame.delivery_count - self.delivery_count) % SERIAL
        assert ahead <= max(self.credit, 0), f"{self.name}: {ahead} given back of {self.credit}"
        self.delivery_count += ahead
        if self.credit <= 0:
            self.draining = False

    def on_transfer(self, frame: Frame) -> None:
        self.octets += len(frame.payload)
        if frame.delivery_id is not None and not self.partial:
            if frame.delivery_id not in self.session.seen:
                self.session.seen.add(frame.delivery_id)
                self.delivery_count += 1
            self.first = frame.delivery_id
            self.settled = False
        self.partial += frame.payload
        self.settled = self.settled or bool(frame.settled)
        if frame.more and not frame.aborted:
            return
        if not frame.aborted:
            self.got.append(self.partial)
            if not self.settled:
                self.open.append(self.first)
        self.partial = b""

    def act(self) -> None:
        if not self.attached or self.ended is not None:
            return
        if not self.withholds_settlement and self.open:
            for number in self.open:
                self.session.put("disposition", role=True, first=number, settled=True, state=ACCEPTED)
            self.open = []
        if self.pattern and not self.withholds_credit and not self.draining and self.credit <= self.pattern // 2:
            self.grant(self.pattern)


class ActorSession:
    """Session with both windows, delivery-ids, and links by handle."""

    def __init__(self, actor: "AmqpActor", channel: int, window: int) -> None:
        self.actor = actor
        self.channel = channel
        self.window = window  # incoming window in frames, set by each flow
        self.window_stays_shut = False  # the incoming window is not opened again
        self.left = window  # frames left in the incoming window
        self.next_incoming_id = 0
        self.next_outgoing_id = 0
        self.remote_window = 0  # 0 before the first flow: sending is not allowed
        self.remote_limit = 0
        self.next_delivery_id = 0
        self.owners: dict[int, ActorSender] = {}
        self.senders: list[ActorSender] = []
        self.receivers: list[ActorReceiver] = []
        self.by_remote_handle: dict[int, Any] = {}  # links by the router's handle
        self.seen: set[int] = set()
        self.remote_channel: int | None = None
        self.turn = 0

    def put(self, performative: str, *, payload: bytes = b"", **fields: Any) -> None:
        self.actor.out += say(performative, channel=self.channel, payload=payload, **fields)

    def flow(self, handle: int | None = None, count: int | None = None, credit: int | None = None, **fields: Any):
        if not self.window_stays_shut:
            self.left = self.window
        self.put(
            "flow", next_incoming_id=self.next_incoming_id % SERIAL, incoming_window=self.left,
            next_outgoing_id=self.next_outgoing_id % SERIAL, outgoing_window=MANY, handle=handle,
            delivery_count=count, link_credit=credit, **fields,
        )  # fmt: skip

    def transfer(self, handle: int, number: int, part: bytes, *, more: bool, settled: bool) -> None:
        self.put(
            "transfer", payload=part, handle=handle, delivery_id=number, delivery_tag=b"%d" % number,
            message_format=0, more=more or None, settled=settled or None,
        )  # fmt: skip
        self.next_outgoing_id += 1
        self.remote_window -= 1

    def sender(self, address: str | None, **fields: Any) -> ActorSender:
        handle = len(self.senders) + len(self.receivers)
        link = ActorSender(self, handle, f"{self.actor.name}-{self.channel}-{handle}")
        self.senders.append(link)
        self.put(
            "attach", name=link.name, handle=handle, role=False, source=source(), target=target(address),
            initial_delivery_count=0, **fields,
        )  # fmt: skip
        return link

    def receiver(self, address: str, pattern: int = 100, **fields: Any) -> ActorReceiver:
        handle = len(self.senders) + len(self.receivers)
        link = ActorReceiver(self, handle, f"{self.actor.name}-{self.channel}-{handle}", pattern)
        self.receivers.append(link)
        self.put("attach", name=link.name, handle=handle, role=True, source=source(address), target=target(), **fields)
        return link

    # -- the router's frames -------------------------------------------------------------------------------------------

    def on_frame(self, frame: Frame) -> None:
        if frame.name == "attach":
            self.on_attach(frame)
        elif frame.name == "flow":
            if frame.next_incoming_id is not None:
                self.remote_window = (
                    frame.next_incoming_id + frame.incoming_window - self.next_outgoing_id + HALF
                ) % SERIAL - HALF
            if frame.handle is not None and frame.handle in self.by_remote_handle:
                self.by_remote_handle[frame.handle].on_flow(frame)
            if frame.echo:
                self.flow()
        elif frame.name == "transfer":
            self.next_incoming_id += 1
            self.left -= 1
            assert self.left >= 0, "the router has passed the window"
            self.by_remote_handle[frame.handle].on_transfer(frame)
        elif frame.name == "disposition":
            self.on_disposition(frame)
        elif frame.name == "detach":
            link = self.by_remote_handle.pop(frame.handle)
            if link.ended is None:
                link.ended = frame.performative
                self.put("detach", handle=link.handle, closed=True)

    def on_attach(self, frame: Frame) -> None:
        ours: list[Any] = [*self.senders, *self.receivers]
        for link in ours:
            if link.name == frame.fields["name"]:
                link.attached = True
                self.by_remote_handle[frame.handle] = link
                return
        self.answer(frame)

    def answer(self, frame: Frame) -> None:
        """Attach the other end of a link that the router attaches for a client."""
        handle = len(self.senders) + len(self.receivers)
        fields = {"source": frame.source, "target": frame.target}
        link: Any
        if frame.role:
            link = ActorSender(self, handle, frame.fields["name"])
            self.senders.append(link)
            fields["initial_delivery_count"] = 0
        else:
            link = ActorReceiver(self, handle, frame.fields["name"], self.actor.pattern)
            self.receivers.append(link)
            self.actor.attached(link)
        link.attached = True
        self.by_remote_handle[frame.handle] = link
        self.put("attach", name=link.name, handle=handle, role=not frame.role, **fields)

    def on_disposition(self, frame: Frame) -> None:
        if not frame.role:
            return
        for number in range(frame.first, (frame.first if frame.last is None else frame.last) + 1):
            link = self.owners.get(number)
            if link is None:
                continue
            if frame.state is not None:
                link.outcomes[number] = frame.state
            if frame.settled:
                link.unsettled.discard(number)
            elif frame.state is not None and number in link.unsettled:
                # The router does not settle first here: settle as sender.
                link.unsettled.discard(number)
                self.put("disposition", role=False, first=number, settled=True)

    def act(self, frames: int) -> None:
        """Queue everything that may be written now, at most `frames` transfers, link by link."""
        for receiver in self.receivers:
            receiver.act()
        if self.left <= self.window // 2 and not self.window_stays_shut:
            self.flow()
        for _ in range(len(self.senders)):
            self.turn = (self.turn + 1) % len(self.senders)
            link = self.senders[self.turn]
            at_once = link.frames_at_once or frames
            while frames > 0 and at_once > 0 and link.write():
                frames -= 1
                at_once -= 1
        for link in self.senders:
            link.write_drain()


class AmqpActor:
    """Connection to worker number `worker` of an in-process router."""

    def __init__(
        self, router: InProcessRouter, name: str, worker: int = 0, listener: str = "main", **fields: Any
    ) -> None:
        self.router = router
        self.name = name
        self.peer: InProcessPeer = router.connect(worker, listener)
        self.out = bytearray(AMQP_HEADER + say("open", container_id=name, **fields))
        self.unparsed = b""
        self.sessions: dict[int, ActorSession] = {}  # by the actor's channel
        self.by_remote_channel: dict[int, ActorSession] = {}
        self.window = 2048  # incoming window of sessions that the router begins
        self.pattern = 100  # credit on links that the router attaches
        # called for each receiving link that the router attaches
        self.attached: Callable[[ActorReceiver], None] = lambda link: None
        self.closed: Any = None
        self.stopped = False  # neither reads nor writes
        self.may_close = False  # the router may close the connection

    def session(self, window: int = 2048) -> ActorSession:
        channel = len(self.sessions)
        session = self.sessions[channel] = ActorSession(self, channel, window)
        session.put("begin", next_outgoing_id=0, incoming_window=window, outgoing_window=MANY)
        return session

    @property
    def senders(self) -> Iterable[ActorSender]:
        return [link for session in self.sessions.values() for link in session.senders]

    @property
    def receivers(self) -> Iterable[ActorReceiver]:
        return [link for session in self.sessions.values() for link in session.receivers]

    def stop(self, stopped: bool = True) -> None:
        """Stop or resume reading and writing, like a suspended process."""
        self.stopped = self.peer.blocked = stopped

    def feed(self, octets: int | None = None) -> int:
        """Deliver at most `octets` queued octets to the router. Return their number."""
        part = bytes(self.out if octets is None else self.out[:octets])
        del self.out[: len(part)]
        if part:
            self.peer.feed(part)
        return len(part)

    def read_frames(self) -> int:
        """Read the router's octets and handle complete frames. Return the number of frames."""
        self.unparsed += self.peer.take()
        at = frames = 0
        while len(self.unparsed) - at >= FRAME_HEADER:
            if self.unparsed.startswith(b"AMQP", at):
                at += FRAME_HEADER
                continue
            size = int.from_bytes(self.unparsed[at : at + 4], "big")
            if len(self.unparsed) - at < size:
                break
            self.on_frame(parse_frame(self.unparsed[at : at + size]))
            at += size
            frames += 1
        self.unparsed = self.unparsed[at:]
        return frames

    def on_frame(self, frame: Frame) -> None:
        if frame.name == "begin":
            self.on_begin(frame)
        elif frame.name == "close":
            self.closed = frame.performative
            assert self.may_close, f"{self.name}: the router closes: {frame.error}"
        elif frame.name == "end":
            raise AssertionError(f"{self.name}: the router ends a session: {frame.error}")
        elif frame.channel in self.by_remote_channel:
            self.by_remote_channel[frame.channel].on_frame(frame)

    def on_begin(self, frame: Frame) -> None:
        if frame.remote_channel is not None:
            session = self.sessions[frame.remote_channel]
        else:
            channel = FIRST + len(self.by_remote_channel)
            session = self.sessions[channel] = ActorSession(self, channel, self.window)
            session.put(
                "begin", remote_channel=frame.channel, next_outgoing_id=0, incoming_window=self.window,
                outgoing_window=MANY,
            )  # fmt: skip
        session.remote_channel = frame.channel
        self.by_remote_channel[frame.channel] = session

    def act(self, frames: int = 64) -> None:
        """Queue everything that may be written, at most `frames` transfers per session."""
        for session in list(self.sessions.values()):
            if session.remote_channel is not None:
                session.act(frames)


def step(router: InProcessRouter, actors: Iterable[AmqpActor], frames: int = 64, octets: int | None = None) -> bool:
    """Let each actor that is not stopped act once. Return True if any octets moved."""
    moved = False
    for actor in actors:
        if actor.stopped:
            continue
        moved |= actor.read_frames() > 0
        actor.act(frames)
        moved |= actor.feed(octets) > 0
        router.settle()
    return moved


def run(router: InProcessRouter, actors: list[AmqpActor], frames: int = 64, rounds: int = ROUNDS) -> int:
    """Step until nothing moves. Return the number of iterations."""
    for number in range(rounds):
        if not step(router, actors, frames):
            return number
    raise AssertionError(f"still not quiet after {rounds} rounds")
