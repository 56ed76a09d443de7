"""A test subsystem in a real core: all calls that subsystems get reach it.

To write a subsystem, begin with a copy of `Banners`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sluice.router.config.entities import AddressConfig, Configuration
from sluice.router.config.entity import EntityConfig
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import Attach, Local, Log, Opened
from sluice.router.control.ops import Op, RadiusOp
from sluice.supervisor.children.worker import WorkerFaultError, WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.core import Core
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import NEVER, CompositionError, Events, LiveAttributes, RawHandler, Subsystem
from tests.unit.supervisor.configuration.test_changes import ADDRESS, BASE, MORE, ReconfigurableRouter
from tests.unit.supervisor.core_with_replicas import CoreWithReplicas

BANNER = RadiusOp(77)  # any op will do


class Banners(Subsystem):
    """Subsystem with a text that workers know and that has to be fetched before the configuration changes."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fetched: asyncio.Future[str] | None = None
        self.refusal: ChangeError | None = None
        self.changes: list[ConfigurationChange] = []
        self.more = False
        self.due = NEVER

    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        return {AddressConfig.type: lambda config: {"banner": f"of {config.name}"}}

    def start(self, configuration: Configuration) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def gather(self, change: ConfigurationChange) -> "asyncio.Future[str] | None":
        self.calls.append("gather")
        return self.fetched

    def prepare(self, change: ConfigurationChange) -> None:
        self.calls.append("prepare")
        if self.refusal is not None:
            raise self.refusal

    def commit(self, change: ConfigurationChange) -> None:
        self.calls.append("commit")
        self.changes.append(change)

    def discard(self, change: ConfigurationChange) -> None:
        self.calls.append("discard")

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        self.calls.append(("opened", connection.number, message.container))

    def connection_closed(self, connection: RegisteredConnection) -> None:
        self.calls.append(("closed", connection.number))

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        self.calls.append(("dropped", worker.index, link.name))

    def worker_lost(self, worker: WorkerProcess) -> None:
        self.calls.append(("lost", worker.index))

    def work(self) -> bool:
        self.calls.append("work")
        return self.more

    def step(self) -> None:
        self.calls.append("step")

    def expire(self) -> None:
        self.calls.append("expire")

    @property
    def waiting(self) -> bool:
        return self.more

    def before_delta(self) -> None:
        self.calls.append("before delta")

    def after_delta(self) -> None:
        self.calls.append("after delta")

    @property
    def deadline(self) -> float:
        return self.due

    def snapshot_ops(self) -> Iterable[Op]:
        return [BANNER]

    def take_calls(self) -> list[Any]:
        """Return the calls since the last call of `take_calls`."""
        calls, self.calls = self.calls, []
        return calls

    def events(self) -> list[Any]:
        """Take the calls, and return those about connections, links and workers."""
        return [call for call in self.take_calls() if isinstance(call, tuple)]


@pytest.fixture
def banners() -> Banners:
    return Banners()


@pytest.fixture
def router(banners: Banners) -> CoreWithReplicas:
    made = CoreWithReplicas(workers=2)
    made.core.events.add(banners)
    banners.take_calls()
    return made


# -- Events


def test_subsystem_is_notified_of_connections_links_and_workers(router: CoreWithReplicas, banners: Banners) -> None:
    conn, other = router.connect(0), router.connect(1)
    opened = Opened(conn=conn, container="c", hostname=None, user=None, properties={}, tls=None)
    router.core.receive(router.replicas[0].worker, opened)
    assert banners.events() == [("opened", conn, "c")]
    link = router.attach(0, conn, "out", "a")
    router.attach(0, conn, "in", "a")
    router.detach(0, conn, link)
    assert banners.events() == [("dropped", 0, "link-0")]
    router.close(0, conn)
    assert banners.events() == [("dropped", 0, "link-1"), ("closed", conn)]
    router.attach(1, other, "out", "a")
    router.kill(1)
    assert banners.events() == [("dropped", 1, "link-0"), ("closed", other), ("lost", 1)]


class RouterBanners(Banners):
    """Banners for connections of other routers only."""

    roles = BETWEEN_ROUTERS

    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        return {}


def test_subsystem_is_not_notified_of_connections_with_other_roles(router: CoreWithReplicas, banners: Banners) -> None:
    router.core.events.add(between := RouterBanners())
    conn = router.connect(0)
    router.core.receive(
        router.replicas[0].worker,
        Opened(conn=conn, container="c", hostname=None, user=None, properties={}, tls=None),
    )
    router.attach(0, conn, "in", "a")
    router.close(0, conn)
    assert between.events() == []
    assert banners.events() == [("opened", conn, "c"), ("dropped", 0, "link-0"), ("closed", conn)]


