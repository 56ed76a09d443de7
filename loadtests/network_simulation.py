"""Simulation of a router network on a virtual clock. The state of each router is compared with a naive model.

    python -m loadtests.network_simulation --routers 250 --addresses 10000 --topology random --seed 1 --events 20

All engines run in this process, without sockets, as fast as possible. Exit status 1: a router's state was wrong.
"""

import argparse
import gc
import resource
import sys
import time

from loadtests.network.scenario import COLD, FOREIGN, RandomEventNetwork
from loadtests.network.topologies import TOPOLOGIES


def main() -> int:
    parser = argparse.ArgumentParser(description="A network of routers on a virtual clock.")
    parser.add_argument("--routers", type=int, default=250)
    parser.add_argument("--addresses", type=int, default=10_000, help="of all routers together")
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), default="random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--foreign", type=int, default=0, help="how many of the routers are taken for Dispatch 1.19")
    parser.add_argument("--check-every", type=int, default=1, help="events between comparisons")
    arguments = parser.parse_args()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    begin = time.process_time()
    scenario = RandomEventNetwork(
        arguments.routers,
        arguments.addresses,
        arguments.topology,
        arguments.seed,
        foreign=arguments.foreign,
    )
    network = scenario.network
    print(
        f"{arguments.routers} routers, {len(scenario.edges)} connections ({arguments.topology}), "
        f"{arguments.addresses} addresses, seed {arguments.seed}",
        flush=True,
    )
    print("CPU is of the whole simulation; messages are counted for each connection that they pass.\n")
    print(f"{'what':<46} {'virtual s':>9} {'messages':>9} {'MiB':>8} {'CPU s':>7} {'ms/router':>9} {'faults':>6}")
    failed = 0

    def step(text: str, waited: float, started: float, messages: int, octets: int, check: bool) -> None:
        nonlocal failed
        cpu = time.process_time() - started
        faults = scenario.faults() if check else []
        failed += bool(faults)
        print(
            f"{text:<46} {waited:>9.1f} {network.messages - messages:>9} {(network.octets - octets) / 2**20:>8.1f} "
            f"{cpu:>7.2f} {1000 * cpu / arguments.routers:>9.2f} {len(faults) if check else '-':>6}",
            flush=True,
        )
        for fault in faults:
            print(f"    {fault.router} about {fault.about}: {fault.text}")

    cold = COLD + FOREIGN * bool(arguments.foreign)
    network.run(cold)
    step("cold start", cold, begin, 0, 0, True)
    for number in range(arguments.events):
        started, messages, octets, virtual = time.process_time(), network.messages, network.octets, network.now
        text, wait = scenario.event()
        network.run(network.now + wait)
        check = (number + 1) % arguments.check_every == 0 or number + 1 == arguments.events
        step(text, network.now - virtual, started, messages, octets, check)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\n{time.process_time() - begin:.0f} s CPU; {most:.0f} MiB at most, {most / arguments.routers:.2f} a router")
    print(
        "every router had the costs, ways and addresses of the model" if not failed else f"{failed} comparisons failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
