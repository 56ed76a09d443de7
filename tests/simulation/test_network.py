"""Networks of routing engines on a virtual clock, with random events, compared with a naive model.

A larger network: `python -m loadtests.bench network-simulation`.
"""

import random

import pytest

from loadtests.network.scenario import COLD, FOREIGN, RandomEventNetwork
from loadtests.network.simulated import SimulatedNetwork
from loadtests.network.topologies import TOPOLOGIES
from sluice.supervisor.network.protocol.outputs import Unreachable
from sluice.supervisor.network.protocol.timers import ProtocolLimits

EVENTS = 12


def play(scenario: RandomEventNetwork, events: int) -> None:
    """Apply random events. After each, every router must know the shortest paths and all addresses."""
    network = scenario.network
    network.run(COLD + FOREIGN * bool(scenario.foreign))
    assert scenario.faults() == [], "cold start"
    for _ in range(events):
        text, wait = scenario.event()
        network.run(network.now + wait)
        assert scenario.faults() == [], f"{text} at {network.now}"


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_network_of_sluice_routers_converges(topology: str, seed: int) -> None:
    size = 12 if topology == "full" else 32
    play(RandomEventNetwork(size, 8 * size, topology, seed, mirrors=size), EVENTS)


@pytest.mark.parametrize("foreign", [4, 16])
@pytest.mark.parametrize("topology", ["random", "ring"])
def test_network_with_routers_of_1_19_converges(topology: str, foreign: int) -> None:
    """The traffic to and among these routers is that of 1.19: requests are forwarded through the network and hops are
    counted."""
    play(RandomEventNetwork(16, 64, topology, 3, mirrors=16, foreign=foreign), 6)


@pytest.mark.parametrize("foreign", [0, 4])
def test_network_with_addresses_in_parts_converges(foreign: int) -> None:
    play(
        RandomEventNetwork(12, 240, "random", 7, mirrors=12, foreign=foreign, limits=ProtocolLimits(part_octets=100)),
        EVENTS,
    )


def test_addresses_beyond_one_message_are_received() -> None:
    """Topology A - B; C joins later."""
    network = SimulatedNetwork(1)
    a, b, c = (network.add_router(name) for name in "ABC")
    network.connect(0, 1, 1)
    network.run(5.0)
    for number in range(300_000):
        a.engine.announce(f"M0tenant-{number:06}/service-{number:06}/queue/some-name-of-it", 3, network.now)
    network.announce(a, "M0last", 3)
    sizes: list[int] = []
    network.on_message = lambda _wire, octets: sizes.append(len(octets))
    network.run(15.0)
    assert len(b.engine.keys_of("A") or ()) == 300_001
    network.connect(1, 2, 1)
    network.run(20.0)
    assert len(c.engine.keys_of("A") or ()) == 300_001
    assert max(sizes) < ProtocolLimits().part_octets + 1000
    assert sum(sizes) < 2.2 * 18e6  # sent once to each of the two


def test_flooding_in_a_full_mesh_costs_two_messages_a_connection_at_most() -> None:
    """1.19 sends a copy along every loop-free path."""
    scenario = RandomEventNetwork(16, 0, "full", 1)
    network = scenario.network
    network.run(20.0)
    before = network.messages
    scenario.add_key(network.routers[0])
    network.run(network.now + 0.9)
    hellos = 2 * len(scenario.edges)
    assert network.messages - before <= 2 * len(scenario.edges) + hellos


def test_triangle_reroutes_around_lost_connection_in_few_latencies() -> None:
    network = SimulatedNetwork(1, mirrors=3)
    for name in "ABC":
        network.add_router(name)
    lost = network.connect(0, 1, 1, latency=0.005)
    network.connect(1, 2, 1, latency=0.005)
    kept = network.connect(0, 2, 1, latency=0.005)
    network.run(20.0)
    network.cut(lost)
    network.run(network.now)
    a, b, c = (router.engine for router in network.routers)
    path = a.path("B")
    assert path is not None
    assert (path.links, path.cost) == ((kept.numbers[0],), 2)
    assert b.path("A") is not None
    network.run(network.now + 0.03)
    # C lets what comes from A go to B, and back.
    row = {row.id: row for row in c.routers()}
    assert (row["A"].valid_origins, row["B"].valid_origins) == (("B",), ("A",))


