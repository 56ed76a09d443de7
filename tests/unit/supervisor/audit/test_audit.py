"""Audit subsystem with files: start and end of logs, changes of their sections, and lines that find no room."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.router.config.diff import diff
from sluice.router.config.entities import AuditConfig, Configuration
from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.audit import audit
from sluice.supervisor.audit.audit import Audit, AuditStartError
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.runtime.waker import Waker
from tests.unit.supervisor.audit.test_sink import FULL, FakeDisk
from tests.unit.supervisor.harness import PATIENCE, configuration_text


@pytest.fixture(autouse=True)
def patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the last lines however slow this machine is."""
    monkeypatch.setattr(audit, "CLOSE_SECONDS", PATIENCE)


class AuditLogsInFolder:
    """Audit subsystem with logs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        waker = Waker()
        waker.connect(asyncio.get_running_loop(), lambda: None)
        self.audit = Audit(self.configuration(), waker, self.log)
        self.now = self.configuration()

    def configuration(self, **logs: str) -> Configuration:
        """Return a configuration with these audit logs: file name and further attributes, by name."""
        text = configuration_text()
        for name, attributes in logs.items():
            text += f"audit {{\nname: {name}\noutput: file\npath: {self.folder}/{attributes}\n}}\n"
        return load_text("router.conf", text)

    def open(self, **logs: str) -> None:
        """Start the router with these logs."""
        self.now = self.configuration(**logs)
        self.audit.open(self.now, {"version": "1"})

    async def prepare(self, new: Configuration) -> ConfigurationChange:
        """Prepare a reload. Raises ChangeError."""
        change = ConfigurationChange(self.now, new, whole=True)
        gathered = self.audit.gather(change)
        if gathered is not None:
            change.gathered[self.audit] = await gathered
        self.audit.prepare(change)
        return change

    async def reload(self, **logs: str) -> None:
        new = self.configuration(**logs)
        self.audit.commit(await self.prepare(new))
        self.now = new

    def enabled(self) -> bool:
        return self.audit.enabled

    def refuses(self) -> bool:
        return self.audit.refuses

    def report(self, name: str = "e") -> None:
        self.audit.trail.report(name, None, {}, {})

    async def events(self, file: str, count: int) -> list[dict[str, Any]]:
        """Return the events of a file once it has this number of lines."""
        await self.until(lambda: (self.folder / file).read_text().count("\n") >= count)
        lines = (self.folder / file).read_text().splitlines()
        assert len(lines) == count
        return [json.loads(line) for line in lines]

    async def names(self, file: str, count: int) -> list[str]:
        return [event["event"] for event in await self.events(file, count)]

    def lines(self) -> list[str]:
        return [entry.text for entry in self.log.recent()]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.001)

    def shown(self, name: str) -> dict[str, Any]:
        """Return the live attributes of a log."""
        (config,) = (each for each in self.now.others if isinstance(each, AuditConfig) and each.name == name)
        return dict(self.audit.live_attributes()["audit"](config))


def descriptors(file: Path) -> int:
    """Return the number of open descriptors of a file."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}") == str(file)
        except OSError:
            continue  # of `listdir`
    return count


Scenario = Callable[[AuditLogsInFolder], Awaitable[None]]


def run(folder: Path, scenario: Scenario) -> None:
    async def body() -> None:
        await scenario(AuditLogsInFolder(folder))

    asyncio.run(body())


def test_logs_have_all_events_from_start_to_stop(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        router.report("too early")
        router.open(a="a", b="b")
        assert router.enabled()
        router.report()
        await router.audit.finish("SIGTERM")
        assert not router.enabled()
        for file in ("a", "b"):
            names = ["audit.start", "router.start", "e", "router.stop", "audit.stop"]
            # The first log tells of the start of the second.
            events = await router.events(file, 5)
            assert [event["event"] for event in events] == names
            assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5]
            assert events[1]["detail"] == {"version": "1", "pid": os.getpid()}
            assert events[3]["detail"] == {"reason": "SIGTERM"}
        assert (router.audit.lines, router.audit.dropped) == (10, 0)

    run(tmp_path, scenario)


