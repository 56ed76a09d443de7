"""Synchronisation with Sluice neighbours by summaries, and requests for missing data."""

import pytest

from sluice.supervisor.network.protocol import messages
from sluice.supervisor.network.protocol.messages import LinkStateRequest, LinkStateUpdate, Summary
from sluice.supervisor.network.protocol.outputs import NeighbourSynced
from sluice.supervisor.network.protocol.timers import Timers
from tests.unit.supervisor.network.protocol.driven_engine import DrivenEngine, line


def test_unanswered_request_is_repeated_a_few_times() -> None:
    a = DrivenEngine()
    a.up(1)
    begin = a.now
    times = []
    for _ in range(600):
        a.hello(1)
        a.run(0.1)
        times += [round(a.now - begin) for sent in a.of(LinkStateRequest)]
        a.clear()
    assert times == [0, 1, 3, 7, 15]


def test_sluice_neighbours_exchange_summaries_and_missing_state() -> None:
    a = line()
    a.engine.announce("M0mine", 3, a.now)
    a.run(1)
    a.clear()
    a.neighbour(7, "D", ours=True, instance=9)
    assert [(sent.link, sent.message) for sent in a.of(Summary)] == [
        (7, Summary("A", 1, 100, {"B": (50, 1, 0), "C": (50, 1, 0), "A": (100, 1, 1)}))
    ]
    own = [sent for sent in a.of(LinkStateUpdate) if sent.link == 7]
    assert [(sent.to, sent.message and sent.message.id) for sent in own] == [("amqp:/_local/qdrouter", "A")]
    a.clear()
    a.receive(7, messages.encode_summary("D", 9, {"D": (9, 1, 0), "B": (50, 1, 0)}), "D")
    assert {(sent.link, sent.to, getattr(sent.message, "id", None)) for sent in a.sent} == {
        (7, "amqp:/_local/qdrouter", "A"),
        (7, "amqp:/_local/qdrouter.ma", "A"),
        (7, "amqp:/_local/qdrouter", "C"),
    }
    a.clear()
    a.receive(
        7, messages.encode_summary("D", 9, {"D": (9, 1, 0), "A": (100, 2, 9), "B": (60, 1, 0), "C": (50, 1, 0)}), "D"
    )
    assert a.sent == []


# inter-router-protocol.md 5.10.
def test_sluice_neighbour_is_asked_only_for_missing_state() -> None:
    a = DrivenEngine()
    a.neighbour(1, "B", ours=True)
    a.receive(1, messages.encode_link_state("B", 50, 1, [("A", 1), ("C", 1)], messages.TO_NEIGHBOUR_LS, 0), "B")
    a.run(0.1)
    a.clear()
    a.advertise(1, "C", ls_seq=1, path=["C", "B"])
    a.run(0.2)
    assert a.of(LinkStateRequest) == []
    a.receive(1, messages.encode_link_state("C", 50, 1, [("B", 1)], messages.TO_NEIGHBOUR_LS, 0), "B")
    a.run(1)
    assert [sent for sent in a.sent if sent.to == "amqp:/_topo/0/C/qdrouter"] == []
    a.advertise(1, "C", ls_seq=2, path=["C", "B"])
    a.run(0.3)
    assert len(a.of(Summary)) >= 1
    a.run(0.3)
    assert [sent.to for sent in a.of(LinkStateRequest)] == ["amqp:/_topo/0/C/qdrouter"]


def test_summary_of_dispatch_neighbour_is_ignored() -> None:
    a = DrivenEngine()
    a.neighbour(1)
    a.clear()
    a.receive(1, messages.encode_summary("B", 50, {}), "B")
    assert a.sent == []
    assert a.of(Summary) == []


#: Addresses that a neighbour without link state and addresses of router C, or of this router, gets.
STATE_OF_C = [("amqp:/_local/qdrouter", "C")]
OWN_STATE = [("amqp:/_local/qdrouter", "A"), ("amqp:/_local/qdrouter.ma", "A")]


