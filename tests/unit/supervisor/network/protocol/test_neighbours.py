"""HELLO, adjacency, bundles, damping (inter-router.md 6)."""

import pytest

from sluice.router.log import CRITICAL
from sluice.supervisor.network.protocol import messages
from sluice.supervisor.network.protocol.messages import (
    Advertisement,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    MobileChange,
    Summary,
)
from sluice.supervisor.network.protocol.outputs import PathChanged, RadiusChanged, RouterAdded, Unreachable
from sluice.supervisor.network.protocol.timers import ProtocolLimits, Timers
from tests.unit.supervisor.network.protocol.driven_engine import DrivenEngine


# inter-router-protocol.md 4.1.
def test_hello_is_sent_at_once_on_new_link_then_each_second() -> None:
    a = DrivenEngine()
    a.up(1)
    a.up(2)
    assert [(sent.link, sent.to, sent.message) for sent in a.sent] == [
        (1, "amqp:/_local/qdhello", Hello("A", 1, 100, ())),
        (2, "amqp:/_local/qdhello", Hello("A", 1, 100, ())),
    ]
    a.clear()
    a.run(3)
    assert [sent.link for sent in a.of(Hello)] == [1, 2, 1, 2, 1, 2]


def test_hello_of_unseen_sender_is_answered_at_once() -> None:
    a = DrivenEngine()
    a.up(1)
    a.clear()
    a.hello(1, seen="")
    assert [sent.message for sent in a.sent] == [Hello("A", 1, 100, ("B",))]
    a.clear()
    a.hello(1, seen="")
    a.hello(1, seen="A")
    assert a.of(Hello) == []


def test_hello_answers_are_limited() -> None:
    a = DrivenEngine()
    a.up(1)
    a.clear()
    for number in range(20):
        a.hello(1, peer=f"X{number}", seen="")
    assert len(a.of(Hello)) <= 4


def test_unanswered_hello_makes_no_neighbour() -> None:
    a = DrivenEngine()
    a.up(1)
    a.hello(1, seen="")
    a.run(1.5)
    assert a.of(Hello)[-1].message == Hello("A", 1, 100, ("B",))
    assert a.changes == []
    a.run(4)
    assert a.of(Hello)[-1].message == Hello("A", 1, 100, ())  # silent for more than three seconds


def test_mutual_hello_makes_neighbour() -> None:
    a = DrivenEngine()
    a.up(4, cost=3)
    a.hello(4)
    assert a.changes == [RouterAdded(1, "B"), RadiusChanged(1), PathChanged(1, (4,), 1, 3, 0)]
    a.run(0.1)
    assert a.changes[-1] == PathChanged(1, (4,), 1, 3, 0)
    assert [sent.to for sent in a.of(LinkStateRequest)] == ["amqp:/_topo/0/B/qdrouter"]
    assert [sent.message for sent in a.of(Advertisement)] == [Advertisement("A", 1, 100, 1, 0)]
    assert a.of(LinkStateUpdate) == []  # never unrequested to a router of 1.19
    assert a.of(Summary) == []
    own, b = a.engine.routers()
    assert (own.link_state, own.next_hop, own.ls_seq, own.cost) == (("B",), "(self)", 1, None)
    assert (b.id, b.next_hop, b.links, b.cost, b.instance) == ("B", None, (4,), 3, 50)


# inter-router-protocol.md 4.4.
def test_lost_connection_is_announced_at_once() -> None:
    a = DrivenEngine()
    a.neighbour(1)
    a.neighbour(2, "C")
    a.clear()
    a.down(1)
    assert a.changes == [Unreachable(1)]
    assert [(sent.link, sent.message) for sent in a.of(Advertisement)] == [(2, Advertisement("A", 1, 100, 3, 0))]


def test_silent_neighbour_is_lost_and_recovers() -> None:
    a = DrivenEngine()
    a.neighbour(1)
    a.run(2.5)
    assert "B" in a.links()
    a.run(2)
    assert "B" not in a.links()
    a.hello(1)
    a.run(0.1)
    assert a.links() == {"B": (1,)}