class Greeter(Subsystem):
    """Subsystem that handles messages of workers: log lines, and messages for the router itself."""

    def __init__(self) -> None:
        self.received: list[tuple[int, str | bytes]] = []

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(Log, lambda worker, message: self.received.append((worker.index, message.text)))

    def raw_messages(self) -> Mapping[type[Local], RawHandler]:
        return {Local: lambda worker, message, octets: self.received.append((worker.index, octets))}


def test_subsystem_handles_its_messages() -> None:
    core = Core(Journal(), Events())
    core.events.add(greeter := Greeter())
    worker = WorkerProcess(0, 1)
    core.receive(worker, Log("SERVER", "info", "hi"))
    core.receive(worker, Local("key", 1), b"octets")
    assert greeter.received == [(0, "hi"), (0, b"octets")]
    with pytest.raises(WorkerFaultError, match="local: the message for the router itself"):
        core.receive(worker, Local("key", 1))


def test_message_without_subsystem_is_a_composition_error(router: CoreWithReplicas) -> None:
    router.core.events.check_complete()
    events = Events()
    events.add(Greeter())
    with pytest.raises(CompositionError, match="no handler for message types Ack, Attach, "):
        events.check_complete()


def test_subsystem_ops_are_in_snapshot(router: CoreWithReplicas) -> None:
    router.settle()
    assert router.core.events.snapshot_ops()[-1] == BANNER


# -- Each wake


def test_subsystem_is_called_in_each_wake(router: CoreWithReplicas, banners: Banners) -> None:
    core = router.core
    assert core.work() is False
    assert core.take_delta() is None
    assert banners.take_calls() == ["work", "step", "expire", "before delta", "after delta"]
    assert not core.busy
    banners.more = True
    assert core.work() is True
    assert core.busy


def test_first_deadline_of_subsystems_counts(router: CoreWithReplicas, banners: Banners) -> None:
    assert router.core.deadline == NEVER
    banners.due = 12.0
    assert router.core.deadline == 12.0


def test_subsystem_expires_only_in_wakes_after_its_deadline(router: CoreWithReplicas, banners: Banners) -> None:
    core = router.core
    core.take_delta()
    banners.take_calls()
    banners.due = time.monotonic() + 3600
    assert core.deadline == banners.due
    core.take_delta()
    assert "expire" not in banners.take_calls()
    banners.due = 12.0  # set outside of a wake: the next wake reads it, and causes another one
    core.take_delta()
    assert "expire" not in banners.take_calls()
    assert core.deadline == 12.0
    core.take_delta()
    assert banners.take_calls() == ["step", "expire", "before delta", "after delta"]


# -- Start, end and management


def test_subsystem_starts_and_stops_with_router(router: CoreWithReplicas, banners: Banners) -> None:
    router.core.start(router.configuration)
    router.core.stop()
    assert banners.take_calls() == ["start", "stop"]


def test_management_shows_live_attributes_of_subsystem(router: CoreWithReplicas) -> None:
    (address,) = router.configuration.addresses
    assert router.core.live_attributes(address) == {"banner": f"of {address.name}"}
    others: list[EntityConfig] = list(router.configuration.listeners)
    assert [router.core.live_attributes(each) for each in others] == [{}]


# -- Composition


class _MessageSubsystem(Subsystem):
    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(Attach, lambda worker, message: None)


class _RawMessageSubsystem(Subsystem):
    def raw_messages(self) -> Mapping[type[Local], RawHandler]:
        return {Local: lambda worker, message, octets: None}


class _AttributeSubsystem(Subsystem):
    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        return {AddressConfig.type: lambda config: {}}


@pytest.mark.parametrize("other", [_MessageSubsystem, _RawMessageSubsystem, _AttributeSubsystem])
def test_duplicate_subsystem_registration_is_refused(router: CoreWithReplicas, other: type[Subsystem]) -> None:
    with pytest.raises(CompositionError, match="already has a handler|already has live attributes"):
        router.core.events.add(other())


# -- Changes of the configuration

Scenario = Callable[[ReconfigurableRouter, Banners], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banners: Banners) -> Run:
    monkeypatch.chdir(tmp_path)

    def run_scenario(scenario: Scenario) -> None:
        async def body() -> None:
            router = ReconfigurableRouter(tmp_path)
            router.core.events.add(banners)
            try:
                await scenario(router, banners)
            finally:
                router.close()

        asyncio.run(body())

    return run_scenario


