"""Link states: request, answer, announcement, expiry, restarts, and resulting paths (inter-router.md 7, 8)."""

from sluice.router.log import CRITICAL, WARNING
from sluice.supervisor.network.protocol import messages
from sluice.supervisor.network.protocol.messages import (
    Advertisement,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    MobileRequest,
)
from sluice.supervisor.network.protocol.neighbour_table import DRAINING_COST
from sluice.supervisor.network.protocol.outputs import (
    KeysChanged,
    PathChanged,
    RadiusChanged,
    RouterRemoved,
    Unreachable,
)
from sluice.supervisor.network.protocol.timers import ProtocolLimits
from tests.unit.supervisor.network.protocol.driven_engine import DrivenEngine, line


# inter-router.md 7.2.
def test_link_state_request_is_answered_at_once() -> None:
    a = DrivenEngine()
    a.neighbour(1, cost=3)
    a.clear()
    a.receive(1, messages.encode_link_state_request("B", messages.to_router_ls("A")))
    assert [(sent.link, sent.to, sent.message, sent.trace) for sent in a.sent] == [
        (1, "amqp:/_topo/0/B/qdrouter", LinkStateUpdate("A", 1, 100, 1, {"B": 3}), ["A"])
    ]


def test_request_of_unreachable_router_is_answered_later() -> None:
    a = DrivenEngine()
    a.neighbour(1)
    a.clear()
    a.receive(1, messages.encode_link_state_request("C", messages.to_router_ls("A")), ["C", "B"])
    assert a.of(LinkStateUpdate) == []
    a.link_state(1, "B", 1, {"A": 1, "C": 2})
    a.run(0.5)
    assert [sent.to for sent in a.of(LinkStateUpdate)] == ["amqp:/_topo/0/C/qdrouter"]


def test_higher_sequence_in_advertisement_is_requested_at_once() -> None:
    a = line()
    a.clear()
    a.advertise(1, "C", ls_seq=2, path=["C", "B"])
    assert [(sent.to, sent.message) for sent in a.sent] == [("amqp:/_topo/0/C/qdrouter", LinkStateRequest("A", 1))]
    a.clear()
    a.link_state(1, "C", 2, {"B": 2})
    a.run(3)
    a.advertise(1, "C", ls_seq=2, path=["C", "B"])
    assert a.of(LinkStateRequest) == []


def test_paths_follow_link_states() -> None:
    a = line()
    assert a.paths() == {"B": PathChanged(1, (1,), 1, 1, 0), "C": PathChanged(2, (1,), 1, 3, 0)}
    assert [change.radius for change in a.changes if isinstance(change, RadiusChanged)][-1] == 2
    a.neighbour(7, "C", cost=1)
    a.run(0.1)
    assert a.links() == {"B": (1,), "C": (7,)}
    # C announces its connection to A, so traffic between B and C may pass A.
    a.link_state(7, "C", 2, {"B": 10, "A": 1})
    a.link_state(1, "B", 2, {"C": 10, "A": 1})
    a.run(1)
    assert a.paths()["B"].valid_origins == 1 << 2
    assert a.paths()["C"].valid_origins == 1 << 1


def test_lost_connection_is_routed_around_at_once() -> None:
    a = line()
    a.neighbour(7, "C", cost=9)
    a.run(1)
    assert a.links() == {"B": (1,), "C": (1,)}
    a.clear()
    a.down(1)
    assert a.links() == {"B": (7,), "C": (7,)}
    assert [sent.link for sent in a.of(Advertisement)] == [7]


def test_old_link_states_are_ignored() -> None:
    a = line()
    a.link_state(1, "C", 1, {"B": 2, "X": 1})
    a.link_state(1, "C", 0, {"B": 2, "X": 1})
    assert "X" not in [row.id for row in a.engine.routers()]


def test_inner_sequence_of_link_state_counts() -> None:
    a = line()
    tail = messages.encode_link_state("C", 50, 9, [("B", 2), ("X", 1)], messages.to_router_ls("A"))
    outside = tail.replace(b"\xa1\x06ls_seq\x54\x09", b"\xa1\x06ls_seq\x54\x00", 1)
    assert outside != tail
    a.receive(1, outside, ["C", "B"])
    assert "X" in [row.id for row in a.engine.routers()]