def test_neighbour_survives_time_without_running() -> None:
    a = DrivenEngine()
    a.neighbour(1)
    a.now += 20
    a.settle()
    assert "B" in a.links()
    a.run(2.5)
    a.hello(1)
    a.run(2.5)
    assert "B" in a.links()
    a.run(2)
    assert "B" not in a.links()


def test_unanswered_hello_does_not_refresh_neighbour() -> None:
    a = DrivenEngine()
    a.neighbour(1)
    a.run(1)
    a.hello(1, seen="")
    assert "B" in a.links()
    a.run(3.5)
    assert "B" not in a.links()


def test_second_id_on_link_makes_no_neighbour() -> None:
    a = DrivenEngine()
    a.neighbour(1)
    a.clear()
    a.receive(1, messages.encode_hello("a/b/c", 7, []), "B")
    assert a.changes == []
    a.hello(1)
    a.run(1.5)
    assert a.changes == []
    sent = a.of(Hello)[-1].message
    assert isinstance(sent, Hello)
    assert set(sent.seen) == {"B", "a/b/c"}


def test_router_with_own_id_is_reported_once() -> None:
    a = DrivenEngine()
    a.up(1)
    for _ in range(3):
        a.hello(1, peer="A", seen="A", instance=7)
    assert [line.module for line in a.log if "id of this one" in line.text] == ["ROUTER_HELLO"]
    a.hello(1, peer="A", seen="A", instance=100)  # an echo of its own HELLO
    assert a.changes == []


def test_router_with_own_id_and_instance_is_reported() -> None:
    a = DrivenEngine(process=1)
    a.up(1, ours=True)
    a.hello(1, peer="A", instance=100, process=1)
    a.hello(1, peer="A", instance=100)  # of 1.19, and possibly an echo
    assert [line for line in a.log if line.level == CRITICAL] == []
    a.hello(1, peer="A", instance=100, process=2)
    assert [line.text for line in a.log if line.level == CRITICAL] == [
        "Detected another router with the id of this one, A: each router of a network needs its own id"
    ]


def test_process_number_is_sent_to_sluice_routers_only() -> None:
    a = DrivenEngine(process=2**61)
    a.up(1, ours=True)
    a.up(2)
    a.run(2.0)
    processes = {sent.link: sent.message.process for sent in a.of(Hello) if isinstance(sent.message, Hello)}
    assert processes == {1: 2**61, 2: 0}


def with_duplicate_id(instance: int = 50, process: int = 0) -> DrivenEngine:
    """Return an engine that has received HELLOs from B and from another router with its id for some seconds."""
    a = DrivenEngine()
    a.up(1, ours=True)
    a.up(2, ours=True)
    for _ in range(5):
        a.hello(1, process=7 if process else 0)
        a.hello(2, instance=instance, process=process)
        a.run(1.0)
    return a


@pytest.mark.parametrize(("instance", "process"), [(60, 0), (50, 8)])
def test_second_router_with_id_of_neighbour_is_not_used(instance: int, process: int) -> None:
    a = with_duplicate_id(instance, process)
    assert a.links() == {"B": (1,)}
    assert a.engine.routers()[1].instance == 50
    assert [line.text for line in a.log if line.level == CRITICAL] == [
        "Detected two routers with the id B: each router of a network needs its own id; only the first of them is used"
    ]
    assert not any("Restart" in line.text for line in a.log)
    a.clear()
    a.run(1.0)
    sent = {sent.link: sent.message for sent in a.of(Hello)}
    assert sent == {1: Hello("A", 1, 100, ("B",)), 2: Hello("A", 1, 100, ())}
    a.receive(2, messages.encode_mobile_change("B", 1, {"M0x": 3}, []))
    a.advertise(2, "B", ls_seq=9, instance=instance)
    assert a.changes == []
    assert a.engine.routers()[1].instance == 50


def test_second_router_with_same_id_is_used_after_first() -> None:
    a = with_duplicate_id(instance=60)
    a.down(1)
    a.hello(2, instance=60)
    a.run(0.1)
    assert a.links() == {"B": (2,)}
    assert a.engine.routers()[1].instance == 60


