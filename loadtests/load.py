"""`python -m loadtests.load`: locust against a router (and brokers) of its own, on loopback; `make loadtest`.

Starts what the scenario needs, runs locust for --seconds, writes an HTML report, ends what it started. Exit status: 0
nothing failed, 1 locust counted failures (it names them), 2 it could not begin.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from loadtests.processes import ROOT, MeasureError, Router, raise_file_limit

SCENARIOS = ROOT / "loadtests" / "scenarios"
REPORTS = ROOT / "build" / "loadtest"
PATIENCE = 60.0  # seconds that locust may take longer than it was told to, to start and to stop

STANDALONE = """\
router {{
    mode: standalone
    id: load
    workerThreads: {workers}
}}
listener {{
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
address {{
    prefix: multicast
    distribution: multicast
}}
address {{
    prefix: closest
    distribution: closest
}}
log {{
    module: DEFAULT
    enable: info+
}}
"""


def parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The command line, and what of it is locust's; exits with status 2 and a message when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.load",
        description="Run locust against a router of its own.",
        epilog="Other options go to locust: --rate, --body-size, --window, --settle, --spawn-rate, --csv, ...",
    )
    parser.add_argument("--scenario", default="standalone", choices=["standalone"], help="(%(default)s)")
    parser.add_argument("--users", type=int, default=60, help="all users together (%(default)s)")
    parser.add_argument("--seconds", type=int, default=60, help="how long (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="of the router (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="of locust (%(default)s)")
    parser.add_argument("--web", action="store_true", help="locust's web UI on port 8089 in place of a timed run")
    return parser.parse_known_args(words)


def locust_command(options: argparse.Namespace, port: int, more: Sequence[str]) -> list[str]:
    """locust's command line."""
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
    """Where the HTML report goes."""
    return REPORTS / f"{options.scenario}.html"


def run(options: argparse.Namespace, more: Sequence[str]) -> int:
    """Start, measure, end; returns locust's exit status. Raises MeasureError when the router fails."""
    with Router(options.workers, text=STANDALONE.format(workers=options.workers)) as router:
        before, started = processor_time(), time.monotonic()
        locust = subprocess.Popen(locust_command(options, router.port, more), cwd=ROOT)
        try:
            status = locust.wait(None if options.web else options.seconds + PATIENCE)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            locust.terminate()
            status = locust.wait(PATIENCE)
        used, passed = processor_time() - before, time.monotonic() - started
        print(f"locust used {used:.1f} s of processor time in {passed:.1f} s, {used / passed:.0%} of one processor")
        return status


def processor_time() -> float:
    """Seconds that children which have ended used, user and system; the router has not ended while this is asked."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(words: Sequence[str] | None = None) -> int:
    """Run locust; returns the exit status."""
    options, more = parse(sys.argv[1:] if words is None else words)
    raise_file_limit()
    try:
        status = run(options, more)
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 2
    if not options.web:
        print(f"Report: {report(options)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
