"""Mobile addresses (inter-router.md 9), with a scripted neighbour of 1.19."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.interop.network.net import Sluice
from tests.interop.network.scripted import Scripted, View
from tests.peer import frames, message
from tests.peer.peer import AmqpPeer
from tests.peer.router19 import control
from tests.peer.router19.encoding import list32, map32
from tests.peer.types import Int, Long, Symbol
from tests.system.router import poll

Script = Callable[..., Scripted]
Fresh = Callable[..., str]


@pytest.fixture
def one(script: Script, view: View) -> Scripted:
    """A neighbour whose link state is known."""
    found = script().adjacent()
    found.ra(1)
    found.lsu(1, {"S": 1})
    view.wait_node(found.id, lambda row: row["linkState"] == ["S"], "its link state")
    return found


def updates(one: Scripted, key: str, member: str = "add") -> list[control.Router19Control]:
    """Differential updates of S that add (or delete) a key."""
    return [found for found in one.got("MAU") if key in (found.body.get(member) or [])]


def wait_update(one: Scripted, key: str, member: str = "add") -> control.Router19Control:
    """Wait for an update that adds or deletes a key."""
    one.world.wait(lambda: updates(one, key, member), f"{member} {key}")
    return updates(one, key, member)[0]


def recomposed(found: control.Router19Control) -> bytes:
    """The octets that 1.19 would have sent for an update with this content."""
    body = found.body
    if "exist" in body:
        keys = list(zip(map(str, body["exist"]), map(int, body["hints"]), strict=True))
        return control.mobile_state("S", _to(found), int(body["mobile_seq"]), keys)
    added = list(zip(map(str, body["add"]), map(int, body["hints"]), strict=True))
    return control.mobile_update("S", int(body["mobile_seq"]), added, [str(key) for key in body["del"]])


def _to(found: control.Router19Control) -> str:
    return found.octets.split(b"_topo/0/")[1].split(b"/")[0].decode()


# --- what is announced ------------------------------------------------------------------------------------------------


def test_a_consumer_is_announced_and_withdrawn(one: Scripted, solo: Sluice, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = solo.client().receiver(address)
    added = wait_update(one, "M0" + address)
    assert added.octets == recomposed(added)
    assert added.body["hints"][added.body["add"].index("M0" + address)] == 2
    sequence = added.body["mobile_seq"]
    one.wait("RA", mobile_seq=sequence)
    receiver.detach()
    gone = wait_update(one, "M0" + address, "del")
    assert gone.octets == recomposed(gone)
    assert gone.body["mobile_seq"] > sequence


@pytest.mark.parametrize(("prefix", "hint"), [("multicast", 1), ("closest", 2), ("balanced", 3), ("any", 3)])
def test_hints_are_the_treatments(one: Scripted, solo: Sluice, fresh: Fresh, prefix: str, hint: int) -> None:
    address = fresh(prefix)
    solo.client().receiver(address)
    added = wait_update(one, "M0" + address)
    assert added.body["hints"][added.body["add"].index("M0" + address)] == hint


def test_phases_and_fallback_are_in_the_key(one: Scripted, solo: Sluice, fresh: Fresh) -> None:
    waypoint, fallback = fresh("wp"), fresh("fb")
    peer = solo.client()
    peer.receiver(waypoint)
    receiver_with(peer, fallback, "qd.fallback")
    receiver_with(peer, waypoint, "qd.waypoint")
    wait_update(one, "M1" + waypoint)
    wait_update(one, "MF" + fallback)
    wait_update(one, "M0" + waypoint)


def receiver_with(peer: AmqpPeer, address: str, capability: str) -> None:
    """A receiver with a capability on its source."""
    peer.receiver(source=frames.source(address, capabilities=capability))


def test_a_storm_is_told_in_batches_and_in_order(one: Scripted, solo: Sluice, fresh: Fresh) -> None:
    peer = solo.client()
    addresses = [fresh("balanced") for _ in range(100)]
    for address in addresses:
        peer.receiver(address, wait=False)
    wait_update(one, "M0" + addresses[-1])
    mine = {"M0" + address for address in addresses}
    told = [key for update in one.got("MAU") for key in update.body.get("add") or [] if key in mine]
    assert sorted(told) == sorted(mine)
    carrying = [update for update in one.got("MAU") if mine & set(update.body.get("add") or [])]
    assert len(carrying) < 20
    sequences = [int(update.body["mobile_seq"]) for update in one.got("MAU")]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


def test_nothing_of_the_router_itself_is_announced(one: Scripted, solo: Sluice, fresh: Fresh) -> None:
    peer = solo.client()
    dynamic = peer.receiver(dynamic=True, credit=1)
    peer.sender("$management")
    marker = fresh()
    peer.receiver(marker)
    wait_update(one, "M0" + marker)
    told = [str(key) for update in one.got("MAU") for key in update.body.get("add") or []]
    assert not [key for key in told if "$management" in key or dynamic.address.rpartition("/")[2] in key]
    assert all(key[0] in "MCDEFH" for key in told)


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_a_request_with_an_old_sequence_gets_everything(one: Scripted, solo: Sluice, fresh: Fresh) -> None:
    address = fresh("multicast")
    solo.client().receiver(address)
    wait_update(one, "M0" + address)
    one.mar(0)
    answer = one.wait("MAU", exist=Anything())
    assert answer.octets == recomposed(answer)
    keys = dict(zip(answer.body["exist"], answer.body["hints"], strict=True))
    assert keys["M0" + address] == 1
    assert len(keys) == len(answer.body["exist"])


def test_a_request_with_the_present_sequence_gets_nothing(one: Scripted, solo: Sluice, fresh: Fresh) -> None:
    solo.client().receiver(fresh())
    one.world.wait(lambda: one.got("MAU"), "an update")
    sequence = int(one.got("MAU")[-1].body["mobile_seq"])
    one.mar(sequence)
    # LSU answers are in order behind what MAR would have got.
    one.lsr()
    one.wait("LSU")
    newest = int(one.got("MAU")[-1].body["mobile_seq"])
    if newest == sequence:
        assert not [found for found in one.got("MAU") if "exist" in found.body]


class Anything:
    """Equal to whatever is there."""

    def __eq__(self, other: object) -> bool:
        return other is not None

    def __hash__(self) -> int:
        return 0


# --- what others announce ---------------------------------------------------------------------------------------------


def test_an_advertised_sequence_is_asked_for(one: Scripted, view: View, fresh: Fresh) -> None:
    key = "M0" + fresh()
    one.ra(1, 3)
    request = one.wait("MAR")
    assert request.octets == control.mobile_request("S", one.id, 0)
    one.absolute(3, [(key, 3)])
    view.wait_remotes(key, one.id)
    one.mau(4, [], [key])
    view.wait_remotes(key)
    assert len(one.got("MAR")) == 1


def test_updates_in_sequence_are_applied(one: Scripted, view: View, fresh: Fresh) -> None:
    keys = ["M0" + fresh() for _ in range(3)]
    one.mau(1, [(keys[0], 3), (keys[1], 3)])
    one.mau(2, [(keys[2], 3)], [keys[0], "M0never/there"])
    view.wait_remotes(keys[2], one.id)
    assert view.remotes(keys[0]) == []
    assert view.remotes(keys[1]) == [one.id]
    assert one.got("MAR") == []


def test_an_absolute_update_replaces(one: Scripted, view: View, fresh: Fresh) -> None:
    first, second = "M0" + fresh(), "M0" + fresh()
    one.mau(1, [(first, 3)])
    view.wait_remotes(first, one.id)
    one.absolute(5, [(second, 3)])
    view.wait_remotes(second, one.id)
    assert view.remotes(first) == []
    one.mau(6, [(first, 3)])
    view.wait_remotes(first, one.id)


def test_a_gap_is_asked_for(one: Scripted, view: View, fresh: Fresh) -> None:
    keys = ["M0" + fresh() for _ in range(3)]
    one.mau(1, [(keys[0], 3)])
    one.mau(3, [(keys[2], 3)])
    assert one.wait("MAR").body["have_seq"] == 1
    one.absolute(3, [(key, 3) for key in keys])
    for key in keys:
        view.wait_remotes(key, one.id)


def test_copies_change_nothing(one: Scripted, view: View, fresh: Fresh) -> None:
    keys = ["M0" + fresh() for _ in range(4)]
    one.mau(1, [(keys[0], 3)])
    one.mau(2, [(keys[1], 3)])
    one.mau(1, [(keys[0], 3)])
    one.mau(2, [(keys[1], 3)], [keys[0]])
    one.mau(3, [(keys[2], 3)])
    view.wait_remotes(keys[2], one.id)
    assert view.remotes(keys[0]) == [one.id]
    assert view.remotes(keys[1]) == [one.id]


@pytest.mark.parametrize(("hint", "distribution"), [(1, "multicast"), (2, "closest"), (3, "balanced")])
def test_hints_decide_for_addresses_without_configuration(
    one: Scripted, view: View, fresh: Fresh, hint: int, distribution: str
) -> None:
    key = "M0" + fresh("unconfigured")
    one.mau(1, [(key, hint)])
    view.wait_remotes(key, one.id)
    assert view.management.one("router.address", key=key)["distribution"] == distribution


def test_configuration_comes_before_hints(one: Scripted, view: View, fresh: Fresh) -> None:
    key = "M0" + fresh("closest")
    one.mau(1, [(key, 1)])
    view.wait_remotes(key, one.id)
    assert view.management.one("router.address", key=key)["distribution"] == "closest"


def test_keys_of_all_classes_are_known(one: Scripted, view: View, fresh: Fresh) -> None:
    name = fresh("classes").replace("/", ".")
    keys = [f"M0{name}", f"M1{name}", f"MF{name}", f"C{name}", f"D{name}", f"E{name}.*.x", f"F{name}.*.x", f"H{name}"]
    one.mau(1, [(key, 4 if key[0] in "CDEF" else 3) for key in keys])
    for key in keys:
        view.wait_remotes(key, one.id)
    one.mau(2, [], keys)
    for key in keys:
        view.wait_remotes(key)


def raw(one: Scripted, body: Sequence[tuple[Any, Any]], opcode: str = "MAU") -> None:
    """Send a mobile update with any body."""
    one.send(control.envelope(one.id, control.ALL_MOBILE_TO, opcode, map32(body)))


@pytest.mark.parametrize("hints", [None, [3], [3, 3, 3], "text"])
def test_hints_that_do_not_fit_are_ignored(one: Scripted, view: View, fresh: Fresh, hints: Any) -> None:
    keys = ["M0" + fresh("unhinted") for _ in range(2)]
    body: list[tuple[Any, Any]] = [
        (Symbol("id"), one.id),
        (Symbol("pv"), Long(1)),
        (Symbol("area"), "0"),
        (Symbol("mobile_seq"), Long(1)),
        (Symbol("add"), keys),
        (Symbol("del"), []),
    ]
    if hints is not None:
        body.append((Symbol("hints"), list32(map(Int, hints)) if isinstance(hints, list) else hints))
    raw(one, body)
    view.wait_remotes(keys[0], one.id)
    view.wait_remotes(keys[1], one.id)


def test_encodings_of_either_family_are_taken(one: Scripted, view: View, fresh: Fresh) -> None:
    key = "M0" + fresh()
    raw(one, [("id", Symbol(one.id)), ("mobile_seq", Int(1)), ("add", [Symbol(key)]), ("del", []), ("more", 1.5)])
    view.wait_remotes(key, one.id)


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
def test_updates_that_are_none_are_ignored(one: Scripted, view: View, fresh: Fresh, body: dict[str, Any]) -> None:
    raw(one, [(Symbol("id"), one.id), *((Symbol(key), value) for key, value in body.items())])
    key = "M0" + fresh()
    one.mau(1, [(key, 3)])
    view.wait_remotes(key, one.id)
    assert view.remotes("M0bad") == []


def test_updates_of_unknown_routers_are_ignored(one: Scripted, view: View, fresh: Fresh) -> None:
    key, marker = "M0" + fresh(), "M0" + fresh()
    stranger = one.phantom(one.id + "-stranger")
    stranger.mau(1, [(key, 3)])
    one.mau(1, [(marker, 3)])
    view.wait_remotes(marker, one.id)
    assert view.remotes(key) == []


def test_an_unknown_opcode_is_ignored(one: Scripted, view: View, fresh: Fresh) -> None:
    raw(one, [("id", one.id), ("pv", Int(1))], opcode="XYZ")
    key = "M0" + fresh()
    one.mau(1, [(key, 3)])
    view.wait_remotes(key, one.id)


def test_updates_of_others_are_flooded_onward(script: Script, one: Scripted, view: View, fresh: Fresh) -> None:
    other = script().mutual()
    view.wait_neighbour(other.id)
    key = "M0" + fresh()
    one.mau(1, [(key, 3)])
    other.world.wait(lambda: other.router.control("MAU", one.id), "the update at the other neighbour")
    found = other.router.control("MAU", one.id)[0]
    assert found.octets == control.mobile_update(one.id, 1, [(key, 3)], [], trace=[one.id, "S"])
    assert one.router.control("MAU", one.id) == []


def test_a_sender_gets_credit_while_others_have_consumers(
    one: Scripted, solo: Sluice, view: View, fresh: Fresh
) -> None:
    address = fresh()
    sender = solo.client().sender(address, credit=False)
    one.mau(1, [("M0" + address, 3)])
    assert sender.wait_credit() == 250
    one.mau(2, [], ["M0" + address])
    poll(lambda: view.remotes("M0" + address) == [], "withdrawn")
    assert sender.request(message.message("nowhere")).name == "released"
    sender.peer.until(lambda: sender.draining, "the credit is asked back")
    one.mau(3, [("M0" + address, 3)])
    sender.peer.until(lambda: not sender.draining and sender.credit == 250, "the credit is given again")
