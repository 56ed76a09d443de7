"""Cost of frames far longer than one read: time in proportion to their octets, memory to what has arrived."""

import time

import pytest

from sluice.router.config.load import load_text
from sluice.router.testing.engine import cached_block_octets, drop_pools
from tests.component.engine.host import configuration
from tests.component.workers.loops import SocketRouter
from tests.peer.talk import consumer, frames, message, messages, producer, start, transfer

CHUNK = 65536
MIB = 1 << 20
MOST_KEPT = 64 * MIB
QUIET_NS = 6_000_000_000
SLACK = 0.02  # seconds


class ReceivedOctets:
    """Source of all octets that a client has received, for `frames`."""

    def __init__(self, octets):
        self.octets = octets

    def take(self):
        return self.octets


@pytest.fixture
def router():
    text = configuration().replace("listener {", f"listener {{\n  maxFrameSize: {16 * MIB}", 1)
    assert load_text("x.conf", text).listeners[0].max_frame_size == 16 * MIB
    made = SocketRouter(1, text)
    yield made
    made.check_quiet()
    for peer in list(made.peers):
        peer.lose()
    made.settle()
    made.check_empty()
    made.close()


def connect_pair(router):
    listener = router.configuration.listeners[0].name
    consuming, sending = (router.connect(listener=listener) for _ in range(2))
    consuming.feed(start(max_frame_size=16 * MIB) + consumer(0, "balanced.a"))
    router.settle()
    sending.feed(start(max_frame_size=16 * MIB) + producer(0, "balanced.a"))
    router.settle()
    frames(consuming)
    return consuming, sending


def feed(router, sending, octets):
    """Send octets in chunks, each read before the next is sent. Return the CPU seconds."""
    began = time.process_time()
    for at in range(0, len(octets), CHUNK):
        sending.feed(octets[at : at + CHUNK])
        router.settle()
    return time.process_time() - began


def test_large_frame_costs_the_same_per_octet(router):
    _, sending = connect_pair(router)
    frame = transfer(0, 0, message(bytes(15 * MIB)), part=16 * MIB, settled=True)
    quarter = len(frame) // 4
    took = [feed(router, sending, frame[n * quarter : (n + 1) * quarter - CHUNK * (n == 3)]) for n in range(4)]
    assert took[3] <= 3 * took[0] + SLACK, took


@pytest.mark.parametrize("size", [70_000, 300_000, 3 * MIB])
@pytest.mark.parametrize("behind", [0, 1, 7, 8, 100, 80_000])
def test_frames_around_large_frame_arrive(router, size, behind):
    """Frames before and behind the large one, cut at all positions."""
    consuming, sending = connect_pair(router)
    bodies = [b"a", bytes(size), b"b" * max(1, behind), b"c"]
    octets = b"".join(
        transfer(0, number, message(body), part=16 * MIB, settled=True) for number, body in enumerate(bodies)
    )
    received = b""
    for cut in range(0, len(octets), CHUNK - 5):
        sending.feed(octets[cut : cut + CHUNK - 5])
        router.settle()
        while more := consuming.take():
            received += more
            router.settle()
    assert messages(frames(ReceivedOctets(received))) == [message(body) for body in bodies]


def test_large_block_is_kept_until_quiet(router):
    consuming, sending = connect_pair(router)
    drop_pools()
    kept = []
    for number, size in enumerate([15, 15, 15, 2, 3, 2, 15, 15]):
        body = bytes([number]) * size * MIB
        feed(router, sending, transfer(0, number, message(body), part=16 * MIB, settled=True))
        received = b""
        while more := consuming.take():
            received += more
            router.settle()
        assert messages(frames(ReceivedOctets(received))) == [message(body)]
        kept.append(cached_block_octets())
    assert all(MIB < octets <= MOST_KEPT for octets in kept), kept
    assert kept[2] == kept[1], "the third frame used what the second one had left"
    router.workers[0].poller.time_ns += QUIET_NS
    router.settle()
    assert cached_block_octets() == 0
