"""A test subsystem in a real core: all calls that subsystems get reach it.

To write a subsystem, begin with a copy of `Banners`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from router.config.entities import AddressConfig, Configuration, EntityConfig
from router.control.handlers import Handlers
from router.control.messages import Attach, Local, Log, Opened
from router.control.ops import Op, RadiusOp
from supervisor.addresses.table import Table
from supervisor.configuration.change import ConfigurationChange
from supervisor.configuration.errors import ChangeError
from supervisor.connections.connections import Connection, Link
from supervisor.core import Core
from supervisor.processes.epochs import Epochs
from supervisor.processes.worker import Worker, WorkerFaultError
from supervisor.subsystem import NEVER, CompositionError, Events, LiveAttributes, RawHandler, Subsystem
from tests.unit.supervisor.configuration.test_changes import ADDRESS, BASE, MORE, World
from tests.unit.supervisor.test_core import Router

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

    def connection_opened(self, connection: Connection, message: Opened) -> None:
        self.calls.append(("opened", connection.number, message.container))

    def connection_closed(self, connection: Connection) -> None:
        self.calls.append(("closed", connection.number))

    def link_dropped(self, worker: Worker, link: Link) -> None:
        self.calls.append(("dropped", worker.index, link.name))

    def worker_lost(self, worker: Worker) -> None:
        self.calls.append(("lost", worker.index))

    def work(self) -> bool:
        self.calls.append("work")
        return self.more

    def step(self) -> None:
        self.calls.append("step")

    @property
    def waiting(self) -> bool:
        return self.more

    def after_delta(self) -> None:
        self.calls.append("after delta")

    @property
    def deadline(self) -> float:
        return self.due

    def snapshot_ops(self) -> Iterable[Op]:
        return [BANNER]

    def taken(self) -> list[Any]:
        """Return the calls since the last call of `take_calls`."""
        calls, self.calls = self.calls, []
        return calls

    def events(self) -> list[Any]:
        """Take the calls, and return those about connections, links and workers."""
        return [call for call in self.taken() if isinstance(call, tuple)]


@pytest.fixture
def banners() -> Banners:
    return Banners()


@pytest.fixture
def router(banners: Banners) -> Router:
    made = Router(workers=2)
    made.core.events.add(banners)
    banners.taken()
    return made


# -- Events


def test_it_is_told_of_connections_links_and_workers(router: Router, banners: Banners) -> None:
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


class Greeter(Subsystem):
    """Subsystem that handles messages of workers: log lines, and messages for the router itself."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str | bytes]] = []

    def messages(self, handlers: Handlers[Worker]) -> None:
        handlers.on(Log, lambda worker, message: self.heard.append((worker.index, message.text)))

    def raw_messages(self) -> Mapping[type[Local], RawHandler]:
        return {Local: lambda worker, message, octets: self.heard.append((worker.index, octets))}


def test_it_handles_its_messages() -> None:
    core = Core(Table(1), Epochs(), Events(), lambda number: None)
    core.events.add(greeter := Greeter())
    worker = Worker(0, 1)
    core.receive(worker, Log("SERVER", "info", "hi"))
    core.receive(worker, Local("key", 1), b"octets")
    assert greeter.heard == [(0, "hi"), (0, b"octets")]
    with pytest.raises(WorkerFaultError, match="local: the octets"):
        core.receive(worker, Local("key", 1))


def test_a_message_without_a_subsystem_is_found_when_the_router_is_composed(router: Router) -> None:
    router.core.events.check_complete()
    events = Events()
    events.add(Greeter())
    with pytest.raises(CompositionError, match="no handler for Ack, Attach, "):
        events.check_complete()


def test_its_ops_are_in_the_snapshot_of_a_new_worker(router: Router) -> None:
    router.settle()
    assert router.core.snapshot()[-1] == BANNER


# -- Each wake


def test_it_has_its_turn_in_each_wake(router: Router, banners: Banners) -> None:
    core = router.core
    assert core.work() is False
    assert core.take_delta() is None
    assert banners.taken() == ["work", "step", "after delta"]
    assert not core.busy
    banners.more = True
    assert core.work() is True
    assert core.busy


def test_the_first_deadline_counts(router: Router, banners: Banners) -> None:
    assert router.core.deadline == NEVER
    banners.due = 12.0
    assert router.core.deadline == 12.0


# -- Start, end and management


def test_it_starts_and_stops_with_the_router(router: Router, banners: Banners) -> None:
    router.core.start(router.configuration)
    router.core.stop()
    assert banners.taken() == ["start", "stop"]


def test_management_shows_what_it_knows_of_its_entities(router: Router) -> None:
    (address,) = router.configuration.addresses
    assert router.core.live_attributes(address) == {"banner": f"of {address.name}"}
    others: list[EntityConfig] = list(router.configuration.listeners)
    assert [router.core.live_attributes(each) for each in others] == [{}]


# -- Composition


class _Messages(Subsystem):
    def messages(self, handlers: Handlers[Worker]) -> None:
        handlers.on(Attach, lambda worker, message: None)


class _RawMessages(Subsystem):
    def raw_messages(self) -> Mapping[type[Local], RawHandler]:
        return {Local: lambda worker, message, octets: None}