# inter-router.md 7.3.
def test_unconfirmed_link_state_expires_before_its_router() -> None:
    a = line()
    a.engine.announce("M0mine", 3, a.now)
    a.receive(1, messages.encode_mobile_change("C", 1, {"M0x": 3}, []), ["C", "B"])
    a.clear()
    for second in range(70):
        a.hello(1)
        a.advertise(1, "B", ls_seq=1)
        a.run(1)
        if second == 58:
            assert "C" in a.links()
    # C's own link state has expired; B still lists C.
    c = a.engine.routers()[2]
    assert (c.id, c.link_state, c.ls_seq, c.keys, c.reachable) == ("C", (), 0, 1, True)
    a.link_state(1, "B", 2, {"A": 1})
    a.run(0.1)
    assert Unreachable(2) in a.changes
    assert not any(isinstance(change, KeysChanged) for change in a.changes)
    a.clear()
    for _ in range(4):
        a.hello(1)
        a.run(1)
    assert a.changes == [RouterRemoved(2)]
    assert [row.id for row in a.engine.routers()] == ["A", "B"]
    a.neighbour(5, "D")
    assert a.engine.routers()[2].index == 2  # lowest free number


# inter-router-protocol.md 4.3.
# inter-router.md 7.5.
def test_restarted_router_loses_its_state() -> None:
    a = line()
    a.receive(1, messages.encode_mobile_change("C", 1, {"M0x": 3}, []), ["C", "B"])
    a.clear()
    a.advertise(1, "C", ls_seq=1, mobile_seq=1, instance=99, path=["C", "B"])
    assert KeysChanged(2, {}, ("M0x",)) in a.changes
    a.run(0.5)
    assert [type(sent.message) for sent in a.sent if sent.to and "/C/" in sent.to] == [LinkStateRequest, MobileRequest]
    a.link_state(1, "C", 1, {"B": 5}, instance=99)
    a.run(0.5)
    assert a.paths()["C"].cost == 3
    assert a.engine.routers()[2].instance == 99


def test_messages_from_before_restart_are_ignored() -> None:
    a = line()
    a.advertise(1, "C", ls_seq=1, instance=99, path=["C", "B"])
    a.link_state(1, "C", 1, {"B": 4}, instance=99)
    a.advertise(1, "C", ls_seq=8, instance=50, path=["C", "B"])
    a.link_state(1, "C", 8, {"B": 1}, instance=50)
    row = a.engine.routers()[2]
    assert (row.instance, row.ls_seq) == (99, 1)


def test_instance_of_clock_set_back_is_accepted_later() -> None:
    a = line()
    for _ in range(8):
        a.hello(1)
        a.advertise(1, "C", ls_seq=1, instance=7, path=["C", "B"])
        a.run(1)
    assert a.engine.routers()[2].instance == 7


def receive_own_state(a: DrivenEngine, instance: int, ls_seq: int = 1) -> None:
    """Let B announce, unrequested, the state that it has of this router."""
    a.receive(1, messages.encode_link_state("A", instance, ls_seq, [("B", 1)], messages.TO_NEIGHBOUR_LS, 0))


def test_router_continues_with_instance_above_network() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    a.run(1.0)
    a.clear()
    receive_own_state(a, 100)  # an echo
    receive_own_state(a, 99)
    assert a.sent == []
    receive_own_state(a, 700)
    assert a.of(Hello)[0].message == Hello("A", 1, 701, ("B",))
    assert a.of(LinkStateUpdate)[0].message == LinkStateUpdate("A", 1, 701, 2, {"B": 1})
    assert a.engine.routers()[0].instance == 701
    assert [line.level for line in a.log] == [WARNING]
    a.receive(1, messages.encode_summary("B", 50, {"A": (900, 1, 0)}))
    assert a.engine.routers()[0].instance == 901


def test_router_with_same_id_and_instance_is_outbid() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    a.clear()
    receive_own_state(a, 100, 2)
    assert a.engine.routers()[0].instance == 101
    assert [(line.level, line.text) for line in a.log] == [
        (
            WARNING,
            "Other routers know instance 100 of this router with sequence 2, later than its own (does another router"
            " have its id?), so it continues as instance 101",
        )
    ]


def test_routers_with_same_id_stop_outbidding() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    for instance in range(1000, 1100, 10):
        receive_own_state(a, instance)
    assert a.engine.routers()[0].instance == 1021
    assert [line.text for line in a.log if line.level == CRITICAL] == [
        "Detected another router with the id of this one, A: each router of a network needs its own id"
    ]
    receive_own_state(a, 2**63 - 1)
    assert a.engine.routers()[0].instance == 1021


