"""Changes of a running configuration: all or nothing, finally in force, and without blocking the event loop."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from sluice.router.config.diff import Plan
from sluice.router.config.entities import ListenerConfig
from sluice.router.config.load import load
from sluice.router.log import ERROR, open_outputs
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.configuration.live import LiveConfiguration
from sluice.supervisor.configuration.prepare import prepare
from sluice.supervisor.configuration.reloads import Reloads
from sluice.supervisor.runtime.host_names import look_up
from tests.unit.supervisor.harness import configuration_text
from tests.unit.supervisor.listeners.test_acceptor import AcceptorWithWorkers, until

ADDRESS = "router.config.address"
BASE = (
    configuration_text().replace("router {", "router {\n    allowFilesByManagement: yes")
    + """
log {
    module: DEFAULT
    outputFile: /dev/null
}
"""
)
MORE = """
address {
    prefix: more
    distribution: multicast
}
linkRoute {
    prefix: lr
    direction: in
    containerId: c
}
autoLink {
    address: al
    direction: in
    containerId: c
}
exchange {
    name: E
    address: ex
}
binding {
    exchangeName: E
    bindingKey: a.b
    nextHopAddress: hop
}
connector {
    name: c
    host: 127.0.0.1
    port: 1
}
listener {
    name: further
    host: 127.0.0.1
    port: 0
}
log {
    module: AGENT
    enable: trace+
    outputFile: agent.log
}
"""


class ReconfigurableRouter(AcceptorWithWorkers):
    """Live configuration of a router with a real acceptor, and the file that it was read from."""

    def __init__(self, folder):
        self.path = folder / "router.conf"
        self.path.write_text(BASE)
        configuration = load(str(self.path))
        super().__init__(workers=1, configuration=configuration)
        self.log.apply(configuration.log_settings())
        core = self.core
        core.waker.connect(self.loop, self.changed)
        self.listening, self.connectors, self.autolinks = (
            self.services.listening,
            self.services.connectors,
            core.auto_links,
        )
        settings = core.settings
        self.live = LiveConfiguration(self.loop, configuration, settings.current, core.events, core.waker, self.log)
        self.reloads = Reloads(self.loop, self.live, settings.when_in_force, core.waker, self.log)
        core.start(configuration)
        self.reloads.start()

    def changed(self):
        self.loop.call_soon(self.settle)

    def settle(self):
        while self.core.take_delta() is not None or self.core.busy:
            pass

    async def change(self, steps):
        """Run the steps of a change as the management agent does."""
        while True:
            try:
                awaited = next(steps)
            except StopIteration as stop:
                return stop.value
            if awaited is not None:
                await asyncio.wait([awaited])

    async def create(self, kind, name=None, **attributes):
        return await self.change(self.live.create(kind, name, attributes))

    async def change_error(self, pending):
        result = await pending
        assert isinstance(result, ChangeError)
        return result

    async def reload(self, text=None):
        if text is not None:
            self.path.write_text(text)
        result = await self.reloads.ask()
        assert isinstance(result, Plan), result
        return result

    def lines(self, level="error"):
        return [entry.text for entry in self.log.recent() if entry.level == level]

    def ports(self):
        return [listener.port for listener in self.acceptor.listeners]

    def state(self):
        """Return what is in force, as far as it is visible from outside."""
        return {
            "configuration": self.live.configuration,
            "settings": sorted(self.core.settings.patterns()),
            "link routes": [route.config.identity for route in self.core.link_routes],
            "auto links": (len(self.core.auto_links), sorted(self.core.table.records)),
            "exchanges": self.core.exchanges.snapshot_ops(),
            "connectors": sorted(self.connectors._running),
            "listeners": [listener.config for listener in self.acceptor.listeners],
            "log": self.log.settings,
        }

    def close(self):
        self.core.stop()
        super().close()


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run_scenario(scenario):
        async def body():
            router = ReconfigurableRouter(tmp_path)
            try:
                await scenario(router)
            finally:
                router.close()

        asyncio.run(body())

    return run_scenario


def failing(function, faults):
    """Return `function` such that it raises each of `faults` once, after its work."""

    def fail(*arguments):
        if faults:
            function(*arguments)
            raise faults.pop()
        return function(*arguments)

    return fail


PARTS = {
    "settings": lambda router: (router.core.settings, "replace"),
    "exchanges": lambda router: (router.core.exchanges, "replace"),
    "link routes": lambda router: (router.core.link_routes, "replace"),
    "auto links": lambda router: (router.autolinks, "replace"),
    "connectors": lambda router: (router.connectors, "replace"),
    "listeners": lambda router: (router.listening, "commit"),
}


@pytest.mark.parametrize("part", PARTS)
def test_reload_with_internal_error_is_undone(run, part, monkeypatch):
    async def scenario(router):
        before = router.state()
        owner, name = PARTS[part](router)
        fails = failing(getattr(owner, name), [RuntimeError("bad luck")])
        monkeypatch.setattr(type(owner), name, property(lambda own: fails))
        router.path.write_text(BASE + MORE)
        error = await router.change_error(router.reloads.ask())
        assert error.status == 500
        assert "bad luck" in error.text
        assert any("bad luck" in line for line in router.lines("critical"))
        router.settle()
        assert router.state() == before
        assert len((await router.reload()).changes) == 8
        assert router.state()["settings"] == ["fallback/#", "more/#"]

    run(scenario)


def test_single_change_with_internal_error_is_undone(run):
    async def scenario(router):
        before = router.state()
        add, router.autolinks._add = router.autolinks._add, failing(router.autolinks._add, [RuntimeError("bad luck")])
        with pytest.raises(ChangeError, match="bad luck") as caught:
            await router.create("router.config.autoLink", address="al", direction="in", containerId="c")
        assert caught.value.status == 500
        router.settle()
        assert router.state() == before
        router.autolinks._add = add
        await router.create("router.config.autoLink", address="al", direction="in", containerId="c")
        assert len(router.core.auto_links) == 1

    run(scenario)


def test_entities_are_in_the_file_until_management_changes_them(run):
    async def scenario(router):
        assert all(router.live.in_file(entity) for entity in router.live.configuration.entities())
        made = await router.create(ADDRESS, prefix="made")
        assert not router.live.in_file(made)
        (log,) = [each for each in router.live.entities("log") if each.name == "log/SERVER"]
        before = log.values.get("enable")
        changed = await router.change(router.live.update(log, {"enable": "trace+"}))
        assert not router.live.in_file(changed)
        assert router.live.in_file(await router.change(router.live.update(changed, {"enable": before})))
        await router.reload(BASE + MORE + "address {\nprefix: made\n}\n")
        assert all(router.live.in_file(entity) for entity in router.live.configuration.entities())
        assert not isinstance(await router.reloads.ask(undo=True), ChangeError)
        (undone,) = [each for each in router.live.entities(ADDRESS) if each.prefix == "made"]
        assert router.live.in_file(undone), "the file has it, although management has created it"

    run(scenario)


def test_reload_with_internal_error_is_answered(run, monkeypatch):
    async def scenario(router):
        monkeypatch.setattr("sluice.supervisor.configuration.reloads.prepare", failing(prepare, [OSError(5)]))
        assert (await router.change_error(router.reloads.ask())).status == 500
        assert len((await router.reload(BASE + MORE)).changes) == 8

    run(scenario)


def test_waiting_reload_requests_share_one_reload(run, monkeypatch):
    async def scenario(router):
        prepared_calls = []

        def recorded(*given):
            prepared_calls.append(given)
            return prepare(*given)

        monkeypatch.setattr("sluice.supervisor.configuration.reloads.prepare", recorded)
        first = router.reloads.ask()
        others = [router.reloads.ask() for _ in range(100)]
        plan = router.reloads.ask(plan_only=True)
        undo = router.reloads.ask(undo=True)
        again = router.reloads.ask()
        assert len(set(map(id, others))) == 1
        await asyncio.wait([first, *others, plan, undo, again])
        assert len(prepared_calls) == 4, "no change to undo"

    run(scenario)


def test_reload_beside_continuous_changes_ends(run, monkeypatch):
    async def scenario(router):
        changes: list[asyncio.Task[Any]] = []

        def change():
            task = router.loop.create_task(router.create(ADDRESS, prefix=f"x{len(changes)}"))
            changes.append(task)

        def prepare_and_change(*given):
            router.loop.call_soon_threadsafe(change)
            prepared = prepare(*given)
            router.loop.call_soon_threadsafe(lambda: None)
            return prepared

        monkeypatch.setattr("sluice.supervisor.configuration.reloads.prepare", prepare_and_change)
        async with asyncio.timeout(15):
            plan = await router.reload(BASE + MORE)
            await asyncio.wait(changes)
        assert 2 <= len(changes) <= 3
        assert any(change.kind == "delete" for change in plan.changes), "earlier changes are removed"
        prefixes = [address.prefix for address in router.live.configuration.addresses]
        assert prefixes == ["fallback", "more"] + [f"x{number}" for number in range(2, len(changes))]
        await router.create(ADDRESS, prefix="after")

    run(scenario)


def listener(router, name):
    return next((each for each in router.acceptor.listeners if each.config.name == name), None)


def test_silent_name_server_delays_only_its_change(run, monkeypatch):
    monkeypatch.setattr("sluice.supervisor.runtime.host_names.RESOLVE_SECONDS", 0.2)
    monkeypatch.setattr("sluice.supervisor.listeners.runtime_listeners.RETRY_AFTER", 0.01)
    reader, writer = os.pipe()
    answers: list[bool] = []

    def ask(config):
        if not answers:
            os.read(reader, 1)
        return look_up(config)

    monkeypatch.setattr("sluice.supervisor.runtime.host_names.look_up", ask)

    async def scenario(router):
        creating = router.loop.create_task(router.create("listener", "named", host="localhost", port="0"))
        for number in range(20):
            await router.create(ADDRESS, prefix=f"x{number}")
        assert not creating.done(), "other changes do not wait"
        assert isinstance(await creating, ListenerConfig)
        assert [line for line in router.lines() if "Listener error" in line] == [
            "Listener error on localhost:0: Connection timed out"
        ]
        answers.append(True)
        os.write(writer, bytes(100))
        await until(lambda: listener(router, "named") is not None)

    run(scenario)
    os.close(reader)
    os.close(writer)


def test_unopened_listener_is_retried(run, monkeypatch):
    monkeypatch.setattr("sluice.supervisor.listeners.runtime_listeners.RETRY_AFTER", 0.01)

    async def scenario(router):
        tries = []
        binding = router.listening._bind

        def recorded(*given, **more):
            tries.append(1)
            return binding(*given, **more)

        router.listening._bind = recorded
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            await router.create("listener", "taken", host="127.0.0.1", port=port)
            count = len(tries)
            for number in range(5):
                await router.create(ADDRESS, prefix=f"x{number}")
            assert len(tries) == count, "unrelated changes do not retry it"
            await until(lambda: len(tries) > count + 2)
            assert len(router.lines()) == 1, "the error is logged once"
        await until(lambda: listener(router, "taken") is not None)
        count = len(tries)
        await asyncio.sleep(0.05)
        assert len(tries) == count, "all listeners are open"

    run(scenario)


def test_blocking_configuration_file_times_out(run, monkeypatch):
    monkeypatch.setattr("sluice.supervisor.configuration.reloads.READ_SECONDS", 0.05)

    async def scenario(router):
        fifo = Path("fifo").absolute()
        os.mkfifo(fifo)
        pending = router.reloads.ask(str(fifo))
        await router.create(ADDRESS, prefix="x")
        error = await router.change_error(pending)
        assert "cannot be read: Connection timed out" in error.text
        assert (await router.reload()).changes[0].kind == "delete"

    run(scenario)


def test_log_files_are_opened_outside_event_loop(run, monkeypatch):
    monkeypatch.setattr("sluice.supervisor.telemetry.logging.LOG_SECONDS", 0.05)
    reader, writer = os.pipe()
    opened = []

    def slow(names):
        os.read(reader, 1)
        opened.append(open_outputs(names))
        return opened[-1]

    monkeypatch.setattr("sluice.supervisor.telemetry.logging.open_outputs", slow)

    async def scenario(router):
        module = next(each for each in router.live.configuration.logs if each.module == "AGENT")
        before = router.state()
        with pytest.raises(ChangeError, match="Failed to open log files: Connection timed out"):
            await router.change(router.live.update(module, {"outputFile": "slow.log"}))
        assert router.state() == before
        os.write(writer, bytes(2))
        changed = await router.change(router.live.update(module, {"outputFile": "other.log"}))
        router.log.write(ERROR, "AGENT", "there")
        assert "there" in Path("other.log").read_text()
        assert router.live.find(None, changed.identity) == [changed]
        while len(opened) < 2:  # even the opening that timed out
            await asyncio.sleep(0.01)

    run(scenario)
    os.close(reader)
    os.close(writer)


def test_changes_wait_while_held(run):
    async def scenario(router):
        router.live.hold()
        creating = router.loop.create_task(router.create(ADDRESS, "mine", prefix="x"))
        await asyncio.sleep(0)
        assert router.live.find("mine", None) == []
        router.live.release()
        created = await creating
        assert router.live.find("mine", None) == [created]

    run(scenario)
