"""Adapter between the network protocol and the address table: changes of the engine become records and ops."""

import time
from typing import Any

import pytest

from router.addressing.settings import Setting
from router.config.load import load_text
from router.log import Log
from supervisor.addresses.settings import Settings
from supervisor.addresses.table import Table
from supervisor.network.adapter import ADDRESSES_AN_EPOCH, Routers
from supervisor.network.protocol.outputs import (
    KeysChanged,
    LogLine,
    PathChanged,
    RadiusChanged,
    RouterAdded,
    RouterRemoved,
    Send,
    Unreachable,
)
from supervisor.processes.epochs import Epochs
from tests.unit.engine.ops import wire

CONFIGURATION = """
router {
    mode: interior
    id: A
}
"""


class Engine:
    """Fake protocol engine that returns prepared output and records announcements."""

    def __init__(self) -> None:
        self.changes: list[Any] = []
        self.sends: list[Send] = []
        self.lines: list[LogLine] = []
        self.heard: list[tuple[Any, ...]] = []

    def deadline(self) -> float:
        return float("inf")

    def take_changes(self) -> list[Any]:
        taken, self.changes = self.changes, []
        return taken

    def take_sends(self) -> list[Send]:
        taken, self.sends = self.sends, []
        return taken

    def take_log(self) -> list[LogLine]:
        taken, self.lines = self.lines, []
        return taken

    def announce(self, key: str, treatment: int, now: float) -> None:
        self.heard.append((key, treatment))

    def withdraw(self, key: str, now: float) -> None:
        self.heard.append((key,))


class World:
    """Routers on an address table, with one worker that acknowledges each step."""

    def __init__(self, limit: int = 10_000, settings: dict[str, Any] | None = None, default: str = "balanced") -> None:
        self.table = Table(limit)
        self.epochs: Epochs[Any] = Epochs()
        self.settings = Settings(self.table, self.epochs, settings or {}, default)
        self.log = Log()
        router = load_text("x.conf", CONFIGURATION).router
        self.sent: list[tuple[int, bytes]] = []
        self.routers = Routers(router, self.table, self.epochs, self.settings, self, self.log)
        self.engine = Engine()
        self.routers.engine = self.engine  # type: ignore[misc, assignment]
        self.table.take_delta()
        self.epochs.join(0, self.table.epoch)

    def send_control(self, conn: int, octets: bytes) -> None:
        self.sent.append((conn, octets))

    def known(self, router_id: str, index: int | None) -> None:
        pass

    def step(self) -> list[Any]:
        """Return the ops of the next delta, which the worker acknowledges."""
        self.routers.step(time.monotonic() + 2.0)
        delta = self.table.take_delta()
        if delta is None:
            return []
        self.epochs.acknowledge(0, delta[0])
        self.table.reclaim(delta[0], lambda number: None)
        return wire(delta[1])

    def tell(self, *changes: Any) -> list[Any]:
        """Return the ops that result from these changes of the engine."""
        self.engine.changes += changes
        ops = []
        while more := self.step():
            ops += more
        return ops

    def record(self, key: str) -> int:
        return self.table.records[key].id


@pytest.fixture
def world():
    return World()


def names(ops):
    return [op[0] for op in ops]


def test_the_addresses_of_the_protocol_are_always_there(world):
    keys = {"Lqdhello", "Lqdrouter", "Lqdrouter.ma", "Tqdrouter", "Tqdrouter.ma"}
    assert set(world.table.records) == keys
    assert not any(record.local for record in world.table.records.values())


def test_a_router_becomes_an_address_and_an_op(world):
    ops = world.tell(RouterAdded(1, "B"), PathChanged(1, (4, 9), 1, 3, 0b100))
    assert ops[0] == ["router", 1, "B", [4, 9], 3, "4"]
    record = world.table.records["RB"]
    assert record.treatment == "closest"
    assert record.fixed
    assert ops[1][:3] == ["addr", record.id, "RB"]
    assert ops[2][:3] == ["+r", record.id, 1]
    assert world.routers.count == 1
    assert world.routers.id_of(1) == "B"
    assert world.routers.links_to("B") == (4, 9)


def test_a_path_that_changes_or_is_lost_is_told(world):
    world.tell(RouterAdded(1, "B"), PathChanged(1, (4,), 1, 3, 0))
    assert world.tell(PathChanged(1, (5,), 2, 7, 0)) == [["router", 1, "B", [5], 7, "0"]]
    assert world.tell(PathChanged(1, (5,), 2, 7, 0)) == []
    assert world.tell(Unreachable(1)) == [["router", 1, "B", [], 7, "0"]]
    assert world.routers.path_changes == 3
    assert "RB" in world.table.records


def test_a_path_is_told_while_addresses_wait(world):
    world.tell(RouterAdded(1, "B"), PathChanged(1, (4,), 1, 1, 0))
    world.engine.changes = [KeysChanged(1, {f"M0{number}": 3 for number in range(5000)}, ())]
    world.step()
    world.engine.changes = [PathChanged(1, (5,), 1, 1, 0)]
    assert ["router", 1, "B", [5], 1, "0"] in world.step()


