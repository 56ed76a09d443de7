"""Log settings of the router and its workers: changes, files, and lines that workers write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluice.router.config.diff import diff
from sluice.router.config.entities import Configuration, ListenerConfig
from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.ops import LogOp
from sluice.router.log import LogEntry, LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerFaultError, WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.telemetry.logging import KEPT, Logging


def section(**attributes: str) -> str:
    return "\n".join(["log {", *(f"{name}: {value}" for name, value in attributes.items()), "}", ""])


class RouterLogging:
    """Log subsystem of a router whose configuration has these sections, and its journal."""

    def __init__(self, text: str) -> None:
        self.configuration: Configuration = load_text("x.conf", text)
        self.log = ProcessLog(self.configuration.log_settings())
        self.journal, self.waker = Journal(), Waker()
        self.logging = Logging(self.journal, self.waker, self.log)
        self.handlers: HandlerTable[WorkerProcess] = HandlerTable(messages.Event)
        self.logging.messages(self.handlers)

    def announced(self) -> list[LogOp]:
        """Return the settings that workers have received since the last call."""
        delta = self.journal.take_delta()
        return [] if delta is None else [op for op in delta[1] if isinstance(op, LogOp)]

    async def gather(self, text: str) -> ConfigurationChange:
        """Begin a change to these sections."""
        self.waker.connect(asyncio.get_running_loop(), lambda: None)
        change = ConfigurationChange(self.configuration, load_text("x.conf", text), whole=True)
        future = self.logging.gather(change)
        if future is not None:
            change.gathered[self.logging] = await future
        return change


def test_changed_settings_apply_here_and_in_workers(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    made = RouterLogging(section(module="DEFAULT", outputFile=str(old)))

    async def scenario() -> None:
        change = await made.gather(section(module="DEFAULT", outputFile=str(new)))
        made.logging.prepare(change)
        assert made.announced() == []
        made.logging.commit(change)

    asyncio.run(scenario())
    made.log.info("SERVER", "line")
    assert "line" in new.read_text()
    assert "line" not in old.read_text()
    (op,) = made.announced()
    assert (op.settings, op.opened) == (made.log.settings.to_dict(), 0)
    assert list(made.logging.snapshot_ops()) == [op], "a new worker gets the present settings"


def test_discarded_change_leaves_settings(tmp_path: Path) -> None:
    made = RouterLogging(section(module="DEFAULT", outputFile=str(tmp_path / "old")))
    before = made.log.settings

    async def scenario() -> None:
        change = await made.gather(section(module="DEFAULT", outputFile=str(tmp_path / "new")))
        made.logging.prepare(change)
        made.logging.discard(change)
        made.logging.commit(change)

    asyncio.run(scenario())
    assert (made.log.settings, made.announced()) == (before, [])


def test_equal_settings_are_not_announced(tmp_path: Path) -> None:
    text = section(module="DEFAULT", outputFile=str(tmp_path / "log"))
    made = RouterLogging(text)

    async def scenario() -> None:
        change = await made.gather(text)
        made.logging.prepare(change)
        made.logging.commit(change)

    asyncio.run(scenario())
    assert made.announced() == []


def test_change_with_unusable_file_is_refused(tmp_path: Path) -> None:
    made = RouterLogging(section(module="DEFAULT", outputFile=str(tmp_path / "old")))
    with pytest.raises(ChangeError, match="CError: Configuration: ") as caught:
        asyncio.run(made.gather(section(module="DEFAULT", outputFile=str(tmp_path / "none" / "log"))))
    assert caught.value.status == 500


def test_change_of_other_entities_opens_nothing(tmp_path: Path) -> None:
    made = RouterLogging(section(module="DEFAULT", outputFile=str(tmp_path / "old")))
    new = load_text("x.conf", section(module="DEFAULT", outputFile=str(tmp_path / "new")) + "listener {\nport: 0\n}\n")
    plan = diff(made.configuration, new)
    entities = [each for each in plan.changes if isinstance(each.new, ListenerConfig)]
    assert len(entities) == 1
    assert made.logging.gather(ConfigurationChange(made.configuration, new, entities)) is None
    assert not (tmp_path / "new").exists()


def test_rotated_files_are_reopened_here_and_in_workers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    made = RouterLogging(section(module="DEFAULT", outputFile=str(path)))
    made.log.info("SERVER", "before")
    path.rename(tmp_path / "log.1")

    async def scenario() -> None:
        made.waker.connect(asyncio.get_running_loop(), lambda: None)
        await made.logging.reopen()

    asyncio.run(scenario())
    made.log.info("SERVER", "after")
    assert "after" in path.read_text()
    assert "after" not in (tmp_path / "log.1").read_text()
    assert [op.opened for op in made.announced()] == [1]


def test_file_that_cannot_be_reopened_keeps_old_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    made = RouterLogging(section(module="DEFAULT", outputFile=str(folder / "log")))
    folder.rename(tmp_path / "moved")

    async def scenario() -> None:
        made.waker.connect(asyncio.get_running_loop(), lambda: None)
        await made.logging.reopen()

    asyncio.run(scenario())
    assert KEPT in (tmp_path / "moved" / "log").read_text()


def test_line_of_worker_is_written() -> None:
    made = RouterLogging(section(module="DEFAULT", outputFile="/dev/null"))
    made.handlers.handle(WorkerProcess(0, 1), messages.Log(level="info", module="SERVER", text="hello"))
    assert [(each.module, each.text) for each in made.log.recent()] == [("SERVER", "hello")]


@pytest.mark.parametrize(("level", "module"), [("loud", "SERVER"), ("info", "NONE")])
def test_line_with_unknown_level_or_module_is_fault_of_worker(level: str, module: str) -> None:
    made = RouterLogging(section(module="DEFAULT", outputFile="/dev/null"))
    with pytest.raises(WorkerFaultError, match="does not exist"):
        made.handlers.handle(WorkerProcess(0, 1), messages.Log(level=level, module=module, text="x"))


def test_lines_of_supervisor_and_worker_are_exported() -> None:
    made = RouterLogging(section(module="DEFAULT", outputFile="/dev/null"))
    found: list[tuple[list[str], int | None, int]] = []
    made.log.info("SERVER", "before")
    made.logging.export(
        lambda entries, worker, missing: found.append(([each.text for each in entries], worker, missing))
    )
    made.log.info("SERVER", "of the supervisor")
    entry = LogEntry("SERVER", "info", "of the worker", None, None, 7)
    made.handlers.handle(WorkerProcess(2, 1), messages.Logged(counts={}, lines=[entry], missing=3))
    made.logging.export(None)
    made.log.info("SERVER", "after")
    assert found == [(["of the supervisor"], None, 0), (["of the worker"], 2, 3)]
    assert [each.text for each in made.logging.recent()[-2:]] == ["of the worker", "after"]


def test_entry_of_worker_with_unknown_level_is_fault_of_worker() -> None:
    made = RouterLogging(section(module="DEFAULT", outputFile="/dev/null"))
    entry = LogEntry("SERVER", "loud", "x", None, None, 7)
    with pytest.raises(WorkerFaultError, match="does not exist"):
        made.handlers.handle(WorkerProcess(0, 1), messages.Logged(counts={}, lines=[entry]))


def test_lines_and_counts_of_worker_are_added() -> None:
    made = RouterLogging(section(module="DEFAULT", outputFile="/dev/null"))
    worker = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")}))
    worker.error("SERVER", "of the worker")
    counts, lines = worker.take_log_changes()
    made.handlers.handle(WorkerProcess(0, 1), messages.Logged(counts=counts, lines=lines))
    assert made.log.counters()["SERVER"]["error"] == 1
    assert made.log.recent()[-1].text == "of the worker"
    with pytest.raises(WorkerFaultError):
        made.handlers.handle(WorkerProcess(0, 1), messages.Logged(counts={"NONE": [1] * 7}, lines=[]))
