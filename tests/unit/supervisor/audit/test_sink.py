"""Audit log: its queue, its sequence numbers, and its report of missing lines."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sluice.router.config.entities import AuditConfig
from sluice.supervisor.audit.line import encode
from sluice.supervisor.audit.line_queue import LineQueue
from sluice.supervisor.audit.output import WriteResult
from sluice.supervisor.audit.sink import AuditSink, open_output

FULL = "No space left on device"
PATIENCE = 10.0  # seconds


class FakeDisk:
    """Audit output that can be full."""

    def __init__(self) -> None:
        self.full = False
        self.lines: list[dict[str, Any]] = []
        self.reopened = 0
        self.closed = False
        self.tried = threading.Semaphore(0)

    def write(self, lines: Sequence[bytes]) -> WriteResult:
        self.tried.release()
        if self.full:
            return WriteResult(0, FULL)
        self.lines += [json.loads(line) for line in lines]
        return WriteResult(len(lines))

    def reopen(self) -> str | None:
        self.reopened += 1
        return None

    def close(self) -> None:
        self.closed = True


def config(**more: Any) -> AuditConfig:
    given = {
        "name": "a", "identity": "audit/a", "output": "file", "path": "/x", "max_size": 1 << 20, "keep": 1,
        "max_queued": 32768, "refuses": False,
    }  # fmt: skip
    return AuditConfig(**{**given, **more})


class AuditLogOnDisk:
    """Audit log on a fake disk. `states`: the faults and warnings that it has reported."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **more: Any) -> None:
        self.disk = FakeDisk()
        self.states: list[tuple[str | None, str | None]] = []
        self.sink = AuditSink(loop, config(**more), self.disk, self._about, self._report)

    def _about(self, name: str, detail: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"event": name, "detail": detail}

    def _report(self, sink: AuditSink, fault: str | None, warning: str | None) -> None:
        assert sink is self.sink
        self.states.append((fault, warning))

    def write(self, number: int, size: int = 100) -> bool:
        return self.sink.write(encode({"event": "e", "number": number, "text": "x" * size}))

    async def end(self) -> None:
        self.sink.close()
        async with asyncio.timeout(PATIENCE):
            await self.sink.ended

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.001)


def run(test: Callable[[AuditLogOnDisk], Awaitable[None]], **more: Any) -> None:
    async def with_log() -> None:
        await test(AuditLogOnDisk(asyncio.get_running_loop(), **more))

    asyncio.run(with_log())


def test_lines_are_written_in_order_with_numbers() -> None:
    async def test(log: AuditLogOnDisk) -> None:
        log.sink.start()
        for number in range(500):
            assert log.write(number)
        await log.end()
        assert [line["number"] for line in log.disk.lines] == list(range(500))
        assert [line["sequence"] for line in log.disk.lines] == list(range(1, 501))
        assert log.sink.lines == 500
        assert log.disk.closed

    run(test, max_queued=1 << 20)


def test_lines_beyond_queue_are_counted_and_reported() -> None:
    async def test(log: AuditLogOnDisk) -> None:
        kept = 0
        while log.write(kept, 1000):
            kept += 1
        for number in range(4):
            assert not log.write(number, 1000)
        assert log.sink.dropped == 5
        log.sink.start()
        await log.until(lambda: log.sink.lines == kept)
        assert log.write(99)
        await log.end()
        assert [line["sequence"] for line in log.disk.lines] == [*range(1, kept + 1), kept + 6, kept + 7]
        missing = log.disk.lines[kept]
        assert missing["event"] == "audit.dropped"
        assert missing["detail"] == {"count": 5, "first": kept + 1, "last": kept + 5}
        assert log.disk.lines[-1]["number"] == 99

    run(test)


def test_short_disk_fault_loses_no_line() -> None:
    async def test(log: AuditLogOnDisk) -> None:
        log.disk.full = True
        log.sink.start()
        assert log.write(1)
        assert log.write(2)
        await log.until(lambda: log.sink.fault == FULL)
        log.disk.full = False
        await log.until(lambda: log.sink.lines == 2)
        await log.until(lambda: not log.sink.fault)
        assert log.states == [(FULL, None), (None, None)]
        assert [line["number"] for line in log.disk.lines] == [1, 2]
        assert log.sink.dropped == 0
        await log.end()

    run(test)


def test_close_with_full_disk_counts_dropped_lines() -> None:
    async def test(log: AuditLogOnDisk) -> None:
        log.disk.full = True
        log.sink.start()
        for number in range(3):
            assert log.write(number)
        await log.end()
        assert log.sink.dropped == 3
        assert log.disk.closed

    run(test)


def test_full_is_reported_before_last_octet() -> None:
    async def test(log: AuditLogOnDisk) -> None:
        def full() -> bool:
            return log.sink.full

        assert not full()
        while not full():
            assert log.write(1, 1000)
        assert log.write(2)  # lines admitted before find room
        log.sink.start()
        await log.until(lambda: not full())
        await log.end()

    run(test)


def test_reopen_without_lines_is_done() -> None:
    async def test(log: AuditLogOnDisk) -> None:
        log.sink.start()
        log.sink.reopen()
        await log.until(lambda: log.disk.reopened == 1)
        await log.end()

    run(test)


def test_changed_limits_apply_at_once() -> None:
    async def test(log: AuditLogOnDisk) -> None:
        while log.write(1, 1000):
            pass
        log.sink.use(config(max_queued=1 << 20))
        assert log.write(2, 1000)
        log.sink.start()
        await log.end()

    run(test)


def test_closed_queue_refuses_lines() -> None:
    queue = LineQueue(1000)
    assert queue.put([b"1\n", b"2\n"])
    queue.close()
    assert not queue.put([b"3\n"])
    assert queue.wait() == [b"1\n", b"2\n"]
    queue.remove(2)
    assert queue.wait() is None


def test_queue_takes_lines_all_or_none() -> None:
    queue = LineQueue(5)
    assert not queue.put([b"12\n", b"34\n"])
    assert not len(queue)
    assert queue.put([b"1234\n"])
    queue.remove(1)
    assert queue.put([b"1234\n"])


def test_open_output_reports_fault(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_output(config(path=str(tmp_path / "none" / "audit.log")))