@pytest.mark.parametrize(
    ("known", "sent"),
    [
        ({}, []),
        ({"C": (50, 0, 0)}, STATE_OF_C),
        ({"C": (40, 9, 9)}, STATE_OF_C),
        ({"C": (60, 0, 0)}, []),
        ({"A": (90, 9, 9)}, OWN_STATE),
        ({"D": (9, 0, 0)}, []),
    ],
    ids=["nothing missing", "missing", "earlier instance", "later instance", "earlier instance of this router", "own"],
)
def test_summary_is_answered_with_state_of_present_instances(
    known: dict[str, tuple[int, int, int]], sent: list[tuple[str, str]]
) -> None:
    a = line()
    a.engine.announce("M0mine", 3, a.now)
    a.neighbour(7, "D", ours=True, instance=9)
    a.receive(7, messages.encode_link_state("D", 9, 1, [("A", 1)], messages.TO_NEIGHBOUR_LS, 0), "D")
    a.run(1)
    last = [each.message for each in a.of(LinkStateUpdate) if each.message and each.message.id == "A"][-1]
    assert isinstance(last, LinkStateUpdate)
    a.clear()
    everything = {"A": (100, last.ls_seq, 1), "B": (50, 1, 0), "C": (50, 1, 0), "D": (9, 1, 0)}
    a.receive(7, messages.encode_summary("D", 9, {**everything, **known}), "D")
    assert [(each.to, getattr(each.message, "id", None)) for each in a.sent] == sent


def listed(a: DrivenEngine) -> list[list[str]]:
    """Return the neighbours in each link state that the engine has sent to link 1."""
    return [list(sent.message.peers) for sent in a.of(LinkStateUpdate) if sent.link == 1 and sent.message.id == "A"]  # type: ignore[union-attr]


def unready_neighbour() -> DrivenEngine:
    """Return router A with neighbour B, which is ready, and the new neighbour D, whose state is awaited."""
    a = DrivenEngine(timers=Timers(sync_limit=2.0))
    a.neighbour(1, "B", ours=True)
    a.engine.neighbour_ready("B", a.now)
    a.clear()
    a.neighbour(7, "D", ours=True, instance=9)
    return a


def test_new_neighbour_is_listed_once_what_it_knows_is_in_force() -> None:
    a = unready_neighbour()
    a.receive(7, messages.encode_summary("D", 9, {"D": (9, 1, 0), "E": (4, 2, 0), "A": (100, 1, 0)}), "D")
    a.receive(7, messages.encode_link_state("D", 9, 1, [("E", 1)], messages.TO_NEIGHBOUR_LS, 0), "D")
    a.run(0.5)
    assert not any(isinstance(change, NeighbourSynced) for change in a.changes), "the state of E is missing"
    a.receive(7, messages.encode_link_state("E", 4, 2, [("D", 1)], messages.TO_NEIGHBOUR_LS, 0), "D")
    assert NeighbourSynced("D") in a.changes
    a.run(0.5)
    assert all("D" not in peers for peers in listed(a)), "not in force yet"
    a.engine.neighbour_ready("D", a.now)
    a.run(0.5)
    assert listed(a)[-1] == ["B", "D"]


def test_neighbour_without_summary_is_listed_after_the_limit() -> None:
    a = unready_neighbour()
    a.run(1.5)
    assert all("D" not in peers for peers in listed(a))
    a.run(1)
    assert listed(a)[-1] == ["B", "D"]


def test_lost_neighbour_is_awaited_again() -> None:
    a = unready_neighbour()
    a.engine.neighbour_ready("D", a.now)
    a.down(7)
    a.neighbour(8, "D", ours=True, instance=9)
    a.run(0.5)
    assert listed(a)[-1] == ["B"]


def test_neighbour_is_reported_together_with_others_that_are_not_ready() -> None:
    a = unready_neighbour()
    a.neighbour(8, "F", ours=True, instance=3)
    for link, router, instance in ((7, "D", 9), (8, "F", 3)):
        assert not any(isinstance(change, NeighbourSynced) for change in a.changes)
        a.receive(link, messages.encode_summary(router, instance, {router: (instance, 1, 0)}), router)
        a.receive(link, messages.encode_link_state(router, instance, 1, [], messages.TO_NEIGHBOUR_LS, 0), router)
    assert [change for change in a.changes if isinstance(change, NeighbourSynced)] == [
        NeighbourSynced("D"),
        NeighbourSynced("F"),
    ]


def test_path_is_valid_for_neighbour_whose_link_state_lacks_this_router() -> None:
    a = unready_neighbour()
    a.receive(7, messages.encode_link_state("D", 9, 1, [("A", 1)], messages.TO_NEIGHBOUR_LS, 0), "D")
    a.run(1)
    b = a.engine.path("B")
    d = a.engine.path("D")
    assert b is not None
    assert d is not None
    assert d.valid_origins >> b.index & 1
