"""Adapter between the network protocol and the address table: changes of the engine become records and ops."""

import time
from typing import Any

import pytest

from sluice.router.addressing.settings import AddressSetting
from sluice.router.config.load import load_text
from sluice.router.log import ProcessLog
from sluice.supervisor.addresses.settings import Settings
from sluice.supervisor.network.absence import AbsentRouters
from sluice.supervisor.network.adapter import ADDRESSES_AN_EPOCH, Routers
from sluice.supervisor.network.protocol.outputs import (
    EngineLogLine,
    EngineSend,
    KeysChanged,
    PathChanged,
    RadiusChanged,
    RouterAdded,
    RouterRemoved,
    Unreachable,
)
from sluice.supervisor.runtime.waker import Waker
from tests.unit.ops import wire
from tests.unit.supervisor.journaled_table import JournaledTable

CONFIGURATION = """
router {
    mode: interior
    id: A
}
"""


class FakeProtocolEngine:
    """Fake protocol engine that returns prepared output and records announcements."""

    def __init__(self) -> None:
        self.changes: list[Any] = []
        self.sends: list[EngineSend] = []
        self.lines: list[EngineLogLine] = []
        self.announcements: list[tuple[Any, ...]] = []

    def deadline(self) -> float:
        return float("inf")

    def take_changes(self) -> list[Any]:
        taken, self.changes = self.changes, []
        return taken

    def take_sends(self) -> list[EngineSend]:
        taken, self.sends = self.sends, []
        return taken

    def take_log(self) -> list[EngineLogLine]:
        taken, self.lines = self.lines, []
        return taken

    def announce(self, key: str, treatment: int, now: float) -> None:
        self.announcements.append((key, treatment))

    def withdraw(self, key: str, now: float) -> None:
        self.announcements.append((key,))


class RoutersOnTable:
    """Routers on an address table, with one worker that acknowledges each step."""

    def __init__(self, limit: int = 10_000, settings: dict[str, Any] | None = None, default: str = "balanced") -> None:
        self.journaled = JournaledTable(limit)
        self.table, self.journal = self.journaled.table, self.journaled.journal
        self.settings = Settings(self.table, self.journal, settings or {}, default)
        self.log = ProcessLog()
        router = load_text("x.conf", CONFIGURATION).router
        self.absent = AbsentRouters(0, self.journal, Waker(), self.log)
        self.sent: list[tuple[int, bytes]] = []
        self.routers = Routers(router, self.table, self.journal, self.settings, self, self.absent, self.log)
        self.engine = FakeProtocolEngine()
        self.routers.engine = self.engine  # type: ignore[misc, assignment]
        self.journaled.take_delta()
        self.journal.join(0, self.journal.epoch)

    def send_control(self, conn: int, octets: bytes) -> None:
        self.sent.append((conn, octets))

    def known(self, router_id: str, index: int | None) -> None:
        pass

    def step(self) -> list[Any]:
        """Return the ops of the next delta, which the worker acknowledges."""
        self.routers.step(time.monotonic() + 2.0)
        delta = self.journaled.take_delta()
        if delta is None:
            return []
        self.journal.acknowledge(0, delta[0])
        self.journaled.slots.after_delta()
        return wire(delta[1])

    def apply_changes(self, *changes: Any) -> list[Any]:
        """Return the ops that result from these changes of the engine."""
        self.engine.changes += changes
        ops = []
        while more := self.step():
            ops += more
        return ops

    def record(self, key: str) -> int:
        return self.table.records[key].id


@pytest.fixture
def network():
    return RoutersOnTable()


def names(ops):
    return [op[0] for op in ops]


# inter-router.md 3.4.
def test_protocol_addresses_always_exist(network):
    keys = {"Lqdhello", "Lqdrouter", "Lqdrouter.ma", "Tqdrouter", "Tqdrouter.ma"}
    assert set(network.table.records) == keys
    assert not any(record.local for record in network.table.records.values())


# inter-router.md 7.1.
def test_added_router_becomes_address_and_op(network):
    ops = network.apply_changes(RouterAdded(1, "B"), PathChanged(1, (4, 9), 1, 3, 0b100))
    assert ops[0] == ["router", 1, "B", [4, 9], 3, "4", False]
    record = network.table.records["RB"]
    assert record.treatment == "closest"
    assert record.fixed
    assert ops[1][:3] == ["addr", record.id, "RB"]
    assert ops[2][:3] == ["+r", record.id, 1]
    assert network.routers.count == 1
    assert network.routers.id_of(1) == "B"
    assert network.routers.links_to("B") == (4, 9)


def test_changed_and_lost_paths_are_published(network):
    network.apply_changes(RouterAdded(1, "B"), PathChanged(1, (4,), 1, 3, 0))
    assert network.apply_changes(PathChanged(1, (5,), 2, 7, 0)) == [["router", 1, "B", [5], 7, "0", False]]
    assert network.apply_changes(PathChanged(1, (5,), 2, 7, 0)) == []
    assert network.apply_changes(Unreachable(1)) == [["router", 1, "B", [], 7, "0", False]]
    assert network.routers.path_changes == 3
    assert "RB" in network.table.records


