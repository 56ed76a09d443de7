"""Thread that writes one audit log: retries, reports, reopening, and its end."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluice.supervisor.audit.line_queue import LineQueue
from sluice.supervisor.audit.writer import AuditWriter
from tests.unit.supervisor.audit.test_sink import FULL, FakeDisk
from tests.unit.supervisor.harness import PATIENCE

NEVER = 3600.0  # delay in seconds before a retry that no test waits for


class WriterOnDisk:
    """Writer with its queue and a fake disk. `states`: the faults and warnings that it has reported."""

    def __init__(self, retry: float) -> None:
        self.queue = LineQueue(1 << 20)
        self.disk = FakeDisk()
        self.states: queue.Queue[tuple[str | None, str | None]] = queue.Queue()
        self.ended = threading.Event()
        self.writer = AuditWriter(self.queue, self.disk, self._report, self.ended.set, retry)

    def _report(self, fault: str | None, warning: str | None) -> None:
        self.states.put((fault, warning))

    def put(self, *numbers: int) -> None:
        assert self.queue.put([json.dumps(number).encode() + b"\n" for number in numbers])

    def written(self) -> list[Any]:
        """Return what the disk has."""
        return list(self.disk.lines)

    def state(self) -> tuple[str | None, str | None]:
        """Return the next reported state."""
        return self.states.get(timeout=PATIENCE)

    def try_to_write(self) -> None:
        """Wait until the writer has called the disk once more."""
        assert self.disk.tried.acquire(timeout=PATIENCE)

    def end(self) -> None:
        self.queue.close()
        assert self.ended.wait(PATIENCE)


Make = Callable[..., WriterOnDisk]


@pytest.fixture
def make() -> Iterator[Make]:
    """Function that makes a writer; all of them end with the test."""
    made: list[WriterOnDisk] = []

    def begin(retry: float = NEVER) -> WriterOnDisk:
        made.append(WriterOnDisk(retry))
        return made[-1]

    yield begin
    for each in made:
        each.end()


def test_queued_lines_are_written_before_end(make: Make) -> None:
    log = make()
    log.put(*range(200))
    log.writer.start()
    log.put(200)
    log.end()
    assert log.written() == [*range(201)]
    assert (log.writer.lines, len(log.queue)) == (201, 0)
    assert log.disk.closed
    assert log.states.empty(), "there was no fault"


def test_failed_lines_stay_in_queue_and_are_tried_again(make: Make) -> None:
    log = make(retry=0.01)
    log.disk.full = True
    log.writer.start()
    log.put(1, 2)
    for _ in range(3):
        log.try_to_write()
    assert (log.writer.lines, len(log.queue)) == (0, 2)
    log.disk.full = False
    assert [log.state(), log.state()] == [(FULL, None), (None, None)], "each change is reported once"
    log.end()
    assert log.written() == [1, 2]


def test_lines_that_cannot_be_written_at_the_end_stay_in_queue(make: Make) -> None:
    log = make()
    log.disk.full = True
    log.writer.start()
    log.put(1)
    log.try_to_write()
    log.end()
    assert (log.written(), len(log.queue)) == ([], 1)
    assert log.disk.closed


def test_reopening_ends_pause_after_failure(make: Make) -> None:
    log = make()
    log.disk.full = True
    log.writer.start()
    log.put(1)
    assert log.state() == (FULL, None)
    log.try_to_write()
    assert not log.disk.tried.acquire(timeout=0.05), "the next try comes after the pause"
    log.disk.full = False
    log.writer.reopen()
    assert log.state() == (None, None)
    assert (log.disk.reopened, log.written()) == (1, [1])


def test_failed_reopening_is_a_warning_each_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make()
    monkeypatch.setattr(log.disk, "reopen", lambda: "no such folder")
    log.writer.start()
    for _ in range(2):
        log.writer.reopen()
        assert log.state() == (None, "no such folder")
