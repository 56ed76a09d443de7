"""Write buffers of connections, which grow, and are reused by other connections of the process."""

import random

import pytest

from sluice.router.testing.engine import drop_pools
from sluice.router.testing.output import octets_waiting
from tests.peer.frames import AMQP_HEADER
from tests.peer.talk import begin, frames, say
from tests.unit.router.amqp.stub import RecordingHandler

FIRST = 8192  # octets of a new buffer
FRAME = 1 << 22  # octets of the longest frame
SIZES = (1, 100, FIRST - 100, FIRST, 70_000, 1_000_000, 3_000_000)


class AttachingServer(RecordingHandler):
    """Server's end of a connection. Its answers to attaches wait in its write buffer."""

    def __init__(self) -> None:
        super().__init__(max_frame=FRAME)
        self.feed(AMQP_HEADER + say("open", container_id="c", max_frame_size=FRAME) + begin(0))
        self.take()
        self.handles = 0

    def take(self) -> bytes:
        octets: bytes = self.connection.take_output()
        return octets

    def add_link(self, name: str) -> None:
        self.feed(say("attach", name=name, handle=self.handles, role=True, source=None, target=None))
        self.handles += 1
        while self.scheduler.go_on():
            self.feed(b"")

    def names(self) -> list[str]:
        """Return the names of the links in the buffer, and empty it."""
        return [frame.fields["name"] for frame in frames(self)]


@pytest.mark.parametrize("seed", range(5))
def test_reused_buffers_keep_octets_of_connections_apart(seed):
    chance = random.Random(seed)
    servers = [AttachingServer() for _ in range(4)]
    waiting: list[list[str]] = [[] for _ in servers]
    for _ in range(150):
        at = chance.randrange(len(servers))
        if chance.random() < 0.7:
            waiting[at].append(chance.randbytes(8).hex() + "x" * chance.choice(SIZES))
            servers[at].add_link(waiting[at][-1])
        else:
            assert servers[at].names() == waiting[at]
            waiting[at] = []
            assert octets_waiting(servers[at].connection) == 0
    for server, expected in zip(servers, waiting, strict=True):
        assert server.names() == expected


def test_frames_that_wait_survive_growth_of_buffer():
    drop_pools()
    server = AttachingServer()
    names = [f"link {number}" for number in range(1000)]
    for name in names:
        server.add_link(name)
    assert octets_waiting(server.connection) > 4 * FIRST
    assert server.names() == names