def test_a_router_that_is_gone_leaves_nothing(world):
    world.tell(RouterAdded(1, "B"), PathChanged(1, (4,), 1, 1, 0), KeysChanged(1, {"M0a": 3, "Cx": 4}, ()))
    used = world.table.ids_used
    ops = world.tell(RouterRemoved(1))
    assert names(ops)[0] == "router"  # unreachable at once
    assert ops.index(["-router", 1]) > max(number for number, op in enumerate(ops) if op[0] == "-r")
    assert not {"M0a", "RB"} & set(world.table.records)
    assert not len(world.routers.link_routes)
    assert world.routers.id_of(1) is None
    world.tell(RouterAdded(1, "C"), KeysChanged(1, {"M0a": 3}, ()))
    assert world.table.ids_used == used  # ids are reused


def test_an_index_is_used_again_only_when_workers_have_forgotten_the_router(world):
    world.tell(RouterAdded(1, "B"), KeysChanged(1, {f"M0{number}": 3 for number in range(1000)}, ()))
    ops = world.tell(RouterRemoved(1), RouterAdded(1, "C"), PathChanged(1, (7,), 1, 1, 0))
    added = ops.index(["router", 1, "C", [7], 1, "0"])
    assert ops.index(["-router", 1]) < added
    assert not any(op[0] == "-r" for op in ops[added:])


def test_a_client_may_have_made_the_address_of_a_router_before(world):
    record = world.table.create("RB", "closest", None, "throttle")
    world.table.add_producer(record)
    world.tell(RouterAdded(1, "B"))
    assert record.remotes
    world.tell(RouterRemoved(1))
    assert world.table.records["RB"] is record
    assert not record.remotes


# -- Addresses


@pytest.mark.parametrize(
    ("hint", "default", "treatment"),
    [
        (0, "closest", "multicast"),
        (1, "closest", "multicast"),
        (2, "balanced", "closest"),
        (3, "closest", "balanced"),
        (None, "closest", "closest"),
        (None, "unavailable", "balanced"),
        (1, "unavailable", "multicast"),
        (4, "closest", "closest"),
    ],
)
def test_the_treatment_of_an_address_that_nobody_configured(hint, default, treatment):
    world = World(default=default)
    world.tell(RouterAdded(1, "B"), KeysChanged(1, {"M0a": hint}, ()))
    assert world.table.records["M0a"].treatment == treatment


def test_what_is_configured_here_counts_more_than_what_others_say():
    world = World(settings={"a/#": Setting("multicast")})
    world.tell(RouterAdded(1, "B"), KeysChanged(1, {"M0a.b": 2, "M0c": 2}, ()))
    assert world.table.records["M0a.b"].treatment == "multicast"
    assert world.table.records["M0c"].treatment == "closest"


def test_a_treatment_that_others_said_outlives_other_changes():
    world = World(settings={"a/#": Setting("multicast")})
    world.tell(RouterAdded(1, "B"), KeysChanged(1, {"M0c": 2}, ()))
    world.settings.put("b/#", Setting("multicast"))
    while not world.settings.settled:
        world.settings.step()
        world.step()
    assert world.table.records["M0c"].treatment == "closest"


def test_an_address_that_is_there_keeps_its_treatment(world):
    record = world.table.open_mobile("a", 0, world.settings.current.lookup("a"))
    world.table.add_producer(record)
    world.tell(RouterAdded(1, "B"), KeysChanged(1, {"M0a": 1}, ()))
    assert record.treatment == "balanced"
    assert list(record.remotes or ()) == [1]


def test_addresses_go_with_the_last_router_that_has_them(world):
    both = {"M0a": 3}
    world.tell(RouterAdded(1, "B"), RouterAdded(2, "C"), KeysChanged(1, both, ()), KeysChanged(2, both, ()))
    assert list(world.table.records["M0a"].remotes or ()) == [1, 2]
    assert names(world.tell(KeysChanged(1, {}, ("M0a",)))) == ["-r"]
    assert names(world.tell(KeysChanged(2, {}, ("M0a",)))) == ["-r", "-addr"]


def test_phases_fallback_and_edges(world):
    world.tell(RouterAdded(1, "B"), KeysChanged(1, {"M1w": 3, "MFf": 3, "HE": 3}, ()))
    assert {"M1w", "MFf", "HE"} <= set(world.table.records)


@pytest.mark.parametrize("key", ["", "M", "Mxa", "La", "Ta", "A", "Qa", "C", "E...", "C" + "a." * 200])
def test_keys_that_nobody_announces_are_ignored(world, key):
    world.tell(RouterAdded(1, "B"))
    before = set(world.table.records)
    world.tell(KeysChanged(1, {key: 3}, ()))
    assert set(world.table.records) == before
    assert not len(world.routers.link_routes)
    world.tell(KeysChanged(1, {}, (key,)))


