"""Times of advertisements."""

from supervisor.network.protocol.messages import Advertisement
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