def test_silent_connection_is_dropped_after_hello_timeout() -> None:
    network = SimulatedNetwork(1)
    for name in "ABC":
        network.add_router(name)
    silent = network.connect(0, 1, 1)
    network.connect(1, 2, 1)
    network.connect(0, 2, 1)
    network.run(20.0)
    network.silence(silent)
    network.run(network.now + 2.0)
    path = network.routers[0].engine.path("B")
    assert path is not None
    assert path.cost == 1
    network.run(network.now + 3.0)
    path = network.routers[0].engine.path("B")
    assert path is not None
    assert path.cost == 2


def test_dead_router_is_unreachable_at_once_and_forgotten_later() -> None:
    network = SimulatedNetwork(1, mirrors=3)
    for name in "ABC":
        network.add_router(name)
    network.connect(0, 1, 1)
    network.connect(1, 2, 1)
    network.announce(network.routers[2], "M0x", 3)
    network.run(20.0)
    network.kill(network.routers[2])
    network.run(network.now + 0.1)
    a = network.routers[0].engine
    assert a.path("C") is None
    assert a.keys_of("C") == {"M0x": 3}
    network.run(network.now + 100.0)
    assert [row.id for row in a.routers()] == ["A", "B"]
    assert not any(isinstance(change, Unreachable) for change in a.take_changes())


@pytest.mark.parametrize("down", [1.0, 20.0, 100.0])
@pytest.mark.parametrize("foreign", [None, 2, 3])
def test_router_with_clock_set_back_is_accepted_everywhere(foreign: int | None, down: float) -> None:
    """Topology A - B - C - D. D restarts with its clock 100 seconds back."""
    network = SimulatedNetwork(1, mirrors=4, foreign=frozenset() if foreign is None else frozenset([foreign]))
    a, _, _, d = (network.add_router(name) for name in "ABCD")
    for one in range(3):
        network.connect(one, one + 1, 1)
    for name in ("M0old", "M0both"):
        network.announce(d, name, 3)
    network.run(30.0)
    network.kill(d)
    network.run(network.now + down)
    d.keys = {"M0both": 3, "M0new": 3}
    network.restart(d, clock=-100)
    network.connect(2, 3, 1)
    network.run(network.now + (2.0 if foreign is None else 10.0))
    assert a.engine.keys_of("D") == d.keys
    assert a.engine.path("D") is not None


def test_routers_with_equal_ids_are_logged_and_network_is_stable() -> None:
    """Topology X - A - B - X. The routers at both ends have the same id."""
    network = SimulatedNetwork(1)
    first, _, b, last = (network.add_router(name) for name in "XABX")
    other = network.add_router("C")
    for one in range(3):
        network.connect(one, one + 1, 1)
    network.connect(2, 4, 1)
    network.announce(first, "M0first", 3)
    network.announce(last, "M0last", 3)
    network.run(20.0)
    before = network.messages
    network.run(80.0)
    hellos = 60 * 2 * 4
    assert network.messages - before < 1.5 * hellos
    assert b.engine.keys_of("X") == {"M0last": 3}
    assert other.engine.keys_of("X") == {"M0last": 3}


def test_flapping_connection_does_not_flood() -> None:
    scenario = RandomEventNetwork(16, 0, "mesh", 1)
    network = scenario.network
    network.run(20.0)
    wire = scenario.wires()[0]
    heard = network.routers[12].engine.routers()
    before = {row.id: row.ls_seq for row in heard}
    for _ in range(60):
        ends = (*wire.ends, wire.cost)
        network.cut(wire)
        network.run(network.now + 0.25)
        wire = network.connect(*ends)
        network.run(network.now + 0.25)
    after = {row.id: row.ls_seq for row in network.routers[12].engine.routers()}
    assert sum(after[router] - before[router] for router in after) <= 60  # of 240 changes
    network.run(network.now + 40.0)
    assert scenario.faults() == []


def test_random_order_of_events_is_by_seed() -> None:
    one, other = (RandomEventNetwork(8, 8, "random", 5) for _ in range(2))
    for scenario in (one, other):
        scenario.network.run(COLD)
        scenario.rng = random.Random(9)
    for _ in range(4):
        assert one.event() == other.event()
        one.network.run(one.network.now + 1)
        other.network.run(other.network.now + 1)
    assert one.network.messages == other.network.messages
