"""`python -m loadtests.killed`: brokers end and return at random under load. Is anything lost, stuck, or visible to
clients?

A router stands between clients and RabbitMQ and Artemis: one queue of each by auto links, another by link routes.
Brokers are killed, stopped in order, or frozen for a while, at random times (`--seed`). Exit status: 0 if every
message accepted from a sender arrived, everything flows afterwards, nothing is left unsettled in the router, and no
client of an auto link's address noticed anything; 1 otherwise; 2 if the test could not start.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.configuration import configuration_text, listener, router_section
from loadtests.load import MAKE_QUEUE, QUEUES, auto_links, connector_to
from loadtests.processes import BenchRouter, MeasureError
from loadtests.steady import Clients
from tests.interop.brokers import Artemis, BrokerError, BrokerProcess, BrokerUnavailable, RabbitMQ
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer

DRAIN_LIMIT = 60.0  # seconds for all messages to arrive after the last broker is back; redelivery takes a while
FLOW_LIMIT = 30.0  # seconds for the messages sent after that to arrive
FLOWS_AGAIN = 60.0  # seconds for each sender to have a message accepted afterwards: its broker may have just started


@dataclass
class KillResult:
    """Result of a run. `faults`: violations; empty: passed."""

    faults: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)  # ends of brokers, by broker and kind
    accepted: int = 0
    repeated: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    links_lost: int = 0
    longest: float = 0.0

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {how}" for how, count in sorted(self.ends.items()))
        others = ", ".join(f"{count:,} {name}" for name, count in sorted(self.outcomes.items()) if name != "accepted")
        lines = [
            f"brokers: {ends or 'none'}",
            f"messages: {self.accepted:,} accepted and received, {self.repeated:,} came again; {others or 'no others'}",
            f"routed links lost and attached again: {self.links_lost}",
            f"longest time without an accepted message at a sender: {self.longest:.1f} s",
            *(f"FAULT: {fault}" for fault in self.faults),
        ]
        return "\n".join(lines)


def configuration(brokers: Sequence[BrokerProcess], workers: int) -> str:
    """Return the configuration of a router for these brokers: q.NAME by auto links, NAME.routed by link routes."""
    sections = [router_section(workers, "killed"), listener(), QUEUES]
    for broker in brokers:
        add = broker.existing("")
        route = {"prefix": broker.name, "connection": broker.name, **({"addExternalPrefix": add} if add else {})}
        sections += [connector_to(broker), *auto_links(broker, f"q.{broker.name}")]
        sections += [("linkRoute", {**route, "direction": direction}) for direction in ("in", "out")]
    return configuration_text(*sections)


def make_queues(broker: BrokerProcess) -> None:
    """Create durable queues on a running broker."""
    for queue in (f"q.{broker.name}", f"{broker.name}.routed"):
        subprocess.run([sys.executable, str(MAKE_QUEUE), str(broker.port), queue], check=True, capture_output=True)
        broker.wait_until_kept(queue)


class BrokerIncidents:
    """Random incidents of brokers, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def strike(self, broker: BrokerProcess) -> str:
        """End a broker and restart it, or freeze it for a while. Return the kind of incident."""
        how = self._random.choice(("killed", "killed", "stopped", "frozen"))
        pause = self._random.uniform(0.0, 4.0)
        if how == "frozen":
            broker.signal_broker(signal.SIGSTOP)
            time.sleep(pause)
            broker.signal_broker(signal.SIGCONT)
            return how
        if how == "killed":
            broker.kill()
        else:
            broker.end()
        time.sleep(pause)
        broker.start()
        return how

    def victims(self, brokers: Sequence[BrokerProcess], until: float) -> Iterator[BrokerProcess]:
        """Yield the next broker after a random pause until the time is up; each broker at least once."""
        for broker in self._random.sample(list(brokers), len(brokers)):
            self._wait()
            yield broker
        while time.monotonic() < until:
            self._wait()
            yield self._random.choice(list(brokers))

    def _wait(self) -> None:
        time.sleep(self._random.uniform(0.5, 4.0))


