"""Mobile addresses (inter-router.md 9), with a scripted neighbour of 1.19."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.interop.network.net import Sluice
from tests.interop.network.scripted import ScriptedRouter, ScriptedRouterView
from tests.peer import frames, message
from tests.peer.peer import AmqpPeer
from tests.peer.router19 import control
from tests.peer.router19.encoding import list32, map32
from tests.peer.types import Int, Long, Symbol
from tests.system.router import poll

ScriptedRouterFactory = Callable[..., ScriptedRouter]
Fresh = Callable[..., str]


@pytest.fixture
def neighbour(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> ScriptedRouter:
    """Scripted neighbour whose link state S knows."""
    found = scripted_router().wait_adjacent()
    found.ra(1)
    found.lsu(1, {"S": 1})
    view.wait_node(found.id, lambda row: row["linkState"] == ["S"], "its link state")
    return found


def updates_with(neighbour: ScriptedRouter, key: str, member: str = "add") -> list[control.Router19Control]:
    """Return the differential updates of S that add (or delete) a key."""
    return [found for found in neighbour.received("MAU") if key in (found.body.get(member) or [])]


def wait_update(neighbour: ScriptedRouter, key: str, member: str = "add") -> control.Router19Control:
    """Wait for an update that adds (or deletes) a key; return the first."""
    neighbour.world.wait(lambda: updates_with(neighbour, key, member), f"{member} {key}")
    return updates_with(neighbour, key, member)[0]


def expected_octets(found: control.Router19Control) -> bytes:
    """Return the octets that 1.19 would send for the content of an update."""
    body = found.body
    if "exist" in body:
        keys = list(zip(map(str, body["exist"]), map(int, body["hints"]), strict=True))
        return control.mobile_state("S", _addressee(found), int(body["mobile_seq"]), keys)
    added = list(zip(map(str, body["add"]), map(int, body["hints"]), strict=True))
    return control.mobile_update("S", int(body["mobile_seq"]), added, [str(key) for key in body["del"]])


def _addressee(found: control.Router19Control) -> str:
    return found.octets.split(b"_topo/0/")[1].split(b"/")[0].decode()


# --- announcements of the router --------------------------------------------------------------------------------------


def test_consumer_is_announced_and_withdrawn(neighbour: ScriptedRouter, solo: Sluice, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = solo.client().receiver(address)
    added = wait_update(neighbour, "M0" + address)
    assert added.octets == expected_octets(added)
    assert added.body["hints"][added.body["add"].index("M0" + address)] == 2
    sequence = added.body["mobile_seq"]
    neighbour.wait("RA", mobile_seq=sequence)
    receiver.detach()
    gone = wait_update(neighbour, "M0" + address, "del")
    assert gone.octets == expected_octets(gone)
    assert gone.body["mobile_seq"] > sequence


@pytest.mark.parametrize(("prefix", "hint"), [("multicast", 1), ("closest", 2), ("balanced", 3), ("any", 3)])
def test_hints_carry_distribution(
    neighbour: ScriptedRouter, solo: Sluice, fresh: Fresh, prefix: str, hint: int
) -> None:
    address = fresh(prefix)
    solo.client().receiver(address)
    added = wait_update(neighbour, "M0" + address)
    assert added.body["hints"][added.body["add"].index("M0" + address)] == hint


def test_keys_carry_phase_and_fallback(neighbour: ScriptedRouter, solo: Sluice, fresh: Fresh) -> None:
    waypoint, fallback = fresh("wp"), fresh("fb")
    peer = solo.client()
    peer.receiver(waypoint)
    attach_receiver_with(peer, fallback, "qd.fallback")
    attach_receiver_with(peer, waypoint, "qd.waypoint")
    wait_update(neighbour, "M1" + waypoint)
    wait_update(neighbour, "MF" + fallback)
    wait_update(neighbour, "M0" + waypoint)


def attach_receiver_with(peer: AmqpPeer, address: str, capability: str) -> None:
    """Attach a receiver with a capability on its source."""
    peer.receiver(source=frames.source(address, capabilities=capability))


def test_address_storm_is_announced_in_ordered_batches(neighbour: ScriptedRouter, solo: Sluice, fresh: Fresh) -> None:
    peer = solo.client()
    addresses = [fresh("balanced") for _ in range(100)]
    for address in addresses:
        peer.receiver(address, wait=False)
    wait_update(neighbour, "M0" + addresses[-1])
    mine = {"M0" + address for address in addresses}
    told = [key for update in neighbour.received("MAU") for key in update.body.get("add") or [] if key in mine]
    assert sorted(told) == sorted(mine)
    carrying = [update for update in neighbour.received("MAU") if mine & set(update.body.get("add") or [])]
    assert len(carrying) < 20
    sequences = [int(update.body["mobile_seq"]) for update in neighbour.received("MAU")]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


def test_internal_addresses_are_not_announced(neighbour: ScriptedRouter, solo: Sluice, fresh: Fresh) -> None:
    peer = solo.client()
    dynamic = peer.receiver(dynamic=True, credit=1)
    peer.sender("$management")
    marker = fresh()
    peer.receiver(marker)
    wait_update(neighbour, "M0" + marker)
    told = [str(key) for update in neighbour.received("MAU") for key in update.body.get("add") or []]
    assert not [key for key in told if "$management" in key or dynamic.address.rpartition("/")[2] in key]
    assert all(key[0] in "MCDEFH" for key in told)


# --- requests of the neighbour ----------------------------------------------------------------------------------------


def test_request_with_old_sequence_gets_absolute_update(neighbour: ScriptedRouter, solo: Sluice, fresh: Fresh) -> None:
    address = fresh("multicast")
    solo.client().receiver(address)
    wait_update(neighbour, "M0" + address)
    neighbour.mar(0)
    answer = neighbour.wait("MAU", exist=Anything())
    assert answer.octets == expected_octets(answer)
    keys = dict(zip(answer.body["exist"], answer.body["hints"], strict=True))
    assert keys["M0" + address] == 1
    assert len(keys) == len(answer.body["exist"])


def test_request_with_current_sequence_gets_no_answer(neighbour: ScriptedRouter, solo: Sluice, fresh: Fresh) -> None:
    solo.client().receiver(fresh())
    neighbour.world.wait(lambda: neighbour.received("MAU"), "an update")
    sequence = int(neighbour.received("MAU")[-1].body["mobile_seq"])
    neighbour.mar(sequence)
    # The LSU arrives after any answer to the MAR.
    neighbour.lsr()
    neighbour.wait("LSU")
    newest = int(neighbour.received("MAU")[-1].body["mobile_seq"])
    if newest == sequence:
        assert not [found for found in neighbour.received("MAU") if "exist" in found.body]


class Anything:
    """Value that equals any value but None."""

    def __eq__(self, other: object) -> bool:
        return other is not None

    def __hash__(self) -> int:
        return 0


# --- announcements of others ------------------------------------------------------------------------------------------


def test_advertised_sequence_is_requested(neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh) -> None:
    key = "M0" + fresh()
    neighbour.ra(1, 3)
    request = neighbour.wait("MAR")
    assert request.octets == control.mobile_request("S", neighbour.id, 0)
    neighbour.absolute(3, [(key, 3)])
    view.wait_remotes(key, neighbour.id)
    neighbour.mau(4, [], [key])
    view.wait_remotes(key)
    assert len(neighbour.received("MAR")) == 1


def test_updates_in_sequence_are_applied(neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh) -> None:
    keys = ["M0" + fresh() for _ in range(3)]
    neighbour.mau(1, [(keys[0], 3), (keys[1], 3)])
    neighbour.mau(2, [(keys[2], 3)], [keys[0], "M0never/there"])
    view.wait_remotes(keys[2], neighbour.id)
    assert view.remotes(keys[0]) == []
    assert view.remotes(keys[1]) == [neighbour.id]
    assert neighbour.received("MAR") == []


def test_absolute_update_replaces_keys(neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh) -> None:
    first, second = "M0" + fresh(), "M0" + fresh()
    neighbour.mau(1, [(first, 3)])
    view.wait_remotes(first, neighbour.id)
    neighbour.absolute(5, [(second, 3)])
    view.wait_remotes(second, neighbour.id)
    assert view.remotes(first) == []
    neighbour.mau(6, [(first, 3)])
    view.wait_remotes(first, neighbour.id)


def test_sequence_gap_is_requested(neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh) -> None:
    keys = ["M0" + fresh() for _ in range(3)]
    neighbour.mau(1, [(keys[0], 3)])
    neighbour.mau(3, [(keys[2], 3)])
    assert neighbour.wait("MAR").body["have_seq"] == 1
    neighbour.absolute(3, [(key, 3) for key in keys])
    for key in keys:
        view.wait_remotes(key, neighbour.id)


def test_repeated_updates_change_nothing(neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh) -> None:
    keys = ["M0" + fresh() for _ in range(4)]
    neighbour.mau(1, [(keys[0], 3)])
    neighbour.mau(2, [(keys[1], 3)])
    neighbour.mau(1, [(keys[0], 3)])
    neighbour.mau(2, [(keys[1], 3)], [keys[0]])
    neighbour.mau(3, [(keys[2], 3)])
    view.wait_remotes(keys[2], neighbour.id)
    assert view.remotes(keys[0]) == [neighbour.id]
    assert view.remotes(keys[1]) == [neighbour.id]


@pytest.mark.parametrize(("hint", "distribution"), [(1, "multicast"), (2, "closest"), (3, "balanced")])
def test_hints_apply_to_unconfigured_addresses(
    neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh, hint: int, distribution: str
) -> None:
    key = "M0" + fresh("unconfigured")
    neighbour.mau(1, [(key, hint)])
    view.wait_remotes(key, neighbour.id)
    assert view.management.one("router.address", key=key)["distribution"] == distribution


def test_configuration_overrides_hints(neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh) -> None:
    key = "M0" + fresh("closest")
    neighbour.mau(1, [(key, 1)])
    view.wait_remotes(key, neighbour.id)
    assert view.management.one("router.address", key=key)["distribution"] == "closest"


def test_keys_of_all_classes_are_accepted(neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh) -> None:
    name = fresh("classes").replace("/", ".")
    keys = [f"M0{name}", f"M1{name}", f"MF{name}", f"C{name}", f"D{name}", f"E{name}.*.x", f"F{name}.*.x", f"H{name}"]
    neighbour.mau(1, [(key, 4 if key[0] in "CDEF" else 3) for key in keys])
    for key in keys:
        view.wait_remotes(key, neighbour.id)
    neighbour.mau(2, [], keys)
    for key in keys:
        view.wait_remotes(key)


def send_raw_update(neighbour: ScriptedRouter, body: Sequence[tuple[Any, Any]], opcode: str = "MAU") -> None:
    """Send a mobile update with any body."""
    neighbour.send(control.envelope(neighbour.id, control.ALL_MOBILE_TO, opcode, map32(body)))


@pytest.mark.parametrize("hints", [None, [3], [3, 3, 3], "text"])
def test_invalid_hints_are_ignored(
    neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh, hints: Any
) -> None:
    keys = ["M0" + fresh("unhinted") for _ in range(2)]
    body: list[tuple[Any, Any]] = [
        (Symbol("id"), neighbour.id),
        (Symbol("pv"), Long(1)),
        (Symbol("area"), "0"),
        (Symbol("mobile_seq"), Long(1)),
        (Symbol("add"), keys),
        (Symbol("del"), []),
    ]
    if hints is not None:
        body.append((Symbol("hints"), list32(map(Int, hints)) if isinstance(hints, list) else hints))
    send_raw_update(neighbour, body)
    view.wait_remotes(keys[0], neighbour.id)
    view.wait_remotes(keys[1], neighbour.id)


def test_symbol_and_string_encodings_are_accepted(
    neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh
) -> None:
    key = "M0" + fresh()
    send_raw_update(
        neighbour,
        [("id", Symbol(neighbour.id)), ("mobile_seq", Int(1)), ("add", [Symbol(key)]), ("del", []), ("more", 1.5)],
    )
    view.wait_remotes(key, neighbour.id)


@pytest.mark.parametrize(
    "body",
    [
        {"pv": Long(2), "mobile_seq": Long(1), "add": ["M0bad"], "del": []},
        {"mobile_seq": Long(1), "add": ["M0bad"]},
        {"mobile_seq": Long(1), "del": []},
        {"mobile_seq": Long(1), "exist": ["M0bad"], "add": ["M0bad"], "del": []},
        {"mobile_seq": Long(1), "exist": "M0bad"},
        {"mobile_seq": Long(1), "add": "M0bad", "del": []},
        {"mobile_seq": "1", "add": ["M0bad"], "del": []},
        {"add": ["M0bad"], "del": []},
        {},
    ],
)
def test_invalid_updates_are_ignored(
    neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh, body: dict[str, Any]
) -> None:
    send_raw_update(neighbour, [(Symbol("id"), neighbour.id), *((Symbol(key), value) for key, value in body.items())])
    key = "M0" + fresh()
    neighbour.mau(1, [(key, 3)])
    view.wait_remotes(key, neighbour.id)
    assert view.remotes("M0bad") == []


def test_updates_from_unknown_router_are_ignored(
    neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh
) -> None:
    key, marker = "M0" + fresh(), "M0" + fresh()
    stranger = neighbour.phantom(neighbour.id + "-stranger")
    stranger.mau(1, [(key, 3)])
    neighbour.mau(1, [(marker, 3)])
    view.wait_remotes(marker, neighbour.id)
    assert view.remotes(key) == []


def test_unknown_opcode_is_ignored(neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh) -> None:
    send_raw_update(neighbour, [("id", neighbour.id), ("pv", Int(1))], opcode="XYZ")
    key = "M0" + fresh()
    neighbour.mau(1, [(key, 3)])
    view.wait_remotes(key, neighbour.id)


def test_updates_of_other_routers_are_flooded(
    scripted_router: ScriptedRouterFactory, neighbour: ScriptedRouter, view: ScriptedRouterView, fresh: Fresh
) -> None:
    other = scripted_router().wait_mutual()
    view.wait_neighbour(other.id)
    key = "M0" + fresh()
    neighbour.mau(1, [(key, 3)])
    other.world.wait(lambda: other.router.control("MAU", neighbour.id), "the update at the other neighbour")
    found = other.router.control("MAU", neighbour.id)[0]
    assert found.octets == control.mobile_update(neighbour.id, 1, [(key, 3)], [], trace=[neighbour.id, "S"])
    assert neighbour.router.control("MAU", neighbour.id) == []


def test_sender_credit_follows_remote_consumers(
    neighbour: ScriptedRouter, solo: Sluice, view: ScriptedRouterView, fresh: Fresh
) -> None:
    address = fresh()
    sender = solo.client().sender(address, credit=False)
    neighbour.mau(1, [("M0" + address, 3)])
    assert sender.wait_credit() == 250
    neighbour.mau(2, [], ["M0" + address])
    poll(lambda: view.remotes("M0" + address) == [], "withdrawn")
    assert sender.request(message.message("nowhere")).name == "released"
    sender.peer.until(lambda: sender.draining, "the credit is withdrawn")
    neighbour.mau(3, [("M0" + address, 3)])
    sender.peer.until(lambda: not sender.draining and sender.credit == 250, "the credit is granted again")
