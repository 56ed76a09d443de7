"""Networks of routing engines on a virtual clock, with random events, compared with a naive model.

Larger networks: `python -m loadtests.network_simulation`.
"""

import random

import pytest

from loadtests.network.scenario import COLD, FOREIGN, Network
from loadtests.network.topologies import TOPOLOGIES
from loadtests.network.world import World
from supervisor.network.protocol.outputs import Unreachable
from supervisor.network.protocol.timers import ProtocolLimits

EVENTS = 12


def play(network: Network, events: int) -> None:
    """Apply random events. After each, every router must know the shortest paths and all addresses."""
    world = network.world
    world.run(COLD + FOREIGN * bool(network.foreign))
    assert network.faults() == [], "cold start"
    for _ in range(events):
        text, wait = network.event()
        world.run(world.now + wait)
        assert network.faults() == [], f"{text} at {world.now}"


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_network_of_sluice_routers_converges(topology: str, seed: int) -> None:
    size = 12 if topology == "full" else 32
    play(Network(size, 8 * size, topology, seed, mirrors=size), EVENTS)


@pytest.mark.parametrize("foreign", [4, 16])
@pytest.mark.parametrize("topology", ["random", "ring"])
def test_network_with_routers_of_1_19_converges(topology: str, foreign: int) -> None:
    """The traffic to and among these routers is that of 1.19: requests are forwarded through the network and hops are
    counted."""
    play(Network(16, 64, topology, 3, mirrors=16, foreign=foreign), 6)


@pytest.mark.parametrize("foreign", [0, 4])
def test_network_with_split_address_updates_converges(foreign: int) -> None:
    play(Network(12, 240, "random", 7, mirrors=12, foreign=foreign, limits=ProtocolLimits(part_octets=100)), EVENTS)


def test_addresses_beyond_one_message_are_announced() -> None:
    """Topology A - B; C joins later."""
    world = World(1, shared=False)
    a, b, c = (world.add_router(name) for name in "ABC")
    world.connect(0, 1, 1)
    world.run(5.0)
    for number in range(300_000):
        a.engine.announce(f"M0tenant-{number:06}/service-{number:06}/queue/some-name-of-it", 3, world.now)
    world.announce(a, "M0last", 3)
    sizes: list[int] = []
    world.on_message = lambda _wire, octets: sizes.append(len(octets))
    world.run(15.0)
    assert len(b.engine.keys_of("A") or ()) == 300_001
    world.connect(1, 2, 1)
    world.run(20.0)
    assert len(c.engine.keys_of("A") or ()) == 300_001
    assert max(sizes) < ProtocolLimits().part_octets + 1000
    assert sum(sizes) < 2.2 * 18e6  # sent once to each of the two


def test_flooding_in_full_mesh_takes_two_messages_per_connection() -> None:
    """1.19 sends a copy along every loop-free path."""
    network = Network(16, 0, "full", 1)
    world = network.world
    world.run(20.0)
    before = world.messages
    network.add_key(world.routers[0])
    world.run(world.now + 0.9)
    hellos = 2 * len(network.edges)
    assert world.messages - before <= 2 * len(network.edges) + hellos


def test_lost_connection_is_bypassed_within_a_few_latencies() -> None:
    world = World(1, mirrors=3)
    for name in "ABC":
        world.add_router(name)
    lost = world.connect(0, 1, 1, latency=0.005)
    world.connect(1, 2, 1, latency=0.005)
    kept = world.connect(0, 2, 1, latency=0.005)
    world.run(20.0)
    world.cut(lost)
    world.run(world.now)
    a, b, c = (router.engine for router in world.routers)
    path = a.path("B")
    assert path is not None
    assert (path.links, path.cost) == ((kept.numbers[0],), 2)
    assert b.path("A") is not None
    world.run(world.now + 0.03)
    # C accepts traffic from A to B, and back.
    row = {row.id: row for row in c.routers()}
    assert (row["A"].valid_origins, row["B"].valid_origins) == (("B",), ("A",))


