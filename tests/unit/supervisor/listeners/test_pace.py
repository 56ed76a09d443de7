"""Accept rate during connection bursts."""

import socket
import time

import pytest

from supervisor.listeners import accept_rate
from supervisor.listeners.accept_rate import (
    AT_ONCE,
    BURST_CONNECTIONS,
    BURST_PAUSE,
    LONG_BURST_DIVISOR,
    LONG_WAIT,
    TIME_DIVISOR,
    AcceptRateLimiter,
    accept_queue_length,
)

MANY = BURST_CONNECTIONS + 1
MOST = 64
COST = 0.0002  # seconds of work for each connection


class PacedBurst:
    """Connection burst paced on a clock of its own. Each connection costs COST."""

    def __init__(self, cores: int = 2, active: bool = True) -> None:
        self.now = 1000.0
        self.worked = 5.0
        self.active = active
        self.pace = AcceptRateLimiter(lambda: self.active, cores, lambda: self.now, lambda: self.worked)

    def take(self, seconds: float) -> int:
        """Return the number of connections accepted in that time."""
        taken, end = 0, self.now + seconds
        while self.now < end:
            room = self.pace.room(MANY, MOST)
            taken += room
            self.worked += room * COST
            self.now += room * COST if room else self.pace.rest()
        return taken


@pytest.mark.parametrize(("cores", "more"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_burst_gets_small_share_then_more(cores: int, more: int) -> None:
    burst = PacedBurst(max(2, cores))
    parts = [burst.take(LONG_WAIT) * COST / LONG_WAIT for _ in range(3)]
    assert parts == [
        pytest.approx(more / TIME_DIVISOR, rel=0.1),
        pytest.approx(min(1.0, more / LONG_BURST_DIVISOR), rel=0.1),
        pytest.approx(1.0, rel=0.1),
    ]


def test_burst_with_many_cores_is_not_paced() -> None:
    burst = PacedBurst(2 * TIME_DIVISOR)
    assert burst.take(1.0) * COST == pytest.approx(1.0, rel=0.1)


def test_burst_without_active_clients_is_not_paced() -> None:
    burst = PacedBurst(active=False)
    assert burst.take(0.1) * COST == pytest.approx(0.1, rel=0.2)


def test_small_queue_is_not_paced() -> None:
    burst = PacedBurst()
    while burst.pace.room(MANY, MOST):
        burst.worked += AT_ONCE * COST
    assert burst.pace.room(BURST_CONNECTIONS, MOST) == MOST


def test_later_burst_starts_with_small_share() -> None:
    burst = PacedBurst()
    burst.take(3 * LONG_WAIT)
    burst.now += 2 * BURST_PAUSE
    assert burst.take(LONG_WAIT) * COST / LONG_WAIT == pytest.approx(1 / TIME_DIVISOR, rel=0.1)


def test_unrelated_work_delays_burst_for_bounded_time() -> None:
    burst = PacedBurst()
    burst.take(0.1)
    burst.worked += 60.0
    burst.now += 0.001
    assert burst.pace.room(MANY, MOST) == 0
    assert burst.pace.rest() <= accept_rate.MOST_OVERDRAWN_WORK * TIME_DIVISOR


def test_accept_queue_of_socket_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as opened:
        assert accept_queue_length(opened) == 0
        clients = [socket.create_connection(opened.getsockname()) for _ in range(3)]
        try:
            deadline = time.monotonic() + 10
            while accept_queue_length(opened) < len(clients) and time.monotonic() < deadline:
                pass
            assert accept_queue_length(opened) == len(clients)
            opened.accept()[0].close()
            assert accept_queue_length(opened) == len(clients) - 1
        finally:
            for client in clients:
                client.close()
