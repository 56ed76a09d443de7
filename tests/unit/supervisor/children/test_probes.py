"""Probes of workers: silent ones get no connections and are killed in the end; a late round does not count."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.router.ring.region import Region
from sluice.router.testing.interworker import set_worker
from sluice.supervisor.children.probes import KILL_AFTER, PROBE_EVERY, Probes
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.runtime.deadline import HELD_UP


class ManualLoop:
    """Event loop with one timer and a clock that only the test changes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due = 0.0
        self._function: Callable[[], None] | None = None

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, function: Callable[[], None]) -> ManualLoop:
        self._due, self._function = self.now + seconds, function
        return self

    def when(self) -> float:
        return self._due

    def cancel(self) -> None:
        self._function = None

    def run(self, late: float = 0.0) -> bool:
        """Run the timer that many seconds late. Returns False if there is none."""
        if self._function is None:
            return False
        self.now = self._due + late
        self._function()
        return True


class KilledWorker(WorkerProcess):
    """Worker without a process, which records that it is killed."""

    __slots__ = ("killed",)

    def __init__(self, index: int) -> None:
        super().__init__(index, 1)
        self.stage, self.pid, self.killed = WorkerStage.SERVING, 100 + index, False

    def kill(self) -> None:
        self.killed = True


class ProbedWorkers:
    """Two workers whose heartbeats the test sets, and the calls that concern their connections."""

    def __init__(self) -> None:
        self.region = Region.create(2, 4, 4, 4096)
        self.eventfds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
        self.workers = [KilledWorker(index) for index in range(2)]
        self.calls: list[str] = []
        self.loop = ManualLoop()
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        core = SimpleNamespace(workers=dict(enumerate(self.workers)))
        shared = SimpleNamespace(region=self.region, eventfds=self.eventfds)
        given: Any = (self.loop, core, shared, self, self.log)
        self.probes = Probes(*given)
        self._beat = 0

    def withdraw(self, worker: WorkerProcess) -> None:
        self.calls.append(f"withdraw {worker.index}")

    def resume(self) -> None:
        self.calls.append("resume")

    def round(self, *beating: int, late: float = 0.0) -> list[str]:
        """Let workers update their heartbeats, make a round, and return the calls about connections."""
        self._beat += 1
        for index in beating:
            set_worker(self.region, index, heartbeat=self._beat)
        assert self.loop.run(late)
        calls, self.calls = self.calls, []
        return calls

    def lines(self) -> list[str]:
        return [entry.text for entry in self.log.recent()]

    def close(self) -> None:
        for descriptor in self.eventfds:
            os.close(descriptor)
        self.region.close()


@pytest.fixture
def probed() -> Iterator[ProbedWorkers]:
    made = ProbedWorkers()
    yield made
    made.close()


def test_round_wakes_live_workers_only(probed: ProbedWorkers) -> None:
    probed.workers[1].stage = WorkerStage.DEAD
    probed.round(0)
    assert os.eventfd_read(probed.eventfds[0]) == 1
    with pytest.raises(BlockingIOError):
        os.eventfd_read(probed.eventfds[1])


def test_silent_worker_gets_no_connections_until_it_responds(probed: ProbedWorkers) -> None:
    assert probed.round(0, 1) == []
    assert probed.round(1) == ["withdraw 0"]
    assert probed.lines() == [
        "Worker 0 (process 100) has not responded for 2 seconds and gets no connections meanwhile"
    ]
    assert probed.round(1) == [], "withdrawn once"
    assert probed.workers[0].silent == 2 * PROBE_EVERY
    assert probed.round(0, 1) == ["resume"]
    assert probed.workers[0].silent == 0
    assert probed.lines()[1:] == ["Worker 0 (process 100) responds again"]


def test_worker_is_killed_after_long_silence(probed: ProbedWorkers) -> None:
    probed.round(0, 1)
    rounds = 0
    while not probed.workers[0].killed:
        probed.round(1)
        rounds += 1
    assert rounds * PROBE_EVERY == KILL_AFTER
    assert not probed.workers[1].killed
    assert probed.lines()[-1] == "Worker 0 (process 100) has not responded for 10 seconds and is killed"


def test_late_round_does_not_count(probed: ProbedWorkers) -> None:
    """The supervisor itself was stopped or starved, and perhaps the workers as well."""
    probed.round(0, 1)
    assert probed.round(late=HELD_UP + 0.1) == []
    assert probed.workers[0].silent == 0
    assert probed.round(late=HELD_UP - 0.1) == ["withdraw 0", "withdraw 1"]
    assert probed.round(0, 1, late=HELD_UP + 0.1) == ["resume", "resume"], "a response always counts"


def test_closed_probes_make_no_round(probed: ProbedWorkers) -> None:
    probed.probes.close()
    assert not probed.loop.run()
