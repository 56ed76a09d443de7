"""Unreachable routers for which messages wait: their last path in the tables, and the orders about suspended links."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sluice.router.control.messages import Resume
from sluice.router.control.ops import NextHopOp, Op, RouterOp
from sluice.router.log import ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.network.absence import AbsentRouters, RemoteRouter
from sluice.supervisor.runtime.waker import Waker
from tests.unit.supervisor.links.test_auto import ManualTimers

SECONDS = 60
WORKERS = 2


class HopConnection:
    """Inter-router connection with data links of priorities 0 and 4, on a worker."""

    def __init__(self, number: int, container: str, worker: WorkerProcess) -> None:
        self.number = number
        self.container = container
        self.connection = own = cast(RegisteredConnection, self)
        self.hop = True
        self.worker = worker
        self.links: list[RegisteredLink | None] = [None] * 10
        for priority in (0, 4):
            link = RegisteredLink(0, "", True, 10 * number + priority, 1, own, worker.index)
            link.number, link.priority = priority, priority
            self.links[priority] = link

    def op(self) -> NextHopOp:
        return NextHopOp(self.number, self.worker.index, [])


class AwaitingRouter:
    """Router with neighbour B on connection 1, beyond which there is router C."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.timers = ManualTimers()
        waker: Any = Waker()
        waker.connect(self.timers, lambda: None)
        self.absent = AbsentRouters(SECONDS, self.journal, waker, ProcessLog())
        self.workers = [WorkerProcess(index, 1) for index in range(WORKERS)]
        for worker in self.workers:
            self.journal.join(worker.index, 0)
        self.routers = {1: RemoteRouter(1, "B"), 2: RemoteRouter(2, "C")}
        for router in self.routers.values():
            router.announced, router.links = True, (1,)
        self.absent.join(self.routers)
        self.open: dict[int, Any] = {}

    def lose(self) -> HopConnection:
        """Lose connection 1, whose links their worker has suspended, and the paths to both routers."""
        lost = HopConnection(1, "B", self.workers[0])
        for link in lost.links:
            if link is not None:
                self.absent.suspended(lost.worker, link, 3)
        assert self.absent.keep(lost.op(), "B")
        for router in self.routers.values():
            self.absent.lost(router)
            router.links = ()
        return lost

    def connect(self, number: int, container: str, worker: int) -> HopConnection:
        self.open[number] = made = HopConnection(number, container, self.workers[worker])
        return made

    def find(self, index: int, *links: int) -> None:
        self.absent.found(self.routers[index])
        self.routers[index].links = links

    def step(self) -> list[Op]:
        """Return the ops of a wake, which all workers acknowledge."""
        self.absent.step(self.open)
        delta = self.journal.take_delta()
        for worker in self.workers:
            self.journal.acknowledge(worker.index, self.journal.epoch)
        self.journal.run_actions()
        return [] if delta is None else delta[1]

    def resumes(self) -> list[Resume]:
        found = [order for order in self.workers[0].outbox if isinstance(order, Resume)]
        self.workers[0].outbox.clear()
        return found


@pytest.fixture
def away() -> AwaitingRouter:
    return AwaitingRouter()


def test_unreachable_router_keeps_its_last_path(away: AwaitingRouter) -> None:
    away.lose()
    assert away.routers[2].op() == RouterOp(2, "C", [1], 0, "0", True)
    assert away.absent.ops() == [NextHopOp(1, 0, [])]
    assert away.step() == []
    assert away.resumes() == []


def test_waiting_messages_go_to_new_links_of_same_priority_once_all_routers_are_back(away: AwaitingRouter) -> None:
    away.lose()
    away.connect(5, "B", worker=0)
    away.find(1, 5)
    assert away.step() == []
    assert away.resumes() == [], "messages for C wait at the same link"
    away.find(2, 5)
    assert [op.conn for op in away.step()] == [1]  # type: ignore[union-attr]
    assert away.resumes() == [Resume(10, 1, 5, 0), Resume(14, 1, 5, 4)]
    assert away.timers.waiting == 0


def test_waiting_messages_move_to_worker_of_another_neighbour_on_the_path(away: AwaitingRouter) -> None:
    away.lose()
    away.routers[1].gone = True
    away.absent.found(away.routers[1])
    away.connect(6, "D", worker=1)
    away.find(2, 6)
    away.step()
    assert away.resumes() == [Resume(10, 1, other=(1, 60, 1)), Resume(14, 1, other=(1, 64, 1))]


def test_waiting_messages_stay_until_new_connection_has_data_links(away: AwaitingRouter) -> None:
    away.lose()
    new = away.connect(5, "B", worker=0)
    new.hop = False
    away.find(1, 5)
    away.find(2, 5)
    away.step()
    assert away.resumes() == []
    new.hop = True
    away.step()
    assert len(away.resumes()) == 2


def test_waiting_messages_are_released_when_time_is_over(away: AwaitingRouter) -> None:
    away.lose()
    away.timers.advance(SECONDS)
    ops = away.step()
    assert RouterOp(2, "C", [], 0, "0") in ops
    assert away.resumes() == [Resume(10, 1), Resume(14, 1)]


def test_drain_releases_waiting_messages_and_awaits_nothing_more(away: AwaitingRouter) -> None:
    away.lose()
    away.absent.end()
    away.step()
    assert len(away.resumes()) == 2
    away.find(2, 7)
    away.absent.lost(away.routers[2])
    assert away.routers[2].awaited == ()
    assert away.timers.waiting == 0


def test_lost_worker_takes_its_next_hops_along(away: AwaitingRouter) -> None:
    away.lose()
    away.absent.worker_lost(away.workers[0])
    assert [op.conn for op in away.step()] == [1]  # type: ignore[union-attr]
    assert away.absent.ops() == []
    assert away.resumes() == []


def test_links_of_connection_without_routers_behind_are_released(away: AwaitingRouter) -> None:
    lost = HopConnection(9, "X", away.workers[0])
    for link in lost.links:
        if link is not None:
            away.absent.suspended(lost.worker, link, 0)
    assert not away.absent.keep(lost.op(), "X")
    away.step()
    assert len(away.resumes()) == 2
