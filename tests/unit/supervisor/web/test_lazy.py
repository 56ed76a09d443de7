"""Creation of the HTTP service for the first HTTP listener."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.web import lazy
from sluice.supervisor.web.lazy import HttpListeners, LazyHttp
from tests.unit.supervisor.harness import configuration_text

OFF = load_text("router.conf", configuration_text())
ON = load_text("router.conf", configuration_text() + "listener {\nport: 0\nhttp: yes\n}\n")
MODULE = "sluice.supervisor.web.server"


class _Service:
    """HTTP service without listeners."""

    def __init__(self) -> None:
        self.stopped = False
        self.open_listeners = ("listener",)

    async def stop(self) -> None:
        self.stopped = True


class UnloadedHttp:
    """LazyHttp whose libraries are not loaded, with the services that it creates."""

    def __init__(self) -> None:
        self.made: list[_Service] = []
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
        self.http = LazyHttp(asyncio.get_running_loop(), self._make, self.log)

    def _make(self) -> HttpListeners:
        self.made.append(_Service())
        return cast("HttpListeners", self.made[-1])

    async def gather(self, change: ConfigurationChange) -> bool:
        """Gather for a change, and return whether that took time."""
        future = self.http.gather(change)
        if future is not None:
            await future
        return future is not None


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the modules that are loaded, in place of loading them."""
    names: list[str] = []
    monkeypatch.setattr(lazy, "import_module", names.append)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return names


def run(scenario: Callable[[UnloadedHttp], Awaitable[None]]) -> None:
    async def body() -> None:
        await scenario(UnloadedHttp())

    asyncio.run(body())


def test_service_is_created_once_on_demand() -> None:
    async def scenario(unloaded: UnloadedHttp) -> None:
        assert list(unloaded.http.open_listeners) == []
        await unloaded.http.close()
        assert unloaded.made == []
        assert unloaded.http.service() is unloaded.http.service()
        assert len(list(unloaded.http.open_listeners)) == 1
        await unloaded.http.close()
        assert [service.stopped for service in unloaded.made] == [True]

    run(scenario)


def test_libraries_are_loaded_before_first_http_listener(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(unloaded: UnloadedHttp) -> None:
        assert not await unloaded.gather(ConfigurationChange(OFF, OFF, whole=True))
        assert await unloaded.gather(ConfigurationChange(OFF, ON, whole=True))
        assert loaded == [MODULE]
        monkeypatch.setitem(sys.modules, MODULE, lazy)
        assert not await unloaded.gather(ConfigurationChange(OFF, ON, whole=True)), "they are loaded"
        assert unloaded.made == [], "the change may still be refused"

    run(scenario)


def test_missing_library_is_logged(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError("No module named 'aiohttp'")

    async def scenario(unloaded: UnloadedHttp) -> None:
        monkeypatch.setattr(lazy, "import_module", fail)
        assert await unloaded.gather(ConfigurationChange(OFF, ON, whole=True))
        (line,) = [entry.text for entry in unloaded.log.recent() if entry.level == "error"]
        assert "aiohttp" in line

    run(scenario)
