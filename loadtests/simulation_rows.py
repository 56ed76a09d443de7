"""Rows about simulations in one process: the supervisor of an interior router with many edge routers, and a network of
routers on a virtual clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import mean
from typing import NamedTuple, ParamSpec, TypeVar

import psutil

from loadtests.edge_simulation import Simulation, converge
from loadtests.measuring import FULL, Bench
from loadtests.network.scenario import COLD, RandomEventNetwork
from loadtests.processes import MeasureError
from loadtests.report import Figure

EDGES, QUICK_EDGES = 1000, 100
ADDRESSES = 20  # of each edge router
FAR = 2  # interior routers in a line behind the first one
WITHIN = (10.0, 0.5)  # seconds in which all edge routers connect
TOPOLOGY = "random"
SEED = 1

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class NetworkSize(NamedTuple):
    """Dimensions of a simulated network. addresses: of all routers together."""

    routers: int
    addresses: int
    events: int


FULL_NETWORK = NetworkSize(250, 10_000, 12)
QUICK_NETWORK = NetworkSize(64, 5_000, 5)


def in_own_process(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """Call a function in a fresh process, whose memory and collector of garbage are its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


class StepCost(NamedTuple):
    """Costs of one step of the supervisor, for each edge router or address."""

    step: str
    cpu_us: float
    kib: float


def supervisor_costs(edges: int, addresses: int, several: bool) -> list[StepCost]:
    """Let edge routers connect, announce addresses and leave. several: they have several active uplinks, and move
    their addresses to another router and back. Raises MeasureError if addresses are missing.
    """
    gc.freeze()
    simulation = Simulation(edges, addresses, several)
    memory = psutil.Process().memory_info
    costs = []

    def measured(step: str, each: int, action: Callable[[], None], known: int) -> None:
        resident, cpu = memory().rss, time.process_time()
        action()
        cpu = time.process_time() - cpu
        costs.append(StepCost(step, 1e6 * cpu / each, (memory().rss - resident) / 1024 / each))
        if simulation.known != known:
            raise MeasureError(f"{step}: {simulation.known} addresses instead of {known}")

    links = edges * addresses
    measured("an edge router comes", edges, lambda: simulation.come(edges), 0)
    if several:
        measured("it names this router first", edges, lambda: simulation.say("B", "A"), 0)
    measured("an address", links, lambda: simulation.announce(addresses), links)
    if several:
        measured("an address moves to another router", links, lambda: simulation.say("A"), 0)
        measured("an address moves back", links, lambda: simulation.say("B", "A"), links)
    measured("an edge router is lost", edges, simulation.go, 0)
    measured("an edge router comes again", edges, lambda: simulation.come(edges), 0)
    return costs


def edge_supervisor(bench: Bench) -> list[Figure]:
    """Measure CPU and memory of the supervisor for each edge router and address, with one and with several uplinks."""
    edges = EDGES if bench.effort is FULL else QUICK_EDGES
    figures = []
    for uplinks in ("one", "all"):
        for step, cpu, kib in in_own_process(supervisor_costs, edges, ADDRESSES, uplinks == "all"):
            what = f"{edges:,} edges, uplinks: {uplinks}: {step}"
            figures += [Figure(f"{what}: CPU", cpu, "µs", None), Figure(f"{what}: memory", kib, "KiB", None)]
    return figures


def edge_convergence(bench: Bench) -> list[Figure]:
    """Measure a line of interior routers until all know the addresses of edge routers that connect to the first."""
    edges = EDGES if bench.effort is FULL else QUICK_EDGES
    figures = []
    for within in WITHIN:
        for place, found in enumerate(in_own_process(converge, edges, ADDRESSES, FAR, within)):
            what = f"{edges:,} edges within {within:g} s, interior router {place + 1}"
            figures += [
                Figure(f"{what}: all addresses known", found.seconds, "s", None),
                Figure(f"{what}: CPU", found.cpu, "s", None),
                Figure(f"{what}: longest wake, CPU", 1000 * found.longest, "ms", None),
                Figure(f"{what}: largest message", max(found.updates, default=0), "octets", None),
            ]
    return figures


class NetworkCost(NamedTuple):
    """Costs of a simulated network until it is quiet. cpu: seconds, of all routers."""

    cpu: float
    messages: int
    octets: int


def network_costs(size: NetworkSize) -> tuple[list[NetworkCost], int]:
    """Start a network, and apply random events. After each, every router's state is compared with a naive model.

    Return the costs of the start and of each event, and the resident octets at the end. Raises MeasureError.
    """
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    began = time.process_time()
    scenario = RandomEventNetwork(size.routers, size.addresses, TOPOLOGY, SEED)
    network = scenario.network
    costs: list[NetworkCost] = []
    text, wait, messages, octets = "cold start", COLD, 0, 0
    while True:
        network.run(network.now + wait)
        cpu = time.process_time() - began
        costs.append(NetworkCost(cpu, network.messages - messages, network.octets - octets))
        if faults := scenario.faults():
            raise MeasureError(f"{text}: {faults[0].router} about {faults[0].about}: {faults[0].text}")
        if len(costs) > size.events:
            return costs, psutil.Process().memory_info().rss
        began, messages, octets = time.process_time(), network.messages, network.octets
        text, wait = scenario.event()


def network_simulation(bench: Bench) -> list[Figure]:
    """Measure the protocol between routers. All engines share one process, and decoded messages, sets and trees.

    A router whose costs, next hops or addresses are not those of the model fails the row.
    """
    size = FULL_NETWORK if bench.effort is FULL else QUICK_NETWORK
    costs, resident = in_own_process(network_costs, size)
    cold, *events = costs
    what = f"{size.routers} routers, {size.addresses:,} addresses"
    return [
        Figure(f"{what}: cold start, CPU", 1000 * cold.cpu / size.routers, "ms a router", None),
        Figure(f"{what}: cold start", cold.messages, "messages", None),
        Figure(f"{what}: cold start", cold.octets / 2**20, "MiB", None),
        Figure(f"{what}: an event, CPU", 1000 * mean(each.cpu for each in events) / size.routers, "ms a router", None),
        Figure(f"{what}: an event", mean(each.messages for each in events), "messages", None),
        Figure(f"{what}: the longest event, CPU", max(each.cpu for each in events), "s", None),
        Figure(f"{what}: memory", resident / 2**20 / size.routers, "MiB a router", None),
    ]