def test_restart_is_accepted_after_silence_of_old_connection() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    a.run(1.0)
    a.up(2, ours=True)
    for _ in range(5):
        a.hello(2, instance=60)
        a.run(1.0)
    assert a.links() == {"B": (2,)}
    assert a.engine.routers()[1].instance == 60
    assert [line for line in a.log if line.level == CRITICAL] == []


def test_new_instance_on_whole_bundle_is_one_router() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    a.neighbour(2, ours=True)
    a.clear()
    for instance in (60, 60, 60, 70):
        a.hello(1, instance=instance)
        a.hello(2, instance=instance)
        a.run(1.0)
        assert a.links() == {"B": (1, 2)}
    assert [line for line in a.log if line.level == CRITICAL] == []
    assert a.engine.routers()[1].instance == 70


# inter-router-protocol.md 4.2.
def test_cheapest_connections_to_sluice_router_form_bundle() -> None:
    a = DrivenEngine()
    for link, cost in ((1, 5), (2, 3), (3, 3)):
        a.up(link, cost, ours=True)
        a.hello(link)
    a.run(0.2)
    assert a.links() == {"B": (2, 3)}
    assert a.paths()["B"].cost == 3
    a.clear()
    a.down(2)
    assert a.links() == {"B": (3,)}
    a.down(3)
    assert a.links() == {"B": (1,)}
    assert a.paths()["B"].cost == 5
    assert all(not isinstance(change, Unreachable) for change in a.changes)


# inter-router-protocol.md 10.
def test_dispatch_router_keeps_one_connection() -> None:
    a = DrivenEngine()
    a.neighbour(1, cost=2)
    a.neighbour(2, cost=1)
    a.clear()
    for _ in range(5):
        a.run(0.5)
        a.hello(1)
        a.hello(2)
    assert a.links() == {"B": (1,)}
    assert a.changes == []
    a.down(1)
    assert a.links() == {"B": (2,)}
    assert a.paths()["B"].cost == 1


def test_changed_cost_of_connection_is_used() -> None:
    a = DrivenEngine()
    a.neighbour(1, cost=2)
    a.clear()
    a.up(1, cost=7)
    a.run(0.1)
    assert a.paths()["B"].cost == 7
    assert len(a.of(Advertisement)) == 1


def flap(a: DrivenEngine, times: int) -> list[float]:
    """Return the seconds until the connection to B is used, for each time that it is restored."""
    waits = []
    for link in range(11, 11 + times):
        a.up(link)
        begin = a.now
        while True:
            a.hello(link)
            a.hello(1, "C")
            a.run(0.05)
            if a.links().get("B") == (link,):
                break
        waits.append(round(a.now - begin, 1))
        a.run(0.1)
        a.down(link)
        assert a.links().get("B") != (link,)
    return waits


# inter-router-protocol.md 4.4.
def test_flapping_neighbour_is_announced_later_each_time() -> None:
    a = DrivenEngine()
    a.neighbour(1, "C")
    a.link_state(1, "C", 1, {"A": 1, "B": 1})
    waits = flap(a, 7)
    assert max(waits[:2]) <= 0.5
    assert waits[2:] == sorted(waits[2:])
    assert waits[-1] > 3
    assert any("is unstable" in line.text for line in a.log)
    a.run(120)
    a.neighbour(9)
    assert a.links() == {"B": (9,)}


def test_flapping_neighbour_without_alternative_is_held_shortly() -> None:
    a = DrivenEngine()
    waits = flap(a, 12)
    assert 1 < max(waits) <= 2.1


def test_held_neighbour_is_used_when_alternative_is_lost() -> None:
    a = DrivenEngine()
    a.neighbour(1, "C")
    a.link_state(1, "C", 1, {"A": 1, "B": 1})
    flap(a, 8)
    a.up(30)
    a.hello(30)
    a.run(2)
    a.hello(30)
    assert a.links() == {"B": (1,), "C": (1,)}
    a.down(1)
    a.run(0.1)
    assert a.links() == {"B": (30,)}


