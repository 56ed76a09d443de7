"""Link state: RA, LSR and LSU (inter-router.md 7), with scripted neighbours that play routers behind them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.network.net import CONVERGE, InteropNetwork
from tests.interop.network.scripted import ScriptedRouter, ScriptedRouterView
from tests.peer.router19 import control

ScriptedRouterFactory = Callable[..., ScriptedRouter]


def announce_link_state(
    view: ScriptedRouterView, neighbour: ScriptedRouter, peers: dict[str, int], ls_seq: int = 1
) -> None:
    """Send the neighbour's link state and wait until S has it."""
    neighbour.ra(ls_seq)
    neighbour.lsu(ls_seq, peers)
    view.wait_node(neighbour.id, lambda row: sorted(row["linkState"]) == sorted(peers), f"link state of {neighbour.id}")


def test_higher_sequence_is_requested_and_equal_ignored(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    neighbour = scripted_router().wait_adjacent()
    announce_link_state(view, neighbour, {"S": 1})
    before = len(neighbour.received("LSR"))
    neighbour.ra(1)
    neighbour.ra(2)
    neighbour.wait("LSR", before)
    neighbour.lsu(2, {"S": 1})
    neighbour.ra(2)
    neighbour.lsr()
    updates = len(neighbour.received("LSU"))
    neighbour.wait("LSU", max(0, updates - 1))
    assert len(neighbour.received("LSR")) == before + 1


def test_older_or_equal_link_state_is_ignored(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> None:
    neighbour = scripted_router().wait_adjacent()
    announce_link_state(view, neighbour, {"S": 1, "zz-a": 1}, ls_seq=5)
    neighbour.lsu(5, {"S": 1, "zz-b": 1})
    neighbour.lsu(4, {"S": 1, "zz-c": 1})
    neighbour.lsu(6, {"S": 1, "zz-d": 1})
    view.wait_node(neighbour.id, lambda row: "zz-d" in row["linkState"], "the newest")
    assert not {"zz-b", "zz-c"} & set(view.nodes())


def test_inner_sequence_of_lsu_counts(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> None:
    neighbour = scripted_router().wait_adjacent()
    announce_link_state(view, neighbour, {"S": 1}, ls_seq=3)
    octets = control.link_state_update(neighbour.id, "S", neighbour.instance, 3, {"S": 1, "zz-inner": 1})
    lying = octets.replace(b"\xa1\x06ls_seq\x54\x03", b"\xa1\x06ls_seq\x54\x09", 1)
    assert lying != octets
    neighbour.send(lying)
    neighbour.lsu(4, {"S": 1, "zz-outer": 1})
    view.wait_node(neighbour.id, lambda row: "zz-outer" in row["linkState"], "the right one")
    assert "zz-inner" not in view.nodes()


def test_link_state_request_gets_single_answer(scripted_router: ScriptedRouterFactory) -> None:
    neighbour = scripted_router().wait_adjacent()
    assert neighbour.received("LSU") == []
    neighbour.lsr()
    answer = neighbour.wait("LSU", timeout=5)
    body = answer.body
    assert body["ls"]["peers"][neighbour.id] == 1
    assert answer.octets == control.link_state_update(
        "S",
        neighbour.id,
        body["instance"],
        body["ls"]["ls_seq"],
        {str(name): int(cost) for name, cost in body["ls"]["peers"].items()},
    )
    neighbour.lsr()
    neighbour.wait("LSU", 1, timeout=5)
    assert len(neighbour.received("LSU")) == 2


def test_peers_of_neighbour_become_known_and_are_requested(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    neighbour = scripted_router().wait_adjacent()
    far = neighbour.phantom(neighbour.id + "-far")
    announce_link_state(view, neighbour, {"S": 1, far.id: 7})
    neighbour.wait_phantom(far.id, "LSR")
    far.lsu(3, {neighbour.id: 7})
    row = view.wait_node(far.id, lambda row: row["linkState"], "its link state")
    assert (row["cost"], row["nextHop"], row["routerLink"]) == (8, neighbour.id, None)


def test_advertisement_of_unlisted_router_creates_node(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    neighbour = scripted_router().wait_adjacent()
    announce_link_state(view, neighbour, {"S": 1})
    far = neighbour.phantom(neighbour.id + "-heard")
    far.ra(1)
    row = view.wait_node(far.id, lambda _row: True, "the router is known")
    assert row["instance"] == far.instance


def test_advertisements_are_flooded_onward_but_not_back(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    left, right = scripted_router().wait_adjacent(), scripted_router().wait_mutual()
    announce_link_state(view, left, {"S": 1})
    announce_link_state(view, right, {"S": 1})
    left.ra(1, 0)
    right.world.wait(lambda: right.router.control("RA", left.id), "the flooded RA", CONVERGE)
    flooded = right.router.control("RA", left.id)[-1]
    assert (flooded.ingress, flooded.trace) == (f"0/{left.id}", [f"0/{left.id}", "0/S"])
    direct = control.router_advertisement(left.id, left.instance, 1, 0, trace=[left.id, "S"])
    assert flooded.octets == direct
    assert not left.router.control("RA", left.id)


def test_requests_for_other_routers_are_forwarded(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    left, right = scripted_router().wait_adjacent(), scripted_router().wait_mutual()
    announce_link_state(view, left, {"S": 1})
    announce_link_state(view, right, {"S": 1})
    left.send(control.link_state_request(left.id, right.id))
    right.world.wait(lambda: right.router.control("LSR", left.id), "the LSR for the other router", CONVERGE)
    passed = right.router.control("LSR", left.id)[-1]
    assert passed.octets == control.link_state_request(left.id, right.id, trace=[left.id, "S"])


def test_new_instance_in_advertisement_is_restart(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    neighbour = scripted_router().wait_adjacent()
    announce_link_state(view, neighbour, {"S": 1, neighbour.id + "-old": 1}, ls_seq=50)
    neighbour.mau(1, [("M0restart/x", 3)])
    view.wait_remotes("M0restart/x", neighbour.id)
    before = len(neighbour.received("LSR"))
    neighbour.instance = neighbour.router.engine.instance = neighbour.instance + 7
    neighbour.ra(1)
    view.wait_remotes("M0restart/x")
    neighbour.wait("LSR", before)
    neighbour.lsu(1, {"S": 1, neighbour.id + "-new": 1})
    view.wait_node(
        neighbour.id, lambda row: neighbour.id + "-new" in row["linkState"], "link state of the new instance"
    )
    requests = len(neighbour.received("MAR"))
    neighbour.ra(1, 4)
    assert neighbour.wait("MAR", requests).body["have_seq"] == 0


def test_new_instance_in_hello_is_restart(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> None:
    neighbour = scripted_router().wait_adjacent()
    announce_link_state(view, neighbour, {"S": 1, neighbour.id + "-old": 1}, ls_seq=50)
    before = len(neighbour.received("LSR"))
    neighbour.instance = neighbour.router.engine.instance = neighbour.instance + 7
    neighbour.wait("LSR", before)
    view.wait_node(
        neighbour.id, lambda row: row["linkState"] == [] and row["instance"] == neighbour.instance, "cleared"
    )


@pytest.mark.timeout(60)
def test_link_state_without_refresh_ages_out(network: InteropNetwork) -> None:
    sluice = network.sluice("S", remoteLsMaxAgeSeconds=3)
    view = ScriptedRouterView(sluice)
    neighbour = ScriptedRouter(network.world, sluice, "N")
    network.routers19.append(neighbour.router)
    neighbour.wait_adjacent()
    far = neighbour.phantom("far")
    announce_link_state(view, neighbour, {"S": 1, "far": 1})
    far.ra(1)
    far.lsu(1, {"N": 1})
    far.mau(1, [("M0aged", 3)])
    view.wait_remotes("M0aged", "far")
    neighbour.ra(2)
    neighbour.lsu(2, {"S": 1})
    # The time in which `far` is known without link state may be shorter than a query.
    view.wait_gone("far")
    view.wait_remotes("M0aged")
    # The neighbour, not refreshed either, stays because it sends HELLO.
    assert "N" in view.neighbours()