def changes(banners: Banners) -> list[Any]:
    return [call for call in banners.take_calls() if call in ("gather", "prepare", "commit", "discard")]


def test_reload_is_gathered_prepared_and_committed(run: Run) -> None:
    async def scenario(router: ReconfigurableRouter, banners: Banners) -> None:
        banners.fetched = router.loop.create_future()
        router.loop.call_soon(banners.fetched.set_result, "text")
        before = router.live.configuration
        await router.reload(BASE + MORE)
        assert changes(banners) == ["gather", "prepare", "commit"]
        (change,) = banners.changes
        assert change.whole
        assert (change.old, change.new) == (before, router.live.configuration)
        assert change.gathered[banners] == "text"
        assert change.concerns(AddressConfig)

    run(scenario)


def test_refused_change_leaves_state_unchanged(run: Run) -> None:
    async def scenario(router: ReconfigurableRouter, banners: Banners) -> None:
        before = router.state()
        banners.refusal = ChangeError(400, "no such banner")
        router.path.write_text(BASE + MORE)
        error = await router.change_error(router.reloads.ask())
        assert (error.status, error.text) == (400, "no such banner")
        assert changes(banners) == ["gather", "prepare", "discard"]
        router.settle()
        assert router.state() == before
        banners.refusal = None
        assert len((await router.reload()).changes) == 8

    run(scenario)


def test_failed_gathering_refuses_change(run: Run) -> None:
    async def scenario(router: ReconfigurableRouter, banners: Banners) -> None:
        before = router.state()
        banners.fetched = router.loop.create_future()
        banners.fetched.set_exception(ChangeError(500, "banner.txt: No such file"))
        router.path.write_text(BASE + MORE)
        assert (await router.change_error(router.reloads.ask())).text == "banner.txt: No such file"
        assert changes(banners) == ["gather", "discard"]
        assert router.state() == before

    run(scenario)


def test_overtaken_change_is_discarded_and_repeated(run: Run) -> None:
    async def scenario(router: ReconfigurableRouter, banners: Banners) -> None:
        banners.fetched = router.loop.create_future()
        router.path.write_text(BASE + MORE)
        reload = router.reloads.ask()
        while banners.calls.count("gather") < 1:
            await asyncio.sleep(0)
        pending, banners.fetched = banners.fetched, None
        await router.create(ADDRESS, prefix="meanwhile")
        pending.set_result("old")
        await reload
        assert changes(banners) == ["gather", "gather", "prepare", "commit", "discard", "gather", "prepare", "commit"]
        assert [address.prefix for address in router.live.configuration.addresses] == ["fallback", "more"]

    run(scenario)


def test_single_change_names_its_entities(run: Run) -> None:
    async def scenario(router: ReconfigurableRouter, banners: Banners) -> None:
        made = await router.create(ADDRESS, prefix="x")
        await router.change(router.live.delete(made))
        create, delete = banners.changes
        assert not create.whole
        assert (list(create.made(AddressConfig)), list(create.removed(AddressConfig))) == ([made], [])
        assert (list(delete.made(AddressConfig)), list(delete.removed(AddressConfig))) == ([], [made])
        assert changes(banners) == ["gather", "prepare", "commit"] * 2

    run(scenario)


class FaultySubsystem(Subsystem):
    """Subsystem that fails to commit a change unless it is an undo."""

    def commit(self, change: ConfigurationChange) -> None:
        if not change.undo:
            raise RuntimeError("bad luck")


def test_fault_of_earlier_subsystem_discards_change(run: Run) -> None:
    class SecondBanners(Banners):
        def live_attributes(self) -> Mapping[str, LiveAttributes]:
            return {}

    async def scenario(router: ReconfigurableRouter, banners: Banners) -> None:
        router.core.events.add(FaultySubsystem(), later := SecondBanners())
        router.path.write_text(BASE + MORE)
        assert "bad luck" in (await router.change_error(router.reloads.ask())).text
        assert changes(later) == ["gather", "prepare", "discard", "prepare", "commit"]

    run(scenario)


def test_fault_of_later_subsystem_is_undone(run: Run) -> None:
    async def scenario(router: ReconfigurableRouter, banners: Banners) -> None:
        router.core.events.add(FaultySubsystem())
        before = router.live.configuration
        router.path.write_text(BASE + MORE)
        assert "bad luck" in (await router.change_error(router.reloads.ask())).text
        assert changes(banners) == ["gather", "prepare", "commit", "prepare", "commit"]
        forward, back = banners.changes
        assert (back.old, back.new, back.undo) == (forward.new, before, True)

    run(scenario)