def test_held_neighbour_stays_known() -> None:
    """No other router names the neighbour until it is announced."""
    a = DrivenEngine(timers=Timers(flap_free=0, flap_most=20))
    for link in range(1, 9):
        a.neighbour(link)
        a.down(link)
    a.up(20)
    for _ in range(300):
        a.hello(20)
        a.run(0.1)
        assert [row.id for row in a.engine.routers()] == ["A", "B"]
    assert a.links() == {"B": (20,)}


# inter-router-protocol.md 9.
def test_changed_timers_are_used() -> None:
    a = DrivenEngine()
    a.up(1)
    a.engine.timers = Timers(hello_interval=3)
    a.run(1.1)
    a.clear()
    a.run(6)
    assert len(a.of(Hello)) == 2


def test_restart_is_no_flap() -> None:
    a = DrivenEngine()
    for link in range(1, 12):
        a.neighbour(link, instance=link)
        assert a.links() == {"B": (link,)}
        a.run(1)
        a.down(link)


def test_dispatch_neighbours_learn_of_limited_routers() -> None:
    a = DrivenEngine(limits=ProtocolLimits(routers_beside_1_19=4))
    a.neighbour(1)
    a.neighbour(2, "Z", ours=True)
    a.neighbour(3, "C", ours=True)
    assert not any("more than 4" in line.text for line in a.log)
    a.receive(
        2, messages.encode_link_state("Z", 50, 1, [(name, 1) for name in "ADE"], messages.TO_NEIGHBOUR_LS, 0), "Z"
    )
    a.run(0.5)
    a.neighbour(4, "F", ours=True)
    assert {row.id for row in a.engine.routers()} == set("ABCDEFZ")  # known and reachable nevertheless
    assert set(a.links()) == set("BCDEFZ")
    assert [line.text for line in a.log if "more than 4" in line.text] == [
        "The network has more than 4 routers, the limit of Dispatch 1.19: neighbours of that version learn only of the"
        " first 4"
    ]
    a.clear()
    for link, router in ((2, "Z"), (4, "F")):  # routers number 2 and 6
        a.receive(link, messages.encode_mobile_change(router, 1, {"M0x": 3}, []), router)
    assert {(sent.link, sent.ingress) for sent in a.of(MobileChange)} == {
        (1, "Z"), (3, "Z"), (4, "Z"), (2, "F"), (3, "F"),
    }  # fmt: skip
    a.clear()
    a.receive(1, messages.encode_link_state_request("B", messages.to_router_ls("A")))
    assert [sent.message.peers for sent in a.of(LinkStateUpdate) if isinstance(sent.message, LinkStateUpdate)] == [
        {"B": 1, "Z": 1, "C": 1}
    ]


def test_long_router_id_is_ignored() -> None:
    """All received ids appear in the HELLOs of this router."""
    a = DrivenEngine(limits=ProtocolLimits(id_octets=100))
    a.up(1)
    a.hello(1, "X" * 101)
    a.clear()
    a.run(1.5)
    assert [sent.message.seen for sent in a.of(Hello) if isinstance(sent.message, Hello)] == [()]


def test_hello_to_other_address_makes_no_neighbour() -> None:
    a = DrivenEngine()
    a.up(1)
    tail = messages.encode_hello("X", 1, ["A"]).replace(
        b"\xa1\x14amqp:/_local/qdhello", b"\xa1\x1aamqp:/_topo/0/all/qdrouter"
    )
    a.receive(1, tail, "X")
    assert a.changes == []


def test_hello_of_disallowed_router_makes_no_neighbour() -> None:
    a = DrivenEngine()
    a.up(1, only="B")
    a.hello(1, "C")
    a.run(1)
    assert {sent.message.seen for sent in a.of(Hello) if isinstance(sent.message, Hello)} == {()}
    text = "HELLO of router 'C' dropped: allowedRouters admitted this peer as 'B'"
    assert [line.text for line in a.log if line.module == "ROUTER_HELLO"] == [text]
    a.clear()
    a.hello(1, "B")
    assert a.paths().keys() == {"B"}
