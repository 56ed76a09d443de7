"""Accept rate during connection bursts."""

import socket
import time

import pytest

from sluice.router.pacing.admission_share import LARGE_SHARE_DIVISOR, LONG_WAIT_MS, SMALL_SHARE_DIVISOR
from sluice.supervisor.listeners.accept_rate import (
    AT_ONCE,
    BURST_CONNECTIONS,
    BURST_PAUSE_NS,
    MOST_DEFICIT_NS,
    AcceptRateLimiter,
    accept_queue_length,
)

MANY = BURST_CONNECTIONS + 1
MOST = 64
COST_NS = 200_000  # work for each connection
SECOND_NS = 1_000_000_000
LONG_WAIT_NS = LONG_WAIT_MS * 1_000_000


class PacedBurst:
    """Connection burst paced on a clock of its own. Each connection costs COST_NS."""

    def __init__(self, cores: int = 2, active: bool = True) -> None:
        self.now = 1000 * SECOND_NS
        self.worked = 5 * SECOND_NS
        self.active = active
        self.pace = AcceptRateLimiter(lambda: self.active, cores, lambda: self.now, lambda: self.worked)

    def take(self, ns: int) -> float:
        """Return the part of that time that was spent on accepted connections."""
        taken, end = 0, self.now + ns
        while self.now < end:
            room = self.pace.room(MANY, MOST)
            taken += room
            self.worked += room * COST_NS
            self.now += room * COST_NS if room else round(SECOND_NS * self.pace.rest())
        return taken * COST_NS / ns


@pytest.mark.parametrize(("cores", "more"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_burst_gets_small_share_then_more(cores: int, more: int) -> None:
    burst = PacedBurst(max(2, cores))
    parts = [burst.take(LONG_WAIT_NS) for _ in range(3)]
    assert parts == [
        pytest.approx(more / SMALL_SHARE_DIVISOR, rel=0.1),
        pytest.approx(min(1.0, more / LARGE_SHARE_DIVISOR), rel=0.1),
        pytest.approx(1.0, rel=0.1),
    ]


def test_burst_with_many_cores_is_not_paced() -> None:
    burst = PacedBurst(2 * SMALL_SHARE_DIVISOR)
    assert burst.take(SECOND_NS) == pytest.approx(1.0, rel=0.1)


def test_burst_without_active_clients_is_not_paced() -> None:
    burst = PacedBurst(active=False)
    assert burst.take(SECOND_NS // 10) == pytest.approx(1.0, rel=0.2)


def test_small_queue_is_not_paced() -> None:
    burst = PacedBurst()
    while burst.pace.room(MANY, MOST):
        burst.worked += AT_ONCE * COST_NS
    assert burst.pace.room(BURST_CONNECTIONS, MOST) == MOST


def test_later_burst_starts_with_small_share() -> None:
    burst = PacedBurst()
    burst.take(3 * LONG_WAIT_NS)
    burst.now += 2 * BURST_PAUSE_NS
    assert burst.take(LONG_WAIT_NS) == pytest.approx(1 / SMALL_SHARE_DIVISOR, rel=0.1)


def test_unrelated_work_delays_burst_for_bounded_time() -> None:
    burst = PacedBurst()
    burst.take(SECOND_NS // 10)
    burst.worked += 60 * SECOND_NS
    burst.now += SECOND_NS // 1000
    assert burst.pace.room(MANY, MOST) == 0
    assert burst.pace.rest() * SECOND_NS <= MOST_DEFICIT_NS * SMALL_SHARE_DIVISOR


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
