"""SIGHUP: log files are opened again, then the configuration is reloaded, once for signals that arrive meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.configuration.reload_requests import HangUp


class SignalledRouter:
    """Router that gets SIGHUP, with the calls that result."""

    def __init__(self) -> None:
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        self.calls: list[str] = []
        self.opened = asyncio.Event()  # set: the log files can be opened
        self.fault: Exception | None = None
        given: Any = (asyncio.get_running_loop(), _Logging(self), _Audit(self), _ReloadQueue(self), self.log)
        self.hang_up = HangUp(*given)

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


class _Audit:
    def __init__(self, router: SignalledRouter) -> None:
        self._router = router

    def reopen(self) -> None:
        self._router.calls.append("audit")


class _Logging:
    def __init__(self, router: SignalledRouter) -> None:
        self._router = router

    async def reopen(self) -> None:
        self._router.calls.append("logs")
        await self._router.opened.wait()
        if self._router.fault is not None:
            raise self._router.fault


class _ReloadQueue:
    def __init__(self, router: SignalledRouter) -> None:
        self._router = router

    def ask(self) -> None:
        self._router.calls.append("reload")


def run(scenario: Callable[[SignalledRouter], Awaitable[None]]) -> None:
    async def body() -> None:
        await scenario(SignalledRouter())

    asyncio.run(body())


def test_log_files_are_open_before_reload() -> None:
    async def scenario(router: SignalledRouter) -> None:
        router.hang_up()
        await router.settle()
        assert router.calls == ["audit", "logs"]
        router.opened.set()
        await router.settle()
        assert router.calls == ["audit", "logs", "reload"]

    run(scenario)


def test_signals_during_another_one_count_as_one() -> None:
    async def scenario(router: SignalledRouter) -> None:
        for _ in range(4):
            router.hang_up()
            await router.settle()
        router.opened.set()
        await router.settle()
        await router.settle()
        assert router.calls == ["audit", "logs", "reload"] * 2
        router.hang_up()
        await router.settle()
        assert router.calls == ["audit", "logs", "reload"] * 3, "a later signal counts"

    run(scenario)


def test_reload_follows_failure_to_open_log_files() -> None:
    async def scenario(router: SignalledRouter) -> None:
        router.fault = RuntimeError("bad luck")
        router.opened.set()
        router.hang_up()
        await router.settle()
        assert router.calls == ["audit", "logs", "reload"]
        (line,) = [entry for entry in router.log.recent() if entry.level == "critical"]
        assert "bad luck" in line.text

    run(scenario)
