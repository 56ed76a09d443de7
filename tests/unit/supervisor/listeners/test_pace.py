"""Accept rate during connection bursts."""

import socket
import time

import pytest

from supervisor.listeners import pace
from supervisor.listeners.pace import AT_ONCE, CROWD, FEW_PARTS, LONG_WAIT, LULL, PARTS, Pace, waiting

MANY = CROWD + 1
MOST = 64
COST = 0.0002  # seconds of work for each connection


class Crowd:
    """Connection burst paced on a clock of its own. Each connection costs COST."""

    def __init__(self, cores: int = 2, heard: bool = True) -> None:
        self.now = 1000.0
        self.worked = 5.0
        self.heard = heard
        self.pace = Pace(lambda: self.heard, cores, lambda: self.now, lambda: self.worked)

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
def test_a_crowd_has_its_part_of_the_time_and_more_when_it_has_waited(cores: int, more: int) -> None:
    crowd = Crowd(max(2, cores))
    parts = [crowd.take(LONG_WAIT) * COST / LONG_WAIT for _ in range(3)]
    assert parts == [
        pytest.approx(more / PARTS, rel=0.1),
        pytest.approx(min(1.0, more / FEW_PARTS), rel=0.1),
        pytest.approx(1.0, rel=0.1),
    ]


def test_with_many_cores_nobody_waits() -> None:
    crowd = Crowd(2 * PARTS)
    assert crowd.take(1.0) * COST == pytest.approx(1.0, rel=0.1)


def test_nobody_waits_where_nobody_else_is_heard() -> None:
    crowd = Crowd(heard=False)
    assert crowd.take(0.1) * COST == pytest.approx(0.1, rel=0.2)


def test_few_connections_never_wait() -> None:
    crowd = Crowd()
    while crowd.pace.room(MANY, MOST):
        crowd.worked += AT_ONCE * COST
    assert crowd.pace.room(CROWD, MOST) == MOST


def test_a_crowd_that_comes_later_is_another() -> None:
    crowd = Crowd()
    crowd.take(3 * LONG_WAIT)
    crowd.now += 2 * LULL
    assert crowd.take(LONG_WAIT) * COST / LONG_WAIT == pytest.approx(1 / PARTS, rel=0.1)


def test_other_work_puts_it_off_for_a_bounded_time() -> None:
    crowd = Crowd()
    crowd.take(0.1)
    crowd.worked += 60.0
    crowd.now += 0.001
    assert crowd.pace.room(MANY, MOST) == 0
    assert crowd.pace.rest() <= pace.MOST_OWED * PARTS


def test_the_queue_of_a_socket_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as opened:
        assert waiting(opened) == 0
        clients = [socket.create_connection(opened.getsockname()) for _ in range(3)]
        try:
            deadline = time.monotonic() + 10
            while waiting(opened) < len(clients) and time.monotonic() < deadline:
                pass
            assert waiting(opened) == len(clients)
            opened.accept()[0].close()
            assert waiting(opened) == len(clients) - 1
        finally:
            for client in clients:
                client.close()
