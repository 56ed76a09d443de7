"""RA, LSR and LSU (inter-router.md 7), with a scripted neighbour of 1.19 that speaks for routers behind it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.network.net import CONVERGE, Network
from tests.interop.network.scripted import Scripted, View
from tests.peer.router19 import control

Script = Callable[..., Scripted]


def known(view: View, one: Scripted, peers: dict[str, int], ls_seq: int = 1) -> None:
    """Let S know the neighbour's link state."""
    one.ra(ls_seq)
    one.lsu(ls_seq, peers)
    view.wait_node(one.id, lambda row: sorted(row["linkState"]) == sorted(peers), f"link state of {one.id}")


def test_a_higher_sequence_is_asked_for_and_an_equal_one_not(script: Script, view: View) -> None:
    one = script().adjacent()
    known(view, one, {"S": 1})
    before = len(one.got("LSR"))
    one.ra(1)
    one.ra(2)
    one.wait("LSR", before)
    one.lsu(2, {"S": 1})
    one.ra(2)
    one.lsr()
    updates = len(one.got("LSU"))
    one.wait("LSU", max(0, updates - 1))
    assert len(one.got("LSR")) == before + 1


def test_older_and_equal_states_are_ignored(script: Script, view: View) -> None:
    one = script().adjacent()
    known(view, one, {"S": 1, "zz-a": 1}, ls_seq=5)
    one.lsu(5, {"S": 1, "zz-b": 1})
    one.lsu(4, {"S": 1, "zz-c": 1})
    one.lsu(6, {"S": 1, "zz-d": 1})
    view.wait_node(one.id, lambda row: "zz-d" in row["linkState"], "the newest")
    assert not {"zz-b", "zz-c"} & set(view.nodes())


def test_the_inner_sequence_counts(script: Script, view: View) -> None:
    one = script().adjacent()
    known(view, one, {"S": 1}, ls_seq=3)
    octets = control.link_state_update(one.id, "S", one.instance, 3, {"S": 1, "zz-inner": 1})
    lying = octets.replace(b"\xa1\x06ls_seq\x54\x03", b"\xa1\x06ls_seq\x54\x09", 1)
    assert lying != octets
    one.send(lying)
    one.lsu(4, {"S": 1, "zz-outer": 1})
    view.wait_node(one.id, lambda row: "zz-outer" in row["linkState"], "the right one")
    assert "zz-inner" not in view.nodes()


def test_a_request_is_answered_at_once_and_nothing_else_is_sent(script: Script) -> None:
    one = script().adjacent()
    assert one.got("LSU") == []
    one.lsr()
    answer = one.wait("LSU", timeout=5)
    body = answer.body
    assert body["ls"]["peers"][one.id] == 1
    assert answer.octets == control.link_state_update(
        "S",
        one.id,
        body["instance"],
        body["ls"]["ls_seq"],
        {str(name): int(cost) for name, cost in body["ls"]["peers"].items()},
    )
    one.lsr()
    one.wait("LSU", 1, timeout=5)
    assert len(one.got("LSU")) == 2


def test_peers_of_peers_become_known_and_are_asked(script: Script, view: View) -> None:
    one = script().adjacent()
    far = one.phantom(one.id + "-far")
    known(view, one, {"S": 1, far.id: 7})
    one.wait_phantom(far.id, "LSR")
    far.lsu(3, {one.id: 7})
    row = view.wait_node(far.id, lambda row: row["linkState"], "its link state")
    assert (row["cost"], row["nextHop"], row["routerLink"]) == (8, one.id, None)


def test_an_advertisement_of_a_router_nobody_lists_makes_a_record(script: Script, view: View) -> None:
    one = script().adjacent()
    known(view, one, {"S": 1})
    far = one.phantom(one.id + "-heard")
    far.ra(1)
    row = view.wait_node(far.id, lambda _row: True, "it is known")
    assert row["instance"] == far.instance


def test_advertisements_are_flooded_onward_but_not_back(script: Script, view: View) -> None:
    left, right = script().adjacent(), script().mutual()
    known(view, left, {"S": 1})
    known(view, right, {"S": 1})
    left.ra(1, 0)
    right.world.wait(lambda: right.router.control("RA", left.id), "the flooded RA", CONVERGE)
    flooded = right.router.control("RA", left.id)[-1]
    assert (flooded.ingress, flooded.trace) == (f"0/{left.id}", [f"0/{left.id}", "0/S"])
    direct = control.router_advertisement(left.id, left.instance, 1, 0, trace=[left.id, "S"])
    assert flooded.octets == direct
    assert not left.router.control("RA", left.id)


def test_requests_for_others_are_passed_on(script: Script, view: View) -> None:
    left, right = script().adjacent(), script().mutual()
    known(view, left, {"S": 1})
    known(view, right, {"S": 1})
    left.send(control.link_state_request(left.id, right.id))
    right.world.wait(lambda: right.router.control("LSR", left.id), "the LSR for the other router", CONVERGE)
    passed = right.router.control("LSR", left.id)[-1]
    assert passed.octets == control.link_state_request(left.id, right.id, trace=[left.id, "S"])


def test_a_new_instance_in_an_advertisement_is_a_restart(script: Script, view: View) -> None:
    one = script().adjacent()
    known(view, one, {"S": 1, one.id + "-old": 1}, ls_seq=50)
    one.mau(1, [("M0restart/x", 3)])
    view.wait_remotes("M0restart/x", one.id)
    before = len(one.got("LSR"))
    one.instance = one.router.engine.instance = one.instance + 7
    one.ra(1)
    view.wait_remotes("M0restart/x")
    one.wait("LSR", before)
    one.lsu(1, {"S": 1, one.id + "-new": 1})
    view.wait_node(one.id, lambda row: one.id + "-new" in row["linkState"], "the state of its second life")
    requests = len(one.got("MAR"))
    one.ra(1, 4)
    assert one.wait("MAR", requests).body["have_seq"] == 0


def test_a_new_instance_in_a_hello_is_a_restart(script: Script, view: View) -> None:
    one = script().adjacent()
    known(view, one, {"S": 1, one.id + "-old": 1}, ls_seq=50)
    before = len(one.got("LSR"))
    one.instance = one.router.engine.instance = one.instance + 7
    one.wait("LSR", before)
    view.wait_node(one.id, lambda row: row["linkState"] == [] and row["instance"] == one.instance, "cleared")


@pytest.mark.timeout(60)
def test_state_that_is_not_refreshed_ages_out(network: Network) -> None:
    sluice = network.sluice("S", remoteLsMaxAgeSeconds=3)
    view = View(sluice)
    one = Scripted(network.world, sluice, "N")
    network.originals.append(one.router)
    one.adjacent()
    far = one.phantom("far")
    known(view, one, {"S": 1, "far": 1})
    far.ra(1)
    far.lsu(1, {"N": 1})
    far.mau(1, [("M0aged", 3)])
    view.wait_remotes("M0aged", "far")
    one.ra(2)
    one.lsu(2, {"S": 1})
    # The moment in which it is known without link state may be shorter than a look at it.
    view.wait_gone("far")
    view.wait_remotes("M0aged")
    # The neighbour, not refreshed either, stays: it says HELLO.
    assert "N" in view.own_peers()
