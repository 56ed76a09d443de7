"""HELLO and neighbours (inter-router.md 6), with a scripted neighbour of 1.19."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.network.net import CONVERGE, QUICK, Sluice
from tests.interop.network.scripted import ScriptedRouter, ScriptedRouterView
from tests.peer.router19 import control
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19

ScriptedRouterFactory = Callable[..., ScriptedRouter]


def test_hello_equals_that_of_1_19(scripted_router: ScriptedRouterFactory) -> None:
    neighbour = scripted_router()
    hello = neighbour.wait("HELLO")
    instance = hello.body["instance"]
    assert hello.octets == control.hello("S", instance, [str(name) for name in hello.body["seen"]])


def test_hello_lists_router_that_sees_nobody(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> None:
    neighbour = scripted_router(sees=False)
    neighbour.router.engine.mute.add("HELLO")
    assert neighbour.id not in neighbour.wait("HELLO").body["seen"]
    neighbour.send(control.hello(neighbour.id, neighbour.instance, []))
    neighbour.world.wait(
        lambda: neighbour.id in neighbour.received("HELLO")[-1].body["seen"], "S lists the neighbour", CONVERGE
    )
    assert neighbour.id not in view.nodes()
    neighbour.world.wait(
        lambda: neighbour.id not in neighbour.received("HELLO")[-1].body["seen"],
        "S forgets the silent neighbour",
        CONVERGE,
    )


def test_hello_listing_router_makes_neighbour(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> None:
    neighbour = scripted_router(cost=4)
    view.wait_neighbour(neighbour.id)
    row = view.wait_node(neighbour.id, lambda row: row["cost"] == 4, "its cost is known")
    assert row["nextHop"] is None
    assert row["routerLink"] is not None
    assert row["instance"] == neighbour.instance


def test_new_neighbour_receives_ra_and_lsr(scripted_router: ScriptedRouterFactory) -> None:
    neighbour = scripted_router()
    neighbour.wait_adjacent()
    # An RA sent before S knows its neighbour has sequence 0.
    neighbour.world.wait(
        lambda: any(told.body["ls_seq"] >= 1 for told in neighbour.received("RA")),
        "S sends its new link state",
        CONVERGE,
    )
    for told in neighbour.received("RA"):
        assert told.octets == control.router_advertisement(
            "S", told.body["instance"], told.body["ls_seq"], told.body["mobile_seq"]
        )
    assert neighbour.wait("LSR").octets == control.link_state_request("S", neighbour.id)


def test_neighbour_change_raises_link_state_sequence(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    watcher = scripted_router().wait_adjacent()
    before = int(watcher.wait("RA").body["ls_seq"])
    other = scripted_router()
    view.wait_neighbour(other.id)
    more = watcher.wait("RA", ls_seq=before + 1)
    other.stop()
    watcher.wait("RA", ls_seq=more.body["ls_seq"] + 1)


def test_silent_neighbour_is_lost_until_next_hello(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    neighbour = scripted_router().wait_adjacent()
    view.wait_neighbour(neighbour.id)
    neighbour.router.engine.mute.add("HELLO")
    view.wait_no_neighbour(neighbour.id)
    assert not neighbour.connection.lost
    neighbour.router.engine.mute.discard("HELLO")
    view.wait_neighbour(neighbour.id)


def test_hello_without_router_does_not_keep_neighbour(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    neighbour = scripted_router().wait_adjacent()
    view.wait_neighbour(neighbour.id)
    neighbour.router.engine.heard.clear()
    neighbour.router.engine.mute.add("HELLO")

    def unlisted() -> None:
        neighbour.router.emit(control.hello(neighbour.id, neighbour.instance, []), neighbour.connection)

    before = len(neighbour.received("HELLO"))
    neighbour.world.call(unlisted)
    neighbour.wait("HELLO", before)
    assert neighbour.id in view.neighbours()
    neighbour.world.wait(
        lambda: neighbour.id not in (neighbour.received("HELLO")[-1].body["seen"]),
        "S stops listing the neighbour",
        CONVERGE,
    )
    view.wait_no_neighbour(neighbour.id)


def test_detached_control_link_ends_neighbour(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> None:
    neighbour = scripted_router().wait_adjacent()
    view.wait_neighbour(neighbour.id)
    link = neighbour.connection.control_in
    assert link is not None
    neighbour.router.engine.mute.add("HELLO")
    neighbour.world.call(link.detach)
    view.wait_no_neighbour(neighbour.id, timeout=2.5)
    assert not neighbour.connection.lost


def test_lost_connection_ends_neighbour_at_once(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView
) -> None:
    neighbour = scripted_router().wait_adjacent()
    view.wait_neighbour(neighbour.id)
    neighbour.world.call(neighbour.connection.drop)
    view.wait_no_neighbour(neighbour.id, timeout=2.0)


def test_hello_with_own_id_changes_nothing(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> None:
    neighbour = scripted_router().wait_adjacent()
    neighbour.send(control.hello("S", 5, ["S"]))
    before = len(neighbour.received("HELLO"))
    neighbour.wait("HELLO", before)
    assert "S" not in view.neighbours()
    assert "S" not in neighbour.received("HELLO")[-1].body["seen"]


def test_parallel_connections_keep_neighbour(scripted_router: ScriptedRouterFactory, view: ScriptedRouterView) -> None:
    neighbour = scripted_router().wait_adjacent()
    view.wait_neighbour(neighbour.id)
    second = neighbour.router.connect(neighbour.sluice.ports["ir"])
    neighbour.world.wait(
        lambda: second.control_out is not None and second.control_out.credit, "the second connection is attached"
    )
    before = len(neighbour.received("HELLO"))
    neighbour.wait("HELLO", before + 1)
    assert neighbour.id in view.neighbours()
    neighbour.world.call(neighbour.connection.drop)
    neighbour.connection = second
    before = len(neighbour.received("HELLO"))
    neighbour.wait("HELLO", before + 1)
    view.wait_neighbour(neighbour.id)


def test_restarted_neighbour_becomes_neighbour_again(
    router19_loop: Router19Loop, solo: Sluice, view: ScriptedRouterView
) -> None:
    first = Router19(router19_loop, "again", QUICK, instance=1000)
    first.connect(solo.ports["ir"])
    view.wait_node("again", lambda row: row["instance"] == 1000 and row["linkState"] == ["S"], "the first process")
    first.stop()
    second = Router19(router19_loop, "again", QUICK, instance=2000)
    try:
        second.connect(solo.ports["ir"])
        view.wait_node("again", lambda row: row["instance"] == 2000 and row["linkState"] == ["S"], "the second process")
        second.wait_reach("S")
    finally:
        second.stop()