def test_many_addresses_come_in_small_epochs_each_after_the_one_before(world):
    world.tell(RouterAdded(1, "B"))
    world.engine.changes = [KeysChanged(1, {f"M0{number}": 3 for number in range(2000)}, ())]
    world.routers.step(time.monotonic() + 2.0)
    epoch, ops = world.table.take_delta()
    assert len(ops) <= 2 * ADDRESSES_AN_EPOCH
    assert not world.routers.waiting
    world.routers.step(time.monotonic() + 2.0)
    assert world.table.take_delta() is None
    world.epochs.acknowledge(0, epoch)
    assert world.routers.waiting
    while world.routers.waiting:  # a step may have had no time for an address
        world.step()
    assert sum(key.startswith("M0") for key in world.table.records) == 2000


def test_without_room_the_rest_is_left_out_and_told():
    world = World(limit=20)
    world.tell(RouterAdded(1, "B"), KeysChanged(1, {f"M0{number}": 3 for number in range(50)}, ()))
    lines = [entry.text for entry in world.log.recent(10)]
    assert sum("The address table is full" in text for text in lines) == 1
    world.tell(KeysChanged(1, {}, tuple(f"M0{number}" for number in range(50))))
    assert not [key for key in world.table.records if key.startswith("M0")]


def test_link_routes_can_be_asked_for(world):
    keys = {"Clr": 4, "Dlr": 4, "Elp.*.x.#": 4}
    world.tell(RouterAdded(1, "B"), RouterAdded(2, "C"), KeysChanged(1, keys, ()), KeysChanged(2, {"Clr": 4}, ()))
    routers = world.routers
    assert routers.remote_link_routes("in", "lr/a") == (1, 2)
    assert routers.remote_link_routes("out", "lr") == (1,)
    assert routers.remote_link_routes("in", "lp.a.x.y") == (1,)
    assert routers.remote_link_routes("out", "lp.a.x.y") == ()
    world.tell(KeysChanged(1, {}, ("Clr",)))
    assert routers.remote_link_routes("in", "lr/a") == (2,)
    world.tell(RouterRemoved(2))
    assert routers.remote_link_routes("in", "lr/a") == ()


# -- Local destinations


def test_what_clients_consume_is_announced_when_all_workers_know(world):
    setting = world.settings.current.lookup("a")
    record = world.table.open_mobile("a", 1, setting._replace(distribution="multicast"))
    world.table.add_consumer(record, 0, 1, 1, 250)
    world.epochs.run_actions(world.table.epoch)
    epoch, _ = world.table.take_delta()
    world.epochs.run_actions(epoch)
    assert world.engine.heard == []
    world.epochs.acknowledge(0, epoch)
    world.epochs.run_actions(epoch)
    assert world.engine.heard == [("M1a", 1)]
    world.table.remove_consumer(record, 0, 1, 1)
    assert world.engine.heard == [("M1a", 1), ("M1a",)]


def test_what_is_gone_before_all_workers_know_it_is_not_announced(world):
    record = world.table.open_mobile("a", 1, world.settings.current.lookup("a"))
    world.table.add_consumer(record, 0, 1, 1, 250)
    world.table.remove_consumer(record, 0, 1, 1)
    world.step()
    world.epochs.run_actions(world.table.epoch)
    assert world.engine.heard == [("M1a",)]


@pytest.mark.parametrize("key", ["M0$management", "M0_$qd.edge_heartbeat", "Ltemp.x"])
def test_what_each_router_has_is_not_announced(world, key):
    record = world.table.create(key, "closest", None, "throttle")
    world.table.add_consumer(record, 0, 1, 1, 250)
    assert world.engine.heard == []


# -- Time and messages


def test_messages_and_lines_of_the_engine_go_out(world):
    world.engine.sends = [Send(4, b"x")]
    world.engine.lines = [LogLine("ROUTER_LS", 16, "text")]
    world.step()
    assert world.sent == [(4, b"x")]
    assert world.log.recent(1)[0].text == "text"


def test_nothing_is_said_before_the_second_of_the_instance(world):
    assert 0 < world.routers.instance - time.time() <= 1
    world.engine.sends = [Send(4, b"x")]
    world.routers.step(time.monotonic() - 2.0)
    assert world.engine.sends
    assert world.routers.deadline >= time.monotonic() - 1


def test_a_new_worker_gets_it_all(world):
    world.tell(RouterAdded(1, "B"), PathChanged(1, (4,), 1, 1, 0), RadiusChanged(2), KeysChanged(1, {"M0a": 3}, ()))
    assert wire(world.routers.snapshot_ops()) == [["radius", 2], ["router", 1, "B", [4], 1, "0"]]
    assert {tuple(op[:3]) for op in wire(world.table.consumer_ops())} == {
        ("+r", world.record("RB"), 1),
        ("+r", world.record("M0a"), 1),
    }
