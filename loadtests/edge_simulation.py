"""Simulates edge routers at the supervisor of an interior router: what each of them and each address costs it.

    python -m loadtests.edge_simulation --edges 1000 --addresses 20

The supervisor's subsystems run in this process; a worker is played, which applies everything at once. With `--uplinks`
the edge routers have several uplinks at work, and move to another one, and back. Exit status 1: addresses are missing.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import resource
import sys
import time
from collections.abc import Callable

from router.config.load import load_text
from router.control import messages
from router.log import Log, LogSettings, ModuleSettings
from supervisor.composition import RouterCore
from supervisor.connections.connections import Connection
from supervisor.edge.bundles import PROPERTY, UPLINKS
from supervisor.edge.messages import Precedence, precedence
from supervisor.processes.worker import Stage, Worker

CONFIGURATION = """
router {
    id: B
    mode: interior
}
listener {
    port: 0
    role: edge
}
"""
QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
DOWNLINK = "qd.router-edge-downlink"
SPARE = 10_000  # addresses beside those of the edge routers
AT_ONCE = 256  # messages of the worker before the supervisor goes on


class Simulation:
    """The supervisor of an interior router, and edge routers."""

    def __init__(self, edges: int, addresses: int, several: bool) -> None:
        """several: they have several uplinks at work."""
        configuration = load_text("router.conf", CONFIGURATION)
        self._listener = configuration.listeners[0]
        self.core = RouterCore(configuration, Log(QUIET), edges * (addresses + 10) + SPARE, lambda number: None)
        self._worker = Worker(0, 1)
        self._worker.stage = Stage.STARTING
        self.core.workers[0] = self._worker
        self._numbers = itertools.count(1)
        self._said = itertools.count(1)
        self._several = several
        self.connections: list[Connection] = []
        self._received = 0
        self._receive(messages.Ready(0))
        self.settle()

    def _receive(self, message: messages.Event) -> None:
        self.core.receive(self._worker, message)
        self._received += 1
        if self._received % AT_ONCE == 0:
            self.settle()

    def settle(self) -> None:
        """Acknowledge all changes; what the worker is told is dropped."""
        while True:
            more = self.core.work()
            delta = self.core.take_delta()
            self._worker.outbox.clear()
            self._worker.unconfirmed = 0
            self._worker.sends.clear()
            if delta is not None:
                self.core.epochs.acknowledge(0, delta[0])
            elif not more:
                return

    def come(self, count: int) -> None:
        """So many edge routers connect, with the eight links."""
        for number in range(count):
            connection = self.core.connections.adopt(self._worker, self._listener, "127.0.0.1:1", "127.0.0.1:2")
            self.connections.append(connection)
            properties = {PROPERTY: f"{number:016x}", **({UPLINKS: True} if self._several else {})}
            said = {"hostname": None, "user": None, "mechanism": None, "tls": None, "properties": properties}
            self._receive(messages.Opened(conn=connection.number, container=f"E{number}", **said))  # type: ignore[arg-type]
            self._attach(connection, "in", None)
            self._attach(connection, "out", f"E{number}", DOWNLINK)
            self._attach(connection, "out", "_$qd.edge_addr_tracking")
            for service in ("$management", "_$qd.addr_lookup", "_$qd.edge_heartbeat"):
                self._attach(connection, "in", service)
            for _ in range(2):
                self._attach(connection, "out", None, dynamic=True)
        self.settle()

    def _attach(
        self,
        connection: Connection,
        direction: messages.Direction,
        address: str | None,
        *caps: str,
        dynamic: bool = False,
    ) -> None:
        number = next(self._numbers)
        self._receive(
            messages.Attach(
                conn=connection.number,
                link=number,
                slot=number,
                gen=1,
                dir=direction,
                name=f"qdlink.{number}",
                address=address,
                dynamic=dynamic,
                dynamic_address=None,
                caps=(list(caps), False),
                coordinator=False,
                expiry=None,
                timeout=0,
                tenant=None,
                channel=0,
                text="",
            )
        )

    def announce(self, addresses: int) -> None:
        """All have consumers of so many addresses each."""
        for place, connection in enumerate(self.connections):
            for number in range(addresses):
                self._attach(connection, "out", f"site{place}.{number}")
        self.settle()

    def say(self, *routers: str) -> None:
        """All name their uplinks."""
        for connection in self.connections:
            octets = precedence(Precedence(next(self._said), routers, complete=True))
            self.core.in_process.receive(
                self._worker, messages.Local("M0_$qd.sluice.uplinks", connection.number), octets
            )
        self.settle()

    @property
    def known(self) -> int:
        """How many addresses of edge routers have a consumer."""
        records = self.core.table.records.values()
        return sum(record.consumers is not None and record.key.startswith("M0site") for record in records)

    def go(self) -> None:
        """All are lost."""
        for connection in self.connections:
            self._receive(messages.Closed(conn=connection.number, error=None))
        self.connections.clear()
        self.settle()


def main() -> int:
    parser = argparse.ArgumentParser(description="Edge routers at the supervisor of an interior router.")
    parser.add_argument("--edges", type=int, default=1000)
    parser.add_argument("--addresses", type=int, default=20, help="of each")
    parser.add_argument("--uplinks", action="store_true", help="they have several uplinks at work")
    arguments = parser.parse_args()
    gc.freeze()
    simulation = Simulation(arguments.edges, arguments.addresses, arguments.uplinks)
    print(f"{'what':<40} {'CPU s':>7} {'µs each':>8} {'KiB each':>9}")

    wrong = 0

    def measured(what: str, each: int, action: Callable[[], None], known: int) -> None:
        nonlocal wrong
        memory, cpu = _resident(), time.process_time()
        action()
        cpu = time.process_time() - cpu
        kib = (_resident() - memory) / each
        fault = "" if simulation.known == known else f"  {simulation.known} addresses instead of {known}"
        wrong += bool(fault)
        print(f"{what:<40} {cpu:>7.2f} {1e6 * cpu / each:>8.0f} {kib:>9.2f}{fault}", flush=True)

    edges, links = arguments.edges, arguments.edges * arguments.addresses
    measured("edge routers come", edges, lambda: simulation.come(edges), 0)
    if arguments.uplinks:
        measured("they name this router first", edges, lambda: simulation.say("B", "A"), 0)
    measured("addresses", links, lambda: simulation.announce(arguments.addresses), links)
    if arguments.uplinks:
        measured("addresses move to another router", links, lambda: simulation.say("A"), 0)
        measured("addresses move back", links, lambda: simulation.say("B", "A"), links)
    measured("all are lost", edges, simulation.go, 0)
    measured("edge routers come again", edges, lambda: simulation.come(edges), 0)
    return 1 if wrong else 0


def _resident() -> float:
    """KiB of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages * resource.getpagesize() / 1024


if __name__ == "__main__":
    sys.exit(main())
