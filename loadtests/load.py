"""`python -m loadtests.load`: locust against a router (and brokers) on loopback; `make loadtest`.

Starts the processes of the scenario, runs locust for --seconds, writes an HTML report, and stops what it started. Exit
status: 0 no failures; 1 locust counted failures and names them; 2 the test could not start. If a broker cannot be
installed (scripts/interop-tools tells the reason), use --scenario standalone.
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from loadtests.configuration import INFO_LOG, MULTICAST, configuration_text, connector, listener, router_section
from loadtests.processes import ROOT, BenchRouter, MeasureError, raise_file_limit
from tests.interop.brokers import Artemis, BrokerError, BrokerProcess, BrokerUnavailable, RabbitMQ
from tests.system.router import Section

SCENARIOS = ROOT / "loadtests" / "scenarios"
REPORTS = ROOT / "build" / "loadtest"
QUEUES: Section = ("address", {"prefix": "q", "waypoint": True})
PATIENCE = 60.0  # seconds that locust may take beyond its run time, to start and to stop

MAKE_QUEUE = ROOT / "tests" / "interop" / "qpid_proton" / "durable_queue.py"


def parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the command line; return locust's words separately. Exits with status 2 and a message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.load",
        description="Run locust against a router of its own.",
        epilog="Other options go to locust: --rate, --body-size, --window, --settle, --spawn-rate, --csv, ...",
    )
    parser.add_argument("--scenario", default="gateway", choices=["gateway", "standalone"], help="(%(default)s)")
    parser.add_argument("--users", type=int, default=60, help="all users together (%(default)s)")
    parser.add_argument("--seconds", type=int, default=60, help="how long (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="of the router (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="of locust (%(default)s)")
    parser.add_argument("--web", action="store_true", help="locust's web UI on port 8089 in place of a timed run")
    return parser.parse_known_args(words)


def locust_command(options: argparse.Namespace, port: int, more: Sequence[str]) -> list[str]:
    """Return locust's command line."""
    words = [sys.executable, "-m", "locust", "-f", str(SCENARIOS / f"{options.scenario}.py")]
    words += ["--host", f"amqp://127.0.0.1:{port}", "--users", str(options.users)]
    words += ["--spawn-rate", str(max(1, options.users // 2))]
    if options.processes > 1:
        words += ["--processes", str(options.processes)]
    if options.web:
        words += ["--web-host", "127.0.0.1"]
    else:
        REPORTS.mkdir(parents=True, exist_ok=True)
        words += ["--headless", "--only-summary", "--run-time", f"{options.seconds}s"]
        words += ["--html", str(report(options))]
    return [*words, *more]


def report(options: argparse.Namespace) -> Path:
    """Return the path of the HTML report."""
    return REPORTS / f"{options.scenario}.html"


def run(options: argparse.Namespace, more: Sequence[str]) -> int:
    """Start, measure and stop. Return locust's exit status. Raises MeasureError, Unavailable or BrokerError."""
    with ExitStack() as started:
        brokers = start_brokers(started) if options.scenario == "gateway" else []
        text = configuration_text(
            router_section(options.workers, "load"),
            listener(),
            MULTICAST,
            ("address", {"prefix": "closest", "distribution": "closest"}),
            QUEUES,
            *(section for broker in brokers for section in behind(broker)),
            INFO_LOG,
        )
        router = started.enter_context(BenchRouter(options.workers, text=text))
        before, begun = processor_time(), time.monotonic()
        locust = subprocess.Popen(locust_command(options, router.port, more), cwd=ROOT)
        try:
            status = locust.wait(None if options.web else options.seconds + PATIENCE)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            locust.terminate()
            status = locust.wait(PATIENCE)
        used, passed = processor_time() - before, time.monotonic() - begun
        print(f"locust used {used:.1f} s of processor time in {passed:.1f} s, {used / passed:.0%} of one processor")
        return status


def start_brokers(started: ExitStack) -> list[BrokerProcess]:
    """Start RabbitMQ and Artemis with their queues; they stop with `started`. Raises Unavailable or BrokerError."""
    folder = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="load-")))
    brokers: list[BrokerProcess] = [kind(folder / kind.name) for kind in (RabbitMQ, Artemis)]
    for broker in brokers:
        started.enter_context(broker)
        for queue in queues(broker):
            words = [sys.executable, str(MAKE_QUEUE), str(broker.port), queue]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return brokers


def queues(broker: BrokerProcess) -> list[str]:
    """Return the names of a broker's queues, which are also the router's addresses."""
    return [f"q.{broker.name}", "q.sharded"]


def connector_to(broker: BrokerProcess) -> Section:
    """Return the connector to a broker, named after it."""
    login = {"saslMechanisms": "PLAIN", "saslUsername": broker.user, "saslPassword": broker.password}
    return connector(broker.port, name=broker.name, role="route-container", **login)


def auto_links(broker: BrokerProcess, queue: str) -> list[Section]:
    """Return the auto links from and to a queue of a broker."""
    attributes = {"address": queue, "connection": broker.name, "externalAddress": broker.existing(queue)}
    return [("autoLink", {**attributes, "direction": direction}) for direction in ("in", "out")]


def behind(broker: BrokerProcess) -> list[Section]:
    """Return the router's sections for a broker and its queues."""
    return [connector_to(broker), *(link for queue in queues(broker) for link in auto_links(broker, queue))]


def processor_time() -> float:
    """Return the CPU seconds, user and system, of children that have exited. The router is still running then."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(words: Sequence[str] | None = None) -> int:
    """Run locust. Return the exit status."""
    options, more = parse(sys.argv[1:] if words is None else words)
    raise_file_limit()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = run(options, more)
    except (MeasureError, BrokerUnavailable, BrokerError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 2
    if not options.web:
        print(f"Report: {report(options)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