def test_silent_connection_is_abandoned_after_hello_time_out() -> None:
    world = World(1)
    for name in "ABC":
        world.add_router(name)
    silent = world.connect(0, 1, 1)
    world.connect(1, 2, 1)
    world.connect(0, 2, 1)
    world.run(20.0)
    world.silence(silent)
    world.run(world.now + 2.0)
    path = world.routers[0].engine.path("B")
    assert path is not None
    assert path.cost == 1
    world.run(world.now + 3.0)
    path = world.routers[0].engine.path("B")
    assert path is not None
    assert path.cost == 2


def test_lost_router_is_unreachable_at_once_and_later_forgotten() -> None:
    world = World(1, mirrors=3)
    for name in "ABC":
        world.add_router(name)
    world.connect(0, 1, 1)
    world.connect(1, 2, 1)
    world.announce(world.routers[2], "M0x", 3)
    world.run(20.0)
    world.kill(world.routers[2])
    world.run(world.now + 0.1)
    a = world.routers[0].engine
    assert a.path("C") is None
    assert a.keys_of("C") == {"M0x": 3}
    world.run(world.now + 100.0)
    assert [row.id for row in a.routers()] == ["A", "B"]
    assert not any(isinstance(change, Unreachable) for change in a.take_changes())


@pytest.mark.parametrize("down", [1.0, 20.0, 100.0])
@pytest.mark.parametrize("foreign", [None, 2, 3])
def test_router_with_clock_set_back_is_accepted_everywhere(foreign: int | None, down: float) -> None:
    """Topology A - B - C - D. D restarts with its clock 100 seconds back."""
    world = World(1, mirrors=4, foreign=frozenset() if foreign is None else frozenset([foreign]))
    a, _, _, d = (world.add_router(name) for name in "ABCD")
    for one in range(3):
        world.connect(one, one + 1, 1)
    for name in ("M0old", "M0both"):
        world.announce(d, name, 3)
    world.run(30.0)
    world.kill(d)
    world.run(world.now + down)
    d.keys = {"M0both": 3, "M0new": 3}
    world.restart(d, clock=-100)
    world.connect(2, 3, 1)
    world.run(world.now + (2.0 if foreign is None else 10.0))
    assert a.engine.keys_of("D") == d.keys
    assert a.engine.path("D") is not None


def test_duplicate_router_ids_leave_network_at_rest() -> None:
    """Topology X - A - B - X. The routers at both ends have the same id."""
    world = World(1)
    first, _, b, last = (world.add_router(name) for name in "XABX")
    other = world.add_router("C")
    for one in range(3):
        world.connect(one, one + 1, 1)
    world.connect(2, 4, 1)
    world.announce(first, "M0first", 3)
    world.announce(last, "M0last", 3)
    world.run(20.0)
    before = world.messages
    world.run(80.0)
    hellos = 60 * 2 * 4
    assert world.messages - before < 1.5 * hellos
    assert b.engine.keys_of("X") == {"M0last": 3}
    assert other.engine.keys_of("X") == {"M0last": 3}


def test_flapping_connection_does_not_flood() -> None:
    network = Network(16, 0, "mesh", 1)
    world = network.world
    world.run(20.0)
    wire = network.wires()[0]
    heard = world.routers[12].engine.routers()
    before = {row.id: row.ls_seq for row in heard}
    for _ in range(60):
        ends = (*wire.ends, wire.cost)
        world.cut(wire)
        world.run(world.now + 0.25)
        wire = world.connect(*ends)
        world.run(world.now + 0.25)
    after = {row.id: row.ls_seq for row in world.routers[12].engine.routers()}
    assert sum(after[router] - before[router] for router in after) <= 60  # of 240 changes
    world.run(world.now + 40.0)
    assert network.faults() == []


def test_order_of_random_events_depends_on_seed() -> None:
    one, other = (Network(8, 8, "random", 5) for _ in range(2))
    for network in (one, other):
        network.world.run(COLD)
        network.rng = random.Random(9)
    for _ in range(4):
        assert one.event() == other.event()
        one.world.run(one.world.now + 1)
        other.world.run(other.world.now + 1)
    assert one.world.messages == other.world.messages
