"""Choice of the worker for a client that was connected before."""

import itertools
from collections import Counter
from typing import Any

import pytest

from router.config.load import load_text
from supervisor.addresses.record import Record
from supervisor.connections.connections import Connection
from supervisor.listeners import affinity
from supervisor.listeners.affinity import Affinity
from supervisor.listeners.placement import Placements
from supervisor.processes.worker import Stage, Worker

LISTENER = load_text("x.conf", "router {\n}\nlistener {\n  name: in\n}\n").listeners[0]

PRESENT: Any = object()  # hand-over socket
OPENED: Any = None  # the message, which does not matter here


class House:
    """Workers, and clients that are accepted by the worker with the fewest connections."""

    def __init__(self, workers=2, most=100):
        self.workers = {index: Worker(index, 1) for index in range(workers)}
        for worker in self.workers.values():
            worker.stage = Stage.SERVING
            worker.handover = PRESENT
        self.affinity = Affinity(self.workers, Placements(), most)
        self.numbers = itertools.count(1)

    def come(self, name, *ends, worker=None):
        """Open a client, move it to its worker, and attach its ends (address, receives)."""
        connection = Connection(next(self.numbers), LISTENER, "", "127.0.0.1:1", "in")
        connection.container, connection.user = name, "anonymous"
        first = min(self.workers.values(), key=lambda each: len(each.connections)).index if worker is None else worker
        self.put(connection, first)
        if self.affinity.place(connection):
            del self.workers[first].connections[connection.number]
            best = self.affinity.left(connection)
            assert best is not None
            self.put(connection, best.index)
        self.affinity.connection_opened(connection, OPENED)
        for address, receives in ends:
            self.affinity.attached(connection, Record(1, f"M0{address}", "closest", None, ""), receives)
        return connection

    def put(self, connection, worker):
        connection.worker = worker
        self.workers[worker].connections[connection.number] = connection

    def go(self, *connections):
        for connection in connections:
            del self.workers[connection.worker].connections[connection.number]
            self.affinity.connection_closed(connection)


def test_a_known_client_goes_to_the_other_end():
    house = House()
    house.go(house.come("a", ("x", False)), house.come("b", ("x", True)))
    first = house.come("a")
    assert house.come("b").worker == first.worker
    assert house.affinity.moved == 1


def test_an_unknown_client_and_another_user_stay():
    house = House()
    house.go(house.come("b", ("x", True)))
    house.come("a", ("x", False), worker=0)
    assert house.come("c", worker=1).worker == 1
    other = Connection(99, LISTENER, "", "127.0.0.1:1", "in")
    other.container, other.user, other.worker = "b", "somebody", 1
    assert not house.affinity.place(other)


def test_two_consumers_do_not_attract_each_other():
    house = House()
    house.go(house.come("a", ("x", True)), house.come("b", ("x", True)))
    assert {house.come("a").worker, house.come("b").worker} == {0, 1}


def test_no_worker_gets_many_more():
    """All clients exchange messages with one. Its worker gets some of them, not all."""
    house = House(workers=4, most=1000)
    for turn in range(2):
        clients = [house.come("sink", ("x", True))] + [house.come(f"c{n}", ("x", False)) for n in range(199)]
        if turn == 0:
            house.go(*clients)
    counts = Counter(client.worker for client in clients)
    assert max(counts.values()) <= 50 * (1 + affinity.MORE_SHARE) + affinity.MORE_LEAST
    assert house.affinity.moved > 0


def test_what_is_remembered_is_bounded():
    house = House(most=3)
    for n in range(10):
        house.come(f"c{n}", *[(f"a{n}.{m}", True) for m in range(20)])
    assert house.affinity.remembered == 3
    assert all(len(ends) == affinity.ENDS_MOST for ends in house.affinity._clients.values())
    assert list(house.affinity._clients) == [(f"c{n}", "anonymous") for n in (7, 8, 9)]


@pytest.mark.parametrize("name", ["x" * 257, "M" * 1000])
def test_long_texts_are_not_remembered(name):
    house = House()
    house.come(name, ("x", True))
    house.come("a", (name, True))
    assert house.affinity.remembered == 0


def test_nothing_is_left_of_connections_that_are_gone():
    house = House()
    for _ in range(3):
        clients = [house.come(name, (address, receives)) for name in "abc" for address in "xy" for receives in (0, 1)]
        house.go(*clients)
    assert not house.affinity._ends
    assert not house.affinity._counted
    assert not house.affinity._moving
    assert not any(house.affinity._coming.values())


def test_a_move_under_way_counts():
    house = House()
    house.go(house.come("a", ("x", False)), house.come("b", ("x", True)))
    house.come("a", worker=0)
    moving = Connection(50, LISTENER, "", "127.0.0.1:1", "in")
    moving.container, moving.user = "b", "anonymous"
    house.put(moving, 1)
    assert house.affinity.place(moving)
    assert [house.affinity._load(each) for each in house.workers.values()] == [2, 0]
    house.affinity.stays(moving)
    assert [house.affinity._load(each) for each in house.workers.values()] == [1, 1]


def test_an_empty_worker_gets_its_part_first():
    """An empty worker is the successor of a lost one. Clients that exchange messages with each other must not stay
    away from it."""
    house = House()
    house.go(*[house.come("same", ("x", False), ("x", True)) for _ in range(8)])
    first = [house.come("same", worker=0) for _ in range(8)]
    assert {client.worker for client in first} == {0}
    assert [house.come("same").worker for _ in range(4)] == [1, 1, 1, 1]
