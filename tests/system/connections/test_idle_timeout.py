"""Idle time-out and heartbeats (routing-semantics.md 1.4)."""

import time

import pytest

from tests.system.fixtures import Connect
from tests.system.router import Section, listener

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [listener("short", idleTimeoutSeconds=2)]
#: Idle time-out in s of the listener `short`.
IDLE = 2.0


# brokers-and-edge.md W-5.
def test_silent_peer_is_closed(connect: Connect) -> None:
    peer = connect("short")
    assert peer.remote_open is not None
    assert peer.remote_open.idle_time_out == 1000
    begun = time.monotonic()
    assert peer.expect_close() == ("amqp:resource-limit-exceeded", "local-idle-timeout expired")
    assert IDLE * 0.8 <= time.monotonic() - begun < IDLE + 2.5


def test_empty_frames_keep_connection_open(connect: Connect) -> None:
    """The connection with heartbeats outlives the connection without by more than a whole period."""
    alive = connect("short")
    for _ in range(2):
        silent = connect("short")
        alive.heartbeat()
        half = time.monotonic() + IDLE / 2
        silent.idle_until(half)
        alive.heartbeat()
        silent.expect_close()
    alive.barrier()


def test_heartbeats_arrive_within_idle_period(connect: Connect) -> None:
    period = 0.4
    peer = connect(idle_time_out=int(period * 1000))
    opened = time.monotonic()
    beats: list[float] = []
    while len(beats) < 5:
        frame = peer.read_frame()
        if frame.name == "heartbeat":
            beats.append(time.monotonic())
    gaps = [after - before for before, after in zip([opened, *beats], beats, strict=False)]
    assert max(gaps) < period, gaps
    assert sum(gaps) / len(gaps) > period / 4, gaps


def test_peer_without_idle_timeout_gets_no_heartbeats(connect: Connect) -> None:
    quiet, beating = connect(), connect(idle_time_out=100)
    for _ in range(10):
        assert beating.read_frame().name == "heartbeat"
    quiet.barrier()
    assert not [frame for frame, _when in quiet.arrivals if frame.name == "heartbeat"]