def run(brokers: Sequence[BrokerProcess], workers: int, seconds: float, seed: int, each: int) -> KillResult:
    """Put load on running brokers, end them, and check the state afterwards. Raises MeasureError, BrokerError."""
    outcome = KillResult()
    with ExitStack() as stack:
        router = stack.enter_context(BenchRouter(workers, text=configuration(brokers, workers)))
        wait_active(router.port)
        addresses = [f"q.{broker.name}" for broker in brokers]
        routed = [f"{broker.name}.routed" for broker in brokers]
        clients = stack.enter_context(Clients(router.port, addresses, routed, each))
        fate = BrokerIncidents(seed)
        for broker in fate.victims(brokers, time.monotonic() + seconds):
            outcome.ends[f"{broker.name} {fate.strike(broker)}"] += 1
        if not clients.finish(DRAIN_LIMIT):
            stuck = [f"{each.index} ({each.address})" for each in clients.senders if not each.idle]
            outcome.faults.append(f"{clients.missing():,} accepted messages did not come; senders not done: {stuck}")
        outcome.longest = max(sender.longest for sender in clients.senders)
        clients.go_on()
        for sender in clients.without_progress(FLOWS_AGAIN):
            outcome.faults.append(f"sender {sender.index} ({sender.address}) no longer flows: {sender.describe()}")
        if not clients.finish(FLOW_LIMIT):
            outcome.faults.append("messages sent after the last broker came back did not all come")
        left_in_router(router.port, outcome)
        sum_up(clients, outcome)
    return outcome


@contextmanager
def management(port: int) -> Iterator[Management]:
    """Open a management client on a connection of its own."""
    peer = AmqpPeer.opened(port)
    try:
        yield Management(peer)
    finally:
        peer.drop()


def wait_active(port: int) -> None:
    """Wait until auto links and link routes are active. Raises MeasureError."""
    until = time.monotonic() + FLOW_LIMIT
    kinds = ("router.config.autoLink", "router.config.linkRoute")
    with management(port) as agent:
        while not all(row["operStatus"] == "active" for kind in kinds for row in agent.query(kind, "operStatus")):
            if time.monotonic() > until:
                raise MeasureError("auto links or link routes did not become active")
            time.sleep(0.1)


def left_in_router(port: int, outcome: KillResult) -> None:
    """Report links with unsettled or undelivered messages, although nothing is in flight."""
    with management(port) as agent:
        rows = agent.query("router.link")
    for row in rows:
        if row["owningAddr"] is None or "temp." in row["owningAddr"] or "$management" in row["owningAddr"]:
            continue
        for column in ("unsettledCount", "undeliveredCount"):
            if row[column]:
                outcome.faults.append(f"{row[column]} {column} on link {row['linkName']} of {row['owningAddr']}")


def sum_up(clients: Clients, outcome: KillResult) -> None:
    """Add up the numbers of all clients, and report faults that clients of auto links noticed."""
    outcome.accepted = clients.accepted
    came = sum(receiver.came for receiver in clients.receivers)
    outcome.repeated = came - sum(len(numbers) for numbers in clients.seen.values())
    for sender in clients.senders:
        outcome.outcomes += sender.outcomes
    for end in (*clients.senders, *clients.receivers):
        outcome.links_lost += end.lost
        if end.noticed is not None:
            outcome.faults.append(f"a client noticed: {end.noticed}")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Exits with status 2 and a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.killed", description="End brokers under load.")
    parser.add_argument("--seconds", type=float, default=60, help="how long brokers die (%(default)s)")
    parser.add_argument("--seed", type=int, help="of what happens when (at random; it is printed)")
    parser.add_argument("--workers", type=int, default=2, help="of the router (%(default)s)")
    parser.add_argument("--clients", type=int, default=2, help="senders, and receivers, of each queue (%(default)s)")
    parser.add_argument("--brokers", default="rabbitmq,artemis", help="which (%(default)s)")
    return parser.parse_args(words)


KINDS = {"rabbitmq": RabbitMQ, "artemis": Artemis}


def main(words: Sequence[str] | None = None) -> int:
    """Run the test. Return the exit status."""
    options = parse(sys.argv[1:] if words is None else words)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="killed-")))
            brokers: list[BrokerProcess] = []
            for name in options.brokers.split(","):
                brokers.append(stack.enter_context(KINDS[name](folder / name)))
                make_queues(brokers[-1])
            outcome = run(brokers, options.workers, options.seconds, seed, options.clients)
    except (MeasureError, BrokerUnavailable, BrokerError, KeyError) as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 2
    print(outcome)
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