class _Attributes(Subsystem):
    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        return {AddressConfig.type: lambda config: {}}


@pytest.mark.parametrize("other", [_Messages, _RawMessages, _Attributes])
def test_two_subsystems_for_the_same_thing_are_refused(router: Router, other: type[Subsystem]) -> None:
    with pytest.raises(CompositionError, match="has (its subsystem|a handler) already"):
        router.core.events.add(other())


# -- Changes of the configuration

Scenario = Callable[[World, Banners], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banners: Banners) -> Run:
    monkeypatch.chdir(tmp_path)

    def go(scenario: Scenario) -> None:
        async def body() -> None:
            world = World(tmp_path)
            world.core.events.add(banners)
            try:
                await scenario(world, banners)
            finally:
                world.close()

        asyncio.run(body())

    return go


def changes(banners: Banners) -> list[Any]:
    return [call for call in banners.taken() if call in ("gather", "prepare", "commit", "discard")]


def test_a_reload_is_gathered_prepared_and_committed(run: Run) -> None:
    async def scenario(world: World, banners: Banners) -> None:
        banners.fetched = world.loop.create_future()
        world.loop.call_soon(banners.fetched.set_result, "text")
        before = world.live.configuration
        await world.reload(BASE + MORE)
        assert changes(banners) == ["gather", "prepare", "commit"]
        (change,) = banners.changes
        assert change.whole
        assert (change.old, change.new) == (before, world.live.configuration)
        assert change.gathered[banners] == "text"
        assert change.concerns(AddressConfig)

    run(scenario)


def test_a_refusal_leaves_everything_as_it_was(run: Run) -> None:
    async def scenario(world: World, banners: Banners) -> None:
        before = world.state()
        banners.refusal = ChangeError(400, "no such banner")
        world.path.write_text(BASE + MORE)
        error = await world.refused(world.reloads.ask())
        assert (error.status, error.text) == (400, "no such banner")
        assert changes(banners) == ["gather", "prepare", "discard"]
        world.settle()
        assert world.state() == before
        banners.refusal = None
        assert len((await world.reload()).changes) == 8

    run(scenario)


def test_what_cannot_be_gathered_refuses_the_change(run: Run) -> None:
    async def scenario(world: World, banners: Banners) -> None:
        before = world.state()
        banners.fetched = world.loop.create_future()
        banners.fetched.set_exception(ChangeError(500, "banner.txt: No such file"))
        world.path.write_text(BASE + MORE)
        assert (await world.refused(world.reloads.ask())).text == "banner.txt: No such file"
        assert changes(banners) == ["gather", "discard"]
        assert world.state() == before

    run(scenario)


def test_a_change_that_another_one_overtakes_is_discarded_and_made_again(run: Run) -> None:
    async def scenario(world: World, banners: Banners) -> None:
        banners.fetched = world.loop.create_future()
        world.path.write_text(BASE + MORE)
        asked = world.reloads.ask()
        while banners.calls.count("gather") < 1:
            await asyncio.sleep(0)
        pending, banners.fetched = banners.fetched, None
        await world.create(ADDRESS, prefix="meanwhile")
        pending.set_result("old")
        await asked
        assert changes(banners) == ["gather", "gather", "prepare", "commit", "discard", "gather", "prepare", "commit"]
        assert [address.prefix for address in world.live.configuration.addresses] == ["fallback", "more"]

    run(scenario)


def test_a_single_change_names_its_entities(run: Run) -> None:
    async def scenario(world: World, banners: Banners) -> None:
        made = await world.create(ADDRESS, prefix="x")
        await world.change(world.live.delete(made))
        create, delete = banners.changes
        assert not create.whole
        assert (list(create.made(AddressConfig)), list(create.removed(AddressConfig))) == ([made], [])
        assert (list(delete.made(AddressConfig)), list(delete.removed(AddressConfig))) == ([], [made])
        assert changes(banners) == ["gather", "prepare", "commit"] * 2

    run(scenario)


class Faulty(Subsystem):
    """Subsystem that fails to commit a change unless it is an undo."""

    def commit(self, change: ConfigurationChange) -> None:
        if not change.undo:
            raise RuntimeError("bad luck")


def test_a_fault_of_an_earlier_subsystem_discards_and_goes_back(run: Run) -> None:
    class Later(Banners):
        def live_attributes(self) -> Mapping[str, LiveAttributes]:
            return {}

    async def scenario(world: World, banners: Banners) -> None:
        world.core.events.add(Faulty(), later := Later())
        world.path.write_text(BASE + MORE)
        assert "bad luck" in (await world.refused(world.reloads.ask())).text
        assert changes(later) == ["gather", "prepare", "discard", "prepare", "commit"]

    run(scenario)


def test_a_fault_of_a_later_subsystem_is_undone_by_a_change_back(run: Run) -> None:
    async def scenario(world: World, banners: Banners) -> None:
        world.core.events.add(Faulty())
        before = world.live.configuration
        world.path.write_text(BASE + MORE)
        assert "bad luck" in (await world.refused(world.reloads.ask())).text
        assert changes(banners) == ["gather", "prepare", "commit", "prepare", "commit"]
        forth, back = banners.changes
        assert (back.old, back.new, back.undo) == (forth.new, before, True)

    run(scenario)
