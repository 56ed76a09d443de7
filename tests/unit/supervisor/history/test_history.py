"""History: readings at multiples of its step, events, and the file."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.router.config.diff import Change
from sluice.router.config.entity import EntityConfig
from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.history import history
from sluice.supervisor.history.figures import FigureReading
from sluice.supervisor.history.history import FigureHistory
from sluice.supervisor.history.neighbourhood import Neighbourhood
from sluice.supervisor.history.processor_limit import ProcessorLimit
from sluice.supervisor.runtime.waker import Waker
from tests.unit.supervisor.history.readings import reading

BEGIN = 1_000_000.0
ROUTER = "router {\nid: A\nmode: standalone\n%s\n}\n"


class HistoryRouter:
    """History of a router whose time the test sets. `later`: delays and functions that it has scheduled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: str = "") -> None:
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        self.now = BEGIN
        self.configuration = load_text("x.conf", ROUTER % file)
        self.later: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr("sluice.supervisor.history.history.time.time", lambda: self.now)
        waker = Waker()
        waker.connect(asyncio.get_running_loop(), lambda: None)
        monkeypatch.setattr(waker, "later", self._later)
        self._counts = itertools.count()
        self.history = FigureHistory(waker, Neighbourhood(None, None), ProcessorLimit(None, self.log), self.log)
        self.history.measure(self._read)

    def _later(self, seconds: float, function: Callable[[], None]) -> Any:
        self.later.append((seconds, function))
        return asyncio.get_running_loop().create_future()

    def _read(self) -> FigureReading:
        return reading(self.now - BEGIN, linkCount=next(self._counts))

    async def start(self) -> None:
        self.history.start(self.configuration)
        await until(lambda: bool(self.later))

    def go_on(self, late: float = 0.0) -> None:
        """Let the planned reading happen, late by some seconds."""
        seconds, function = self.later.pop()
        self.now += seconds + late
        function()

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.history.events.since(0)]


def created(entity: EntityConfig) -> Change:
    return Change("create", entity.type, entity.identity, {}, "live", None, entity)


def deleted(entity: EntityConfig) -> Change:
    return Change("delete", entity.type, entity.identity, {}, "live", entity, None)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that threads make true."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def test_readings_are_taken_at_multiples_of_step(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        router = HistoryRouter(monkeypatch)
        router.now += 3.2
        await router.start()
        assert router.later[0][0] == pytest.approx(6.8), "the first reading counts for the nearest multiple"
        router.go_on()
        router.go_on(late=1.5)
        assert router.later[0][0] == pytest.approx(3.5)
        router.go_on()
        assert router.history.rings[0].read(["linkCount"]) == (BEGIN + 10, {"linkCount": [1.0, 2.0, 3.0]})

    asyncio.run(scenario())


def test_changes_of_configuration_are_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        router = HistoryRouter(monkeypatch)
        await router.start()
        text = "address {\nprefix: a\n}\naddress {\nprefix: b\n}\nvhost {\nhostname: v\n}\n"
        new = load_text("x.conf", ROUTER % "" + text)
        old = router.configuration
        made = tuple(created(each) for each in (*new.addresses, *new.vhosts))
        router.history.commit(ConfigurationChange(old, new, made))
        router.history.commit(ConfigurationChange(new, old, undo=True, whole=True))
        router.now += 100
        router.history.commit(ConfigurationChange(new, new, whole=True))
        router.history.commit(ConfigurationChange(new, new, (deleted(new.addresses[0]),)))
        router.history.worker_lost(WorkerProcess(3, 1))
        router.history.reload_refused("x.conf:3: unknown attribute\nx.conf:4: another")
        assert router.texts == [
            "The router started", "router.config.address created", "The policy changed",
            "The configuration was reloaded", "router.config.address deleted", "Worker 3 exited and is replaced",
            "The configuration is unchanged: x.conf:3: unknown attribute",
        ]  # fmt: skip

    asyncio.run(scenario())


def test_file_continues_history_after_restart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "history"

    async def first() -> None:
        router = HistoryRouter(monkeypatch, f"historyFile: {path}")
        await router.start()
        router.go_on()
        router.history.stop()
        router.history.worker_lost(WorkerProcess(0, 1))
        await router.history.finish()

    async def second() -> None:
        router = HistoryRouter(monkeypatch, f"historyFile: {path}")
        router.now += 100
        await router.start()
        router.go_on()
        assert router.history.rings[0].read(["linkCount"])[1] == {"linkCount": [1.0, *[None] * 19, 1.0]}
        assert router.texts == ["The router started", "The router was stopped", "The router started"]
        assert not router.log.recent()

    asyncio.run(first())
    asyncio.run(second())


def test_file_is_written_every_few_minutes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "history"

    async def scenario() -> None:
        router = HistoryRouter(monkeypatch, f"historyFile: {path}")
        await router.start()
        for _ in range(int(history.SAVED_EVERY // history.STEP) - 1):
            router.go_on()
        assert not path.exists()
        router.go_on()
        await until(path.exists)

    asyncio.run(scenario())


RING = '{"step": 5, "size": 720, "latest": 1, "columns": []}'


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"version": 1}',
        '{"version": 1, "rings": {}, "events": []}',
        '{"version": 1, "rings": [5, 5, 5], "events": []}',
        f'{{"version": 1, "rings": [{RING}, {RING}, {RING}], "events": []}}',
    ],
)
def test_unusable_file_is_reported_and_history_begins_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "history"
    path.write_text(content)

    async def scenario() -> None:
        router = HistoryRouter(monkeypatch, f"historyFile: {path}")
        await router.start()
        router.go_on()
        assert router.history.rings[0].read(["linkCount"])[1] == {"linkCount": [1.0]}
        assert router.log.recent()[-1].text.startswith(f"The history begins anew, since '{path}' cannot be used: it is")

    asyncio.run(scenario())


def test_unwritable_file_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def scenario() -> None:
        router = HistoryRouter(monkeypatch, f"historyFile: {tmp_path}/missing/history")
        await router.start()
        await router.history.finish()
        assert "The history cannot be saved: No such file or directory" in router.log.recent()[-1].text

    asyncio.run(scenario())


def test_file_may_be_named_while_router_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "history"

    async def scenario() -> None:
        router = HistoryRouter(monkeypatch)
        await router.start()
        new = load_text("x.conf", ROUTER % f"historyFile: {path}")
        router.history.commit(ConfigurationChange(router.configuration, new, whole=True))
        await router.history.finish()
        assert path.exists()

    asyncio.run(scenario())
