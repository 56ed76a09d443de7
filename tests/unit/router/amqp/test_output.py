"""Write buffer of a connection, turns of its sessions, and traces of its frames."""

from typing import Any

from sluice.router.amqp.connection import Connection
from sluice.router.amqp.session import Session
from sluice.router.client.sender import Sender
from tests.peer.frames import AMQP_HEADER
from tests.peer.talk import begin, consumer, flow, frames, of, say, start
from tests.peer.types import Symbol
from tests.unit.router.amqp.stub import ConnectionPair, RecordingHandler

SHOWN = 4096  # octets of a frame that are traced
LONG = bytes(100_000)  # more than one turn of a link, less than the bound of the buffer


class TracedServer(RecordingHandler):
    """Server's end of a connection whose frames may be traced."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.traced: list[tuple[bool, bytes, int]] = []

    def on_frame(self, connection: Connection, received: bool, octets: bytes, size: int) -> None:
        self.traced.append((received, octets, size))

    def take(self) -> bytes:
        octets: bytes = self.connection.take_output()
        return octets


def test_frames_are_traced_once_and_in_order():
    server = TracedServer()
    server.connection.trace(True)
    incoming = [AMQP_HEADER, say("open", container_id="c"), begin(0)]
    server.feed(incoming[0] + incoming[1])
    first = server.take()
    server.feed(incoming[2])
    second = server.take()
    assert [octets for received, octets, _ in server.traced if received] == incoming
    written = [octets for received, octets, _ in server.traced if not received]
    assert b"".join(written) == first + second
    assert written[0] == AMQP_HEADER
    assert all(size == len(octets) for _, octets, size in server.traced)


def test_trace_covers_frames_written_while_it_is_on():
    server = TracedServer()
    server.feed(AMQP_HEADER + say("open", container_id="c"))
    server.connection.trace(True)  # header and open wait in the write buffer
    server.feed(begin(0))
    taken = server.take()
    server.connection.trace(False)
    server.feed(begin(1))
    server.take()
    assert [received for received, _, _ in server.traced] == [True, False]
    assert taken.endswith(server.traced[1][1])


def test_long_frame_is_traced_by_its_first_octets():
    server = TracedServer()
    server.feed(start())
    server.connection.trace(True)
    fields: dict[str, Any] = {"next_outgoing_id": 0, "incoming_window": 1, "outgoing_window": 1}
    frame = say("begin", channel=1, properties={Symbol("x"): "y" * 2 * SHOWN}, **fields)
    server.feed(frame)
    assert server.traced[0] == (True, frame[:SHOWN], len(frame))


def sending(sessions: int) -> tuple[TracedServer, list[Sender]]:
    """Return a server with one sender in each of its sessions, which have credit."""
    server = TracedServer(max_frame=16_384)
    server.feed(AMQP_HEADER + say("open", container_id="c", max_frame_size=16_384))
    for channel in range(sessions):
        server.feed(begin(channel) + consumer(0, "a", 0, channel=channel) + flow(0, 100, channel=channel))
    server.take()
    return server, server.links


def test_sessions_take_turns_to_write():
    server, links = sending(3)
    for link in links:
        for _ in range(10):
            link.send(LONG)
    channels = [frame.channel for frame in of(frames(server), "transfer")]
    changes = [channel for at, channel in enumerate(channels) if at == 0 or channels[at - 1] != channel]
    assert changes[:3] == [0, 1, 2]
    assert server.connection.wants_turn()


def test_connection_wants_no_turn_when_all_is_written():
    server, (link,) = sending(1)
    assert not server.connection.wants_turn()
    link.send(b"x")
    assert server.connection.wants_turn()
    server.take()
    assert not server.connection.wants_turn()


def test_link_without_credit_wants_no_turn_after_its_first():
    pair = ConnectionPair()
    session: Session = pair.session()
    sender = pair.client.attach(session, "out", Sender(pair.client))
    pair.run()
    sender.send(b"x")
    pair.run()
    assert (sender.queued, pair.client.connection.wants_turn()) == (1, False)