def test_path_is_published_while_addresses_wait(network):
    network.apply_changes(RouterAdded(1, "B"), PathChanged(1, (4,), 1, 1, 0))
    network.engine.changes = [KeysChanged(1, {f"M0{number}": 3 for number in range(5000)}, ())]
    network.step()
    network.engine.changes = [PathChanged(1, (5,), 1, 1, 0)]
    assert ["router", 1, "B", [5], 1, "0", False] in network.step()


def test_removed_router_leaves_no_records(network):
    network.apply_changes(RouterAdded(1, "B"), PathChanged(1, (4,), 1, 1, 0), KeysChanged(1, {"M0a": 3, "Cx": 4}, ()))
    used = network.journaled.slots.used
    ops = network.apply_changes(RouterRemoved(1))
    assert names(ops)[0] == "router"  # unreachable at once
    assert ops.index(["-router", 1]) > max(number for number, op in enumerate(ops) if op[0] == "-r")
    assert not {"M0a", "RB"} & set(network.table.records)
    assert not len(network.routers.link_routes)
    assert network.routers.id_of(1) is None
    network.apply_changes(RouterAdded(1, "C"), KeysChanged(1, {"M0a": 3}, ()))
    assert network.journaled.slots.used == used  # ids are reused


def test_router_index_is_reused_after_removal_is_acknowledged(network):
    network.apply_changes(RouterAdded(1, "B"), KeysChanged(1, {f"M0{number}": 3 for number in range(1000)}, ()))
    ops = network.apply_changes(RouterRemoved(1), RouterAdded(1, "C"), PathChanged(1, (7,), 1, 1, 0))
    added = ops.index(["router", 1, "C", [7], 1, "0", False])
    assert ops.index(["-router", 1]) < added
    assert not any(op[0] == "-r" for op in ops[added:])


def test_router_address_of_client_is_shared(network):
    record = network.table.create("RB", "closest", None, "throttle")
    network.table.add_producer(record)
    network.apply_changes(RouterAdded(1, "B"))
    assert record.remotes
    network.apply_changes(RouterRemoved(1))
    assert network.table.records["RB"] is record
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
def test_unconfigured_address_takes_hinted_treatment(hint, default, treatment):
    network = RoutersOnTable(default=default)
    network.apply_changes(RouterAdded(1, "B"), KeysChanged(1, {"M0a": hint}, ()))
    assert network.table.records["M0a"].treatment == treatment


def test_local_setting_overrides_hint():
    network = RoutersOnTable(settings={"a/#": AddressSetting("multicast")})
    network.apply_changes(RouterAdded(1, "B"), KeysChanged(1, {"M0a.b": 2, "M0c": 2}, ()))
    assert network.table.records["M0a.b"].treatment == "multicast"
    assert network.table.records["M0c"].treatment == "closest"


def test_hinted_treatment_outlives_other_changes():
    network = RoutersOnTable(settings={"a/#": AddressSetting("multicast")})
    network.apply_changes(RouterAdded(1, "B"), KeysChanged(1, {"M0c": 2}, ()))
    network.settings.put("b/#", AddressSetting("multicast"))
    while not network.settings.settled:
        network.settings.step()
        network.step()
    assert network.table.records["M0c"].treatment == "closest"


def test_existing_address_keeps_treatment(network):
    record = network.table.open_mobile("a", 0, network.settings.current.lookup("a"))
    network.table.add_producer(record)
    network.apply_changes(RouterAdded(1, "B"), KeysChanged(1, {"M0a": 1}, ()))
    assert record.treatment == "balanced"
    assert list(record.remotes or ()) == [1]


def test_address_is_removed_with_last_router(network):
    both = {"M0a": 3}
    network.apply_changes(RouterAdded(1, "B"), RouterAdded(2, "C"), KeysChanged(1, both, ()), KeysChanged(2, both, ()))
    assert list(network.table.records["M0a"].remotes or ()) == [1, 2]
    assert names(network.apply_changes(KeysChanged(1, {}, ("M0a",)))) == ["-r"]
    assert names(network.apply_changes(KeysChanged(2, {}, ("M0a",)))) == ["-r", "-addr"]


def test_phase_fallback_and_edge_keys_become_records(network):
    network.apply_changes(RouterAdded(1, "B"), KeysChanged(1, {"M1w": 3, "MFf": 3, "HE": 3}, ()))
    assert {"M1w", "MFf", "HE"} <= set(network.table.records)


@pytest.mark.parametrize("key", ["", "M", "Mxa", "La", "Ta", "A", "Qa", "C", "E...", "C" + "a." * 200])
def test_invalid_keys_are_ignored(network, key):
    network.apply_changes(RouterAdded(1, "B"))
    before = set(network.table.records)
    network.apply_changes(KeysChanged(1, {key: 3}, ()))
    assert set(network.table.records) == before
    assert not len(network.routers.link_routes)
    network.apply_changes(KeysChanged(1, {}, (key,)))


