"""Watch for a changed configuration file: one reload for each change, once the states of the files are stable."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from sluice.router.config.diff import diff
from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.configuration.reloads import Result
from sluice.supervisor.configuration.watch import ConfigurationWatch
from tests.unit.supervisor.harness import configuration_text


class WatchedConfiguration:
    """Configuration in a volume of Kubernetes (`file` leads to `..data/file`), and its watch."""

    def __init__(self, folder: Path, watched: bool = True) -> None:
        self.folder = folder
        self.file = folder / "router.conf"
        self.policies = folder / "policy"
        self.policies.mkdir()
        self.versions = 0
        self.calls: list[str] = []
        self.changes: tuple[Any, ...] = ()  # changes in the next plan
        self.publish("1")
        self.file.symlink_to("..data/router.conf")
        configuration = load_text(str(self.file), configuration_text())
        router = SimpleNamespace(watch_configuration=watched)
        policy = SimpleNamespace(directory=str(self.policies))
        self.live = SimpleNamespace(configuration=SimpleNamespace(path=str(self.file), router=router, policy=policy))
        self._plan = diff(configuration, configuration)
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        given: Any = (asyncio.get_running_loop(), self.live, self, log)
        self.watch = ConfigurationWatch(*given)

    def publish(self, text: str) -> None:
        """Replace all files as the kubelet does: a new folder, and one renamed link to it."""
        self.versions += 1
        version = self.folder / f"..{self.versions}"
        version.mkdir()
        (version / "router.conf").write_text(text)
        (self.folder / "..data_tmp").symlink_to(version.name)
        os.rename(self.folder / "..data_tmp", self.folder / "..data")

    def ask(self, *, source: str, plan_only: bool = False) -> asyncio.Future[Result]:
        """Stand in for `Reloads.ask`."""
        assert source == "watchConfiguration"
        self.calls.append("plan" if plan_only else "reload")
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        result.set_result(replace(self._plan, changes=self.changes))
        return result

    async def look(self, checks: int = 2) -> list[str]:
        """Make checks, and return the requests that they made."""
        self.calls.clear()
        for _ in range(checks):
            await self.watch.look()
        return self.calls


def run(folder: Path, scenario: Callable[[WatchedConfiguration], Awaitable[None]], watched: bool = True) -> None:
    async def body() -> None:
        await scenario(WatchedConfiguration(folder, watched))

    asyncio.run(body())


def test_unchanged_file_is_planned_once_and_not_reloaded(tmp_path: Path) -> None:
    async def scenario(watched: WatchedConfiguration) -> None:
        assert await watched.look(4) == ["plan"], "it may have changed between its reading and the first check"

    run(tmp_path, scenario)


def test_file_changed_before_first_check_is_reloaded(tmp_path: Path) -> None:
    async def scenario(watched: WatchedConfiguration) -> None:
        watched.changes = ("a change",)
        assert await watched.look(4) == ["plan", "reload"]

    run(tmp_path, scenario)


def test_swapped_link_is_reloaded_when_states_are_stable(tmp_path: Path) -> None:
    async def scenario(watched: WatchedConfiguration) -> None:
        await watched.look()
        watched.publish("2")
        assert await watched.look(1) == []
        watched.publish("3")
        assert await watched.look(1) == [], "it has changed once more"
        assert await watched.look(1) == ["reload"]
        assert await watched.look(3) == []

    run(tmp_path, scenario)


def test_changed_vhost_file_is_reloaded(tmp_path: Path) -> None:
    async def scenario(watched: WatchedConfiguration) -> None:
        await watched.look()
        (watched.policies / "tenant.json").write_text("[]")
        assert await watched.look() == ["reload"]
        (watched.policies / "notes.txt").write_text("this also changes the folder")
        assert await watched.look() == ["reload"]
        (watched.policies / "tenant.json").unlink()
        assert await watched.look(3) == ["reload"]

    run(tmp_path, scenario)


def test_missing_file_is_reloaded_once(tmp_path: Path) -> None:
    """The reload logs the error; the configuration in force stays."""

    async def scenario(watched: WatchedConfiguration) -> None:
        await watched.look()
        watched.file.unlink()
        assert await watched.look(4) == ["reload"]

    run(tmp_path, scenario)


def test_unwatched_file_is_ignored_until_reload_turns_the_watch_on(tmp_path: Path) -> None:
    async def scenario(watched: WatchedConfiguration) -> None:
        assert await watched.look(3) == []
        watched.publish("2")
        assert await watched.look(3) == []
        watched.live.configuration.router.watch_configuration = True
        assert await watched.look(3) == ["plan"]

    run(tmp_path, scenario, watched=False)