def test_sluice_neighbour_receives_its_former_state() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    a.receive(1, messages.encode_link_state("B", 50, 3, [("A", 1)], messages.TO_NEIGHBOUR_LS, 0))
    a.down(1)
    a.clear()
    a.neighbour(2, ours=True, instance=40)
    assert next(sent.message for sent in a.of(LinkStateUpdate) if sent.link == 2) == LinkStateUpdate(
        "B", 1, 50, 3, {"A": 1}
    )
    assert a.engine.routers()[1].instance == 40


def test_state_of_sluice_neighbour_from_others_goes_to_it_only() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    a.neighbour(2, "C", ours=True)
    a.clear()
    a.receive(2, messages.encode_link_state("B", 80, 3, [("X", 1)], messages.TO_NEIGHBOUR_LS, 0), "C")
    assert [(sent.link, sent.message) for sent in a.sent] == [(1, LinkStateUpdate("B", 1, 80, 3, {"X": 1}))]
    a.receive(2, messages.encode_link_state("B", 30, 3, [("X", 1)], messages.TO_NEIGHBOUR_LS, 0), "C")
    a.advertise(2, "B", ls_seq=9, instance=80, path=["B", "C"])
    a.run(1.0)
    row = a.engine.routers()[1]
    assert (row.instance, row.link_state) == (50, ())


def test_earlier_instance_of_reachable_router_is_accepted() -> None:
    a = DrivenEngine()
    a.neighbour(1, ours=True)
    a.receive(1, messages.encode_link_state("B", 50, 2, [("A", 1), ("C", 1)], messages.TO_NEIGHBOUR_LS, 0))
    a.receive(1, messages.encode_link_state("C", 50, 2, [("B", 1)], messages.TO_NEIGHBOUR_LS, 0))
    for _ in range(5):
        a.hello(1)
        a.run(1.0)
    a.advertise(1, "C", ls_seq=1, instance=7, path=["C", "B"])
    assert a.engine.routers()[2].instance == 7
    a.advertise(1, "C", ls_seq=2, instance=50, path=["C", "B"])
    a.advertise(1, "C", ls_seq=2, instance=7, path=["C", "B"])  # arrived later by a longer path
    assert a.engine.routers()[2].instance == 50


# inter-router-protocol.md 8.
def test_link_state_with_too_many_neighbours_is_ignored() -> None:
    a = DrivenEngine(limits=ProtocolLimits(neighbours=3))
    a.neighbour(1)
    a.link_state(1, "B", 1, dict.fromkeys("ACDE", 1))
    assert [row.id for row in a.engine.routers()] == ["A", "B"]
    assert any("more than 3 neighbours" in line.text for line in a.log)


def test_close_changes_are_announced_together() -> None:
    a = DrivenEngine()
    a.neighbour(1, "B")
    a.run(5)
    a.clear()
    for number in range(10, 30):
        a.up(number)
        a.hello(number, f"X{number}", "A")
        a.run(0.005)
    a.run(2)
    assert len({sent.message for sent in a.of(Advertisement)}) <= 4
    assert len(a.links()) >= 20


# -- Between Sluice neighbours


def test_changes_are_relayed_to_sluice_neighbours_only() -> None:
    a = DrivenEngine()
    a.neighbour(1, "B", ours=True)
    a.neighbour(2, "C", ours=True)
    a.neighbour(3, "D")
    a.run(1)
    a.clear()
    tail = messages.encode_link_state("X", 5, 1, [("B", 1)], messages.TO_NEIGHBOUR_LS, 10)
    a.receive(1, tail, "B")
    a.receive(2, tail, "C")
    assert [(sent.link, sent.message, sent.trace) for sent in a.sent] == [
        (2, LinkStateUpdate("X", 1, 5, 1, {"B": 1}, 10), ["A"])
    ]


def test_draining_router_announces_raised_costs() -> None:
    a = DrivenEngine()
    a.neighbour(1, cost=3, ours=True)
    a.clear()
    a.engine.drain(a.now)
    a.settle()
    (update,) = [sent.message for sent in a.of(LinkStateUpdate)]
    assert isinstance(update, LinkStateUpdate)
    assert update.peers == {"B": 3 + DRAINING_COST}
    assert a.paths()["B"].cost == 3, "its own choices stay"
    a.clear()
    a.receive(1, messages.encode_link_state_request("B", messages.to_router_ls("A")))
    assert [sent.message.peers for sent in a.sent if isinstance(sent.message, LinkStateUpdate)] == [
        {"B": 3 + DRAINING_COST}
    ]