def test_bulk_addresses_are_published_in_acknowledged_epochs(network):
    network.apply_changes(RouterAdded(1, "B"))
    network.engine.changes = [KeysChanged(1, {f"M0{number}": 3 for number in range(2000)}, ())]
    network.routers.step(time.monotonic() + 2.0)
    epoch, ops = network.journaled.take_delta()
    assert len(ops) <= 2 * ADDRESSES_AN_EPOCH
    assert not network.routers.waiting
    network.routers.step(time.monotonic() + 2.0)
    assert network.journaled.take_delta() is None
    network.journal.acknowledge(0, epoch)
    assert network.routers.waiting
    while network.routers.waiting:  # a step may have had no time for an address
        network.step()
    assert sum(key.startswith("M0") for key in network.table.records) == 2000


def test_addresses_beyond_table_are_dropped_and_logged():
    network = RoutersOnTable(limit=20)
    network.apply_changes(RouterAdded(1, "B"), KeysChanged(1, {f"M0{number}": 3 for number in range(50)}, ()))
    lines = [entry.text for entry in network.log.recent(10)]
    assert sum("The address table is full" in text for text in lines) == 1
    network.apply_changes(KeysChanged(1, {}, tuple(f"M0{number}" for number in range(50))))
    assert not [key for key in network.table.records if key.startswith("M0")]


def test_remote_link_routes_are_matched(network):
    keys = {"Clr": 4, "Dlr": 4, "Elp.*.x.#": 4}
    network.apply_changes(
        RouterAdded(1, "B"), RouterAdded(2, "C"), KeysChanged(1, keys, ()), KeysChanged(2, {"Clr": 4}, ())
    )
    link_routes = network.routers.link_routes
    assert link_routes.match("in", "lr/a") == (1, 2)
    assert link_routes.match("out", "lr") == (1,)
    assert link_routes.match("in", "lp.a.x.y") == (1,)
    assert link_routes.match("out", "lp.a.x.y") == ()
    network.apply_changes(KeysChanged(1, {}, ("Clr",)))
    assert link_routes.match("in", "lr/a") == (2,)
    network.apply_changes(RouterRemoved(2))
    assert link_routes.match("in", "lr/a") == ()


# -- Local destinations


def test_consumed_address_is_announced_after_acknowledgements(network):
    setting = network.settings.current.lookup("a")
    record = network.table.open_mobile("a", 1, setting._replace(distribution="multicast"))
    network.table.add_consumer(record, 0, 1, 1, 250)
    network.journal.run_actions()
    epoch, _ = network.journaled.take_delta()
    network.journal.run_actions()
    assert network.engine.announcements == []
    network.journal.acknowledge(0, epoch)
    network.journal.run_actions()
    assert network.engine.announcements == [("M1a", 1)]
    network.table.remove_consumer(record, 0, 1, 1)
    assert network.engine.announcements == [("M1a", 1), ("M1a",)]


def test_consumer_lost_before_acknowledgement_is_not_announced(network):
    record = network.table.open_mobile("a", 1, network.settings.current.lookup("a"))
    network.table.add_consumer(record, 0, 1, 1, 250)
    network.table.remove_consumer(record, 0, 1, 1)
    network.step()
    network.journal.run_actions()
    assert network.engine.announcements == [("M1a",)]


@pytest.mark.parametrize("key", ["M0$management", "M0_$qd.edge_heartbeat", "Ltemp.x"])
def test_router_internal_addresses_are_not_announced(network, key):
    record = network.table.create(key, "closest", None, "throttle")
    network.table.add_consumer(record, 0, 1, 1, 250)
    assert network.engine.announcements == []


# -- Time and messages


def test_engine_messages_and_log_lines_are_forwarded(network):
    network.engine.sends = [EngineSend(4, b"x")]
    network.engine.lines = [EngineLogLine("ROUTER_LS", 16, "text")]
    network.step()
    assert network.sent == [(4, b"x")]
    assert network.log.recent(1)[0].text == "text"


def test_messages_wait_for_second_of_instance(network):
    assert 0 < network.routers.instance - time.time() <= 1
    network.engine.sends = [EngineSend(4, b"x")]
    network.routers.step(time.monotonic() - 2.0)
    assert network.engine.sends
    assert network.routers.deadline >= time.monotonic() - 1


def test_snapshot_contains_routers_and_destinations(network):
    network.apply_changes(
        RouterAdded(1, "B"), PathChanged(1, (4,), 1, 1, 0), RadiusChanged(2), KeysChanged(1, {"M0a": 3}, ())
    )
    assert wire(network.routers.snapshot_ops()) == [["radius", 2], ["router", 1, "B", [4], 1, "0", False]]
    assert {tuple(op[:3]) for op in wire(network.table.consumer_ops())} == {
        ("+r", network.record("RB"), 1),
        ("+r", network.record("M0a"), 1),
    }