def test_router_without_section_discards_events(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        router.open()
        router.report()
        assert not router.enabled()
        await router.audit.finish("SIGTERM")
        assert (router.audit.lines, router.audit.dropped) == (0, 0)

    run(tmp_path, scenario)


def test_log_that_cannot_be_opened_prevents_start(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        with pytest.raises(
            AuditStartError, match=r"router.conf:\d+: The audit log 'a' cannot be opened: .*No such file"
        ):
            router.open(a="none/a")

    run(tmp_path, scenario)


# -- Changes


def test_added_and_removed_logs_report_it(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a")
        await router.reload(a="a", b="b")
        router.report()
        await router.reload(b="b")
        router.report()
        assert await router.names("a", 4) == ["audit.start", "router.start", "e", "audit.stop"]
        assert await router.names("b", 3) == ["audit.start", "e", "e"]
        (stop,) = (each for each in await router.events("a", 4) if each["event"] == "audit.stop")
        assert stop["detail"] == {"name": "a", "reason": "the configuration has changed"}
        await router.until(lambda: router.audit.lines == 7)  # with the lines of the former log
        await router.audit.finish("end")

    run(tmp_path, scenario)


def test_log_with_same_output_continues_with_new_limits(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a")
        await router.reload(a="a\nmaxQueued: 131072")
        router.report()
        assert await router.names("a", 3) == ["audit.start", "router.start", "e"]
        await router.audit.finish("end")

    run(tmp_path, scenario)


def test_log_with_other_output_begins_anew(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a")
        await router.reload(a="other")
        router.report()
        assert await router.names("a", 3) == ["audit.start", "router.start", "audit.stop"]
        assert [event["sequence"] for event in await router.events("other", 2)] == [1, 2]
        await router.audit.finish("end")

    run(tmp_path, scenario)


def test_failed_change_leaves_logs_unchanged(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a")
        with pytest.raises(ChangeError, match="The audit log 'c' cannot be opened"):
            await router.reload(b="b", c="none/c")
        assert descriptors(tmp_path / "b") == 0
        router.report()
        assert await router.names("a", 3) == ["audit.start", "router.start", "e"]
        await router.until(lambda: router.shown("a")["linesWritten"] == 3)
        assert router.shown("a") == {"linesWritten": 3, "linesDropped": 0, "fault": None}
        await router.audit.finish("end")

    run(tmp_path, scenario)


def test_discarded_change_closes_its_outputs(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a")
        change = await router.prepare(router.configuration(a="a", b="b"))
        assert descriptors(tmp_path / "b") == 1
        router.audit.discard(change)
        assert descriptors(tmp_path / "b") == 0
        overtaken = ConfigurationChange(router.now, router.configuration(a="a", c="c"), whole=True)
        gathered = router.audit.gather(overtaken)
        assert gathered is not None
        overtaken.gathered[router.audit] = await gathered
        router.audit.discard(overtaken)
        assert descriptors(tmp_path / "c") == 0
        await router.audit.finish("end")

    run(tmp_path, scenario)


def test_reverse_change_opens_outputs_itself(tmp_path: Path) -> None:
    """After an internal error nothing is gathered."""

    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a")
        before = router.now
        await router.reload()
        change = ConfigurationChange(router.now, before, whole=True, undo=True)
        router.audit.prepare(change)
        router.audit.commit(change)
        names = await router.names("a", 4)
        assert names[:2] == ["audit.start", "router.start"]
        assert sorted(names[2:]) == ["audit.start", "audit.stop"], "threads of the old and the new log write"
        await router.audit.finish("end")

    run(tmp_path, scenario)


def test_observers_get_changed_entities(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        seen: list[object] = []
        router.audit.when_changed(seen.append)
        new = router.configuration(a="a")
        entities = diff(router.now, new).changes
        change = ConfigurationChange(router.now, new, entities)
        router.audit.prepare(change)
        router.audit.commit(change)
        assert seen == [entities]
        await router.audit.finish("end")

    run(tmp_path, scenario)


# -- Faults


def test_full_log_refuses_actions_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    monkeypatch.setattr(audit, "open_output", lambda config: disk)

    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a\nmaxQueued: 65536\nonFull: refuse")
        assert not router.refuses()
        disk.full = True
        while not router.audit.dropped:
            router.report()
        assert router.refuses()
        assert router.lines()[0].startswith("The audit log 'a' loses lines: ")
        await router.until(lambda: len(router.lines()) == 2)
        assert router.lines()[1] == (
            f"The audit log 'a' cannot be written: {FULL}; its lines wait, and writing is retried"
        )
        assert router.shown("a")["fault"] == FULL
        disk.full = False
        router.audit.reopen()  # writes at once
        await router.until(lambda: len(router.lines()) == 3)
        assert router.lines()[2] == "The audit log 'a' can be written again"
        router.report()
        await router.audit.finish("end")
        assert not router.refuses(), "the log has ended"
        dropped = [line for line in disk.lines if line["event"] == "audit.dropped"]
        assert [line["detail"]["count"] for line in dropped] == [router.audit.dropped]

    run(tmp_path, scenario)


def test_full_log_refuses_actions_only_if_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    monkeypatch.setattr(audit, "open_output", lambda config: disk)

    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a\nmaxQueued: 65536")
        disk.full = True
        while not router.audit.dropped:
            router.report()
        assert not router.refuses()
        await router.reload(a="a\nmaxQueued: 65536\nonFull: refuse")
        assert router.refuses()
        disk.full = False
        await router.audit.finish("end")

    run(tmp_path, scenario)


def test_lines_that_are_lost_at_the_end_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    monkeypatch.setattr(audit, "open_output", lambda config: disk)

    async def scenario(router: AuditLogsInFolder) -> None:
        disk.full = True
        router.open(a="a")
        await router.audit.finish("end")
        assert router.lines()[-1] == f"The audit log 'a' was closed, and its last lines are lost: {FULL}"
        assert (router.audit.lines, router.audit.dropped) == (0, 4)

    run(tmp_path, scenario)


def test_reopened_log_writes_to_new_file(tmp_path: Path) -> None:
    async def scenario(router: AuditLogsInFolder) -> None:
        router.open(a="a")
        await router.names("a", 2)
        (tmp_path / "a").rename(tmp_path / "a.1")
        router.audit.reopen()
        await router.until((tmp_path / "a").exists)
        router.report()
        assert [event["sequence"] for event in await router.events("a", 1)] == [3]
        await router.audit.finish("end")

    run(tmp_path, scenario)
