"""Times of advertisements."""

import itertools

from sluice.supervisor.network.protocol.messages import Advertisement
from tests.unit.supervisor.network.protocol.driven_engine import DrivenEngine


# inter-router.md 7.4.
def test_advertisements_come_every_4_then_every_30_seconds() -> None:
    a = DrivenEngine()
    a.up(1)
    times = []
    begin = a.now + 0.02
    for _ in range(800):
        a.hello(1)
        a.run(0.1)
        times += [round(a.now - begin) for sent in a.of(Advertisement)]
        a.clear()
    assert times[:4] == [0, 4, 8, 38]


def test_advertisements_among_sluice_neighbours_are_rare() -> None:
    a = DrivenEngine()
    a.up(1, ours=True)
    for _ in range(290):
        a.hello(1)
        a.run(0.1)
    assert len(a.of(Advertisement)) == 0
    for _ in range(20):
        a.hello(1)
        a.run(0.1)
    assert len(a.of(Advertisement)) == 1


def dispatch_neighbour() -> DrivenEngine:
    """Return a router with a neighbour of 1.19, long after the last change of the topology."""
    a = DrivenEngine()
    a.up(1)
    for _ in range(1000):
        a.hello(1)
        a.run(0.1)
    a.clear()
    return a


def test_new_addresses_are_advertised_early_to_dispatch_routers() -> None:
    """A router of 1.19 requests the addresses only when an advertisement has a new sequence."""
    a = dispatch_neighbour()
    begin = a.now
    a.engine.announce("M0a", 3, a.now)
    while not (sent := a.of(Advertisement)):
        a.hello(1)
        a.run(0.05)
    assert a.now - begin < 1
    (message,) = (each.message for each in sent)
    assert isinstance(message, Advertisement)
    assert message.mobile_seq == 1


def test_change_of_topology_makes_advertisements_frequent_again() -> None:
    a = dispatch_neighbour()
    begin = a.now
    a.neighbour(2, "C")
    times = []
    for _ in range(450):
        a.hello(1)
        a.hello(2, "C")
        a.run(0.1)
        times += [round(a.now - begin) for _ in a.of(Advertisement)]
        a.clear()
    early = [time for time in times if time < 10]
    assert len(early) >= 3
    assert all(after - before <= 4 for before, after in itertools.pairwise(early))
    assert len(times) <= len(early) + 2, "rare again when nothing changes"


def test_distant_change_of_topology_is_followed_by_early_advertisement() -> None:
    a = dispatch_neighbour()
    begin = a.now
    a.link_state(1, "B", 1, {"A": 1, "C": 1})
    while not a.of(Advertisement):
        a.hello(1)
        a.run(0.1)
    assert a.now - begin < 4.5
