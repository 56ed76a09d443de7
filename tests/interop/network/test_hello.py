"""HELLO and neighbours (inter-router.md 6), with a scripted neighbour of 1.19."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.network.net import CONVERGE, QUICK, Sluice
from tests.interop.network.scripted import Scripted, View
from tests.peer.router19 import control
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19

Script = Callable[..., Scripted]


def test_hello_is_that_of_the_original(script: Script) -> None:
    one = script()
    hello = one.wait("HELLO")
    instance = hello.body["instance"]
    assert hello.octets == control.hello("S", instance, [str(name) for name in hello.body["seen"]])


def test_hello_lists_who_was_heard_though_it_hears_nobody(script: Script, view: View) -> None:
    one = script(sees=False)
    one.router.engine.mute.add("HELLO")
    assert one.id not in one.wait("HELLO").body["seen"]
    one.send(control.hello(one.id, one.instance, []))
    one.world.wait(lambda: one.id in one.got("HELLO")[-1].body["seen"], "S lists who it has heard", CONVERGE)
    assert one.id not in view.nodes()
    one.world.wait(lambda: one.id not in one.got("HELLO")[-1].body["seen"], "S forgets it after its age", CONVERGE)


def test_a_hello_that_lists_us_makes_a_neighbour(script: Script, view: View) -> None:
    one = script(cost=4)
    view.wait_neighbour(one.id)
    row = view.wait_node(one.id, lambda row: row["cost"] == 4, "its cost is known")
    assert row["nextHop"] is None
    assert row["routerLink"] is not None
    assert row["instance"] == one.instance


def test_a_new_neighbour_is_asked_and_told(script: Script) -> None:
    one = script()
    one.adjacent()
    # One that comes before S knows of its neighbour says 0.
    one.world.wait(
        lambda: any(told.body["ls_seq"] >= 1 for told in one.got("RA")), "S tells its new link state", CONVERGE
    )
    for told in one.got("RA"):
        assert told.octets == control.router_advertisement(
            "S", told.body["instance"], told.body["ls_seq"], told.body["mobile_seq"]
        )
    assert one.wait("LSR").octets == control.link_state_request("S", one.id)


def test_each_change_of_neighbours_raises_the_sequence(script: Script, view: View) -> None:
    watcher = script().adjacent()
    before = int(watcher.wait("RA").body["ls_seq"])
    other = script()
    view.wait_neighbour(other.id)
    more = watcher.wait("RA", ls_seq=before + 1)
    other.stop()
    watcher.wait("RA", ls_seq=more.body["ls_seq"] + 1)


def test_silence_ends_a_neighbour_and_hello_brings_it_back(script: Script, view: View) -> None:
    one = script().adjacent()
    view.wait_neighbour(one.id)
    one.router.engine.mute.add("HELLO")
    view.wait_no_neighbour(one.id)
    assert not one.connection.lost
    one.router.engine.mute.discard("HELLO")
    view.wait_neighbour(one.id)


def test_hellos_that_do_not_list_us_do_not_keep_a_neighbour(script: Script, view: View) -> None:
    one = script().adjacent()
    view.wait_neighbour(one.id)
    one.router.engine.heard.clear()
    one.router.engine.mute.add("HELLO")

    def unlisted() -> None:
        one.router.emit(control.hello(one.id, one.instance, []), one.connection)

    before = len(one.got("HELLO"))
    one.world.call(unlisted)
    one.wait("HELLO", before)
    assert one.id in view.own_peers()
    one.world.wait(lambda: one.id not in (one.got("HELLO")[-1].body["seen"]), "not heard any more", CONVERGE)
    view.wait_no_neighbour(one.id)


def test_the_control_link_ends_and_the_neighbour_with_it(script: Script, view: View) -> None:
    one = script().adjacent()
    view.wait_neighbour(one.id)
    link = one.connection.control_in
    assert link is not None
    one.router.engine.mute.add("HELLO")
    one.world.call(link.detach)
    view.wait_no_neighbour(one.id, timeout=2.5)
    assert not one.connection.lost


def test_a_lost_connection_ends_the_neighbour_at_once(script: Script, view: View) -> None:
    one = script().adjacent()
    view.wait_neighbour(one.id)
    one.world.call(one.connection.drop)
    view.wait_no_neighbour(one.id, timeout=2.0)


def test_a_hello_of_our_own_id_changes_nothing(script: Script, view: View) -> None:
    one = script().adjacent()
    one.send(control.hello("S", 5, ["S"]))
    before = len(one.got("HELLO"))
    one.wait("HELLO", before)
    assert "S" not in view.own_peers()
    assert "S" not in one.got("HELLO")[-1].body["seen"]


def test_parallel_connections_are_survived(script: Script, view: View) -> None:
    one = script().adjacent()
    view.wait_neighbour(one.id)
    second = one.router.connect(one.sluice.ports["ir"])
    one.world.wait(lambda: second.control_out is not None and second.control_out.credit, "the second is attached")
    before = len(one.got("HELLO"))
    one.wait("HELLO", before + 1)
    assert one.id in view.own_peers()
    one.world.call(one.connection.drop)
    one.connection = second
    before = len(one.got("HELLO"))
    one.wait("HELLO", before + 1)
    view.wait_neighbour(one.id)


def test_a_restarted_neighbour_comes_back(world: Router19Loop, solo: Sluice, view: View) -> None:
    first = Router19(world, "again", QUICK, instance=1000)
    first.connect(solo.ports["ir"])
    view.wait_node("again", lambda row: row["instance"] == 1000 and row["linkState"] == ["S"], "the first life")
    first.stop()
    second = Router19(world, "again", QUICK, instance=2000)
    try:
        second.connect(solo.ports["ir"])
        view.wait_node("again", lambda row: row["instance"] == 2000 and row["linkState"] == ["S"], "the second life")
        second.wait_reach("S")
    finally:
        second.stop()
