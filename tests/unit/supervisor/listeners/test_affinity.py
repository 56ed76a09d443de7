"""Choice of the worker for a client that was connected before."""

import itertools
from collections import Counter
from typing import Any

import pytest

from router.config.load import load_text
from supervisor.addresses.record import AddressRecord
from supervisor.children.worker import WorkerProcess, WorkerStage
from supervisor.connections.connections import RegisteredConnection
from supervisor.listeners import affinity
from supervisor.listeners.affinity import Affinity
from supervisor.listeners.placement import Placements

LISTENER = load_text("x.conf", "router {\n}\nlistener {\n  name: in\n}\n").listeners[0]

PRESENT: Any = object()  # hand-over socket
OPENED: Any = None  # the message, which does not matter here


class AffinityWorkers:
    """Workers, and clients that are accepted by the worker with the fewest connections."""

    def __init__(self, workers=2, most=100):
        self.workers = {index: WorkerProcess(index, 1) for index in range(workers)}
        for worker in self.workers.values():
            worker.stage = WorkerStage.SERVING
            worker.handover = PRESENT
        self.affinity = Affinity(self.workers, Placements(), most)
        self.numbers = itertools.count(1)

    def open_client(self, name, *ends, worker=None):
        """Open a client, move it to its worker, and attach its ends (address, receives)."""
        connection = RegisteredConnection(next(self.numbers), LISTENER, "", "127.0.0.1:1", "in")
        connection.container, connection.user = name, "anonymous"
        first = min(self.workers.values(), key=lambda each: len(each.connections)).index if worker is None else worker
        self.assign(connection, first)
        if self.affinity.place(connection):
            del self.workers[first].connections[connection.number]
            best = self.affinity.left(connection)
            assert best is not None
            self.assign(connection, best.index)
        self.affinity.connection_opened(connection, OPENED)
        for address, receives in ends:
            self.affinity.attached(connection, AddressRecord(1, f"M0{address}", "closest", None, ""), receives)
        return connection

    def assign(self, connection, worker):
        connection.worker = worker
        self.workers[worker].connections[connection.number] = connection

    def close_clients(self, *connections):
        for connection in connections:
            del self.workers[connection.worker].connections[connection.number]
            self.affinity.connection_closed(connection)


def test_known_client_goes_to_worker_of_other_end():
    pool = AffinityWorkers()
    pool.close_clients(pool.open_client("a", ("x", False)), pool.open_client("b", ("x", True)))
    first = pool.open_client("a")
    assert pool.open_client("b").worker == first.worker
    assert pool.affinity.moved == 1


def test_unknown_clients_stay_at_their_worker():
    pool = AffinityWorkers()
    pool.close_clients(pool.open_client("b", ("x", True)))
    pool.open_client("a", ("x", False), worker=0)
    assert pool.open_client("c", worker=1).worker == 1
    other = RegisteredConnection(99, LISTENER, "", "127.0.0.1:1", "in")
    other.container, other.user, other.worker = "b", "somebody", 1
    assert not pool.affinity.place(other)


def test_consumers_do_not_attract_each_other():
    pool = AffinityWorkers()
    pool.close_clients(pool.open_client("a", ("x", True)), pool.open_client("b", ("x", True)))
    assert {pool.open_client("a").worker, pool.open_client("b").worker} == {0, 1}


def test_affinity_keeps_workers_balanced():
    """All clients exchange messages with one. Its worker gets some of them, not all."""
    pool = AffinityWorkers(workers=4, most=1000)
    for turn in range(2):
        clients = [pool.open_client("sink", ("x", True))] + [
            pool.open_client(f"c{n}", ("x", False)) for n in range(199)
        ]
        if turn == 0:
            pool.close_clients(*clients)
    counts = Counter(client.worker for client in clients)
    assert max(counts.values()) <= 50 * (1 + affinity.MORE_SHARE) + affinity.MORE_LEAST
    assert pool.affinity.moved > 0


def test_remembered_clients_are_bounded():
    pool = AffinityWorkers(most=3)
    for n in range(10):
        pool.open_client(f"c{n}", *[(f"a{n}.{m}", True) for m in range(20)])
    assert pool.affinity.remembered == 3
    assert all(len(ends) == affinity.ENDS_MOST for ends in pool.affinity._clients.values())
    assert list(pool.affinity._clients) == [(f"c{n}", "anonymous") for n in (7, 8, 9)]


@pytest.mark.parametrize("name", ["x" * 257, "M" * 1000])
def test_long_texts_are_not_remembered(name):
    pool = AffinityWorkers()
    pool.open_client(name, ("x", True))
    pool.open_client("a", (name, True))
    assert pool.affinity.remembered == 0


def test_closed_connections_leave_no_state():
    pool = AffinityWorkers()
    for _ in range(3):
        clients = [
            pool.open_client(name, (address, receives)) for name in "abc" for address in "xy" for receives in (0, 1)
        ]
        pool.close_clients(*clients)
    assert not pool.affinity._ends
    assert not pool.affinity._counted
    assert not pool.affinity._moving
    assert not any(pool.affinity._coming.values())


def test_move_under_way_counts_as_load():
    pool = AffinityWorkers()
    pool.close_clients(pool.open_client("a", ("x", False)), pool.open_client("b", ("x", True)))
    pool.open_client("a", worker=0)
    moving = RegisteredConnection(50, LISTENER, "", "127.0.0.1:1", "in")
    moving.container, moving.user = "b", "anonymous"
    pool.assign(moving, 1)
    assert pool.affinity.place(moving)
    assert [pool.affinity._load(each) for each in pool.workers.values()] == [2, 0]
    pool.affinity.stays(moving)
    assert [pool.affinity._load(each) for each in pool.workers.values()] == [1, 1]


def test_empty_worker_gets_its_share_first():
    """An empty worker is the successor of a lost one. Clients that exchange messages with each other must not stay
    away from it."""
    pool = AffinityWorkers()
    pool.close_clients(*[pool.open_client("same", ("x", False), ("x", True)) for _ in range(8)])
    first = [pool.open_client("same", worker=0) for _ in range(8)]
    assert {client.worker for client in first} == {0}
    assert [pool.open_client("same").worker for _ in range(4)] == [1, 1, 1, 1]
