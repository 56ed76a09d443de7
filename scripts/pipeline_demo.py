"""Demonstration of the data pipeline on this machine: `python scripts/pipeline_demo.py [SECONDS]` (make pipeline).

Runs a router with telemetry, two landers that share an address, senders, and a Spark query that writes the messages to
a table. In the end it compares the counts and makes a report from the router's telemetry. The files stay in
build/pipeline-demo until the next run. Exit status 1: a count differs.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sluice.pipeline.errors import PipelineError
from sluice.pipeline.prerequisites import find_java, require
from sluice.router.client import Accepted, Message, connect

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "build" / "pipeline-demo"
SLUICE = [sys.executable, "-m", "sluice.router.cli.main"]
SECONDS = 30.0
PATIENCE = 60.0
ADDRESS = "sensors/hall"
SENDERS = 2
AT_ONCE = 500  # messages
CONFIGURATION = f"""\
router {{
    id: Demo
}}
listener {{
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    linkCapacity: 5000
}}
address {{
    prefix: sensors
    distribution: balanced
}}
telemetry {{
    path: {HERE}/telemetry
    interval: 2
    fileSeconds: 2
}}
"""


@contextmanager
def process(name: str, *words: str, until: str) -> Iterator[re.Match[str]]:
    """Run a `sluice` command; yield the first output line that matches `until`. Lines are shown under `name`."""
    running = subprocess.Popen(
        [*SLUICE, *words], cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    found = threading.Event()
    match: list[re.Match[str]] = []

    def read() -> None:
        assert running.stderr is not None
        for line in running.stderr:
            if not match and (here := re.search(until, line)):
                match.append(here)
                found.set()
            if name != "router":
                say(name, line.rstrip())
        found.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        found.wait(PATIENCE)
        if not match:
            raise PipelineError(f"{name} does not start")
        yield match[0]
    finally:
        running.terminate()
        running.wait(PATIENCE)
        reader.join(PATIENCE)


def say(name: str, text: str) -> None:
    print(f"{name:9} {text}", flush=True)


class DemoSender(threading.Thread):
    """Thread that sends measurements until it is stopped. `accepted`: number of accepted messages."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.number = number
        self.stopping = threading.Event()
        self.accepted = 0
        self.start()

    def run(self) -> None:
        with connect(self.url, timeout=PATIENCE) as connection:
            sender = connection.sender(ADDRESS)
            while not self.stopping.is_set():
                messages = [
                    Message(json.dumps({"sensor": f"{self.number}.{each % 50}", "celsius": 20 + each % 7}))
                    for each in range(AT_ONCE)
                ]
                outcomes = sender.send_all(messages, timeout=PATIENCE)
                self.accepted += sum(isinstance(outcome, Accepted) for outcome in outcomes)


def main(seconds: float) -> int:
    require("pyspark", "pyarrow", "pandas")
    find_java()
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    (HERE / "router.conf").write_text(CONFIGURATION)
    landing = str(HERE / "landing")
    with ExitStack() as stack:
        started = stack.enter_context(
            process("router", "run", "-c", str(HERE / "router.conf"), until=r"Listening on \S*?:(\d+)")
        )
        url = f"amqp://127.0.0.1:{started[1]}"
        say("router", f"listens at {url}; try: .venv/bin/sluice top -b 127.0.0.1:{started[1]}")
        landers = ExitStack()
        stack.enter_context(landers)
        for number in (1, 2):
            words = ["--url", url, "--address", ADDRESS, "--path", landing, "--id", f"lander-{number}"]
            landers.enter_context(process(f"lander-{number}", "pipeline", "land", *words, until="^landing "))
        sent, rows = stream(url, landing, seconds)
        landers.close()
        subprocess.run([*SLUICE, "pipeline", "doctor", "--path", landing, "--url", url], cwd=ROOT, check=False)
    say("report", "is made from the router's telemetry, by some fifty jobs of Spark")
    report = HERE / "report.html"
    words = ["pipeline", "report", "--telemetry", str(HERE / "telemetry"), "--out", str(report)]
    made = subprocess.run([*SLUICE, *words], cwd=ROOT, check=False)
    say("result", f"{sent:,} messages accepted, {rows:,} rows in the table {HERE / 'table'}")
    say("result", f"report: {report}" if made.returncode == 0 else "there is no report")
    return 0 if sent == rows and made.returncode == 0 else 1


def stream(url: str, landing: str, seconds: float) -> tuple[int, int]:
    """Send while a query runs. Return the number of accepted messages and of rows in the table."""
    from sluice.pipeline.env import spark_session

    say("spark", "starts")
    spark = spark_session("sluice pipeline demo", conf={"spark.log.level": "ERROR"})
    table = str(HERE / "table")
    query = (
        spark.readStream.format("amqp")
        .option("path", landing)
        .option("decode", "body")
        .load()
        .writeStream.format("parquet")
        .option("path", table)
        .option("checkpointLocation", str(HERE / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    say("spark", "reads; the first batch takes longest, for Java compiles")
    senders = [DemoSender(url, number) for number in range(SENDERS)]
    end = time.monotonic() + seconds
    while time.monotonic() < end and query.isActive:
        query.awaitTermination(3)
        progress = query.lastProgress
        if progress is not None:
            rate = progress.processedRowsPerSecond or 0
            say("spark", f"batch {progress.batchId}: {progress.numInputRows:,} rows, {rate:,.0f}/s")
    for sender in senders:
        sender.stopping.set()
    for sender in senders:
        sender.join(PATIENCE)
    say("spark", f"sent for {seconds:g} s; reads what is left")
    query.processAllAvailable()
    query.stop()
    rows = spark.read.parquet(table).count()
    spark.stop()
    return sum(sender.accepted for sender in senders), rows


if __name__ == "__main__":
    try:
        sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
    except PipelineError as error:
        sys.exit(f"make pipeline: {error}")
