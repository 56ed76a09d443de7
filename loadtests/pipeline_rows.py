"""Rows about Spark: reading landed messages, decoding them, and sending rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from loadtests.landing_rows import CONFIGURATION, lander
from loadtests.measuring import BODY, Bench, cpu_seconds
from loadtests.processes import ROOT, MeasureError
from loadtests.report import Figure, at_least, at_most, ratio_at_least

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENTS, ROWS_EACH = 40, 50_000
DECODED = 150_000.0  # rows/s of a core
PRUNED = 3.0  # required rate of two columns, in multiples of that of all
TWO_COLUMNS = ("message_id", "creation_time")
SHARE = 0.7  # required share of the rate of Spark's own Parquet source
SENT = 300_000.0  # rows/s
SENT_CPU = 2e6 / SENT  # µs of a row, such that two cores reach SENT
SINK_ROWS = 1_000_000
SINK_LIMIT = 120.0  # seconds
VISIBLE_RATE = 200_000  # messages/s
VISIBLE_SECONDS = 20
VISIBLE_WARM = 10  # seconds of messages before measuring, in which Java compiles
VISIBLE_AFTER = 3.0  # seconds, p99
VISIBLE_LIMIT = 120.0  # seconds until everything must be in the table


def messages(count: int) -> list[bytes]:
    """Return messages as from a sensor: an id, a subject, a type, a time, two properties, 100 octets."""
    from sluice.router.client.message import Message

    return [
        Message(
            os.urandom(BODY), message_id=f"sensor-{n}", subject="reading", content_type="application/octet-stream",
            creation_time=1_767_323_045_000 + n, properties={"unit": "C", "site": "north"},
        ).encode()
        for n in range(count)
    ]  # fmt: skip


@contextmanager
def spark() -> Iterator[SparkSession]:
    """Run a Spark session with two slots."""
    from sluice.pipeline.env import spark_session

    os.environ["PYTHONPATH"] = str(ROOT)
    made = spark_session("bench", memory="2g", conf={"spark.master": "local[2]", "spark.log.level": "ERROR"})
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def folder() -> Iterator[Path]:
    """Create a temporary folder on the disk of this checkout."""
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="bench-pipeline-") as path:
        yield Path(path)


def land(path: Path) -> None:
    """Write a log of one address, as a lander does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sluice.pipeline.segments import Landing, LandingLog, Segment, schema
    from sluice.pipeline.writer import COMPRESSION, LEVEL

    landing = Landing.create(str(path))
    log = LandingLog("bench", "sensors")
    landing.store.make_folder(log.key)
    table = pa.table(
        [
            pa.array(messages(ROWS_EACH), pa.binary()),
            pa.array(["sensors"] * ROWS_EACH),
            pa.array(["link"] * ROWS_EACH),
            pa.array(["router"] * ROWS_EACH),
            pa.array([1_767_323_045_000_000] * ROWS_EACH, pa.timestamp("us", tz="UTC")),
            pa.array(range(ROWS_EACH), pa.int32()),
        ],
        schema=schema(),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=COMPRESSION, compression_level=LEVEL)
    octets = sink.getvalue()
    for number in range(SEGMENTS):
        segment = Segment(log.key, number, 1_767_323_045_000, ROWS_EACH, octets.size)
        landing.store.publish(segment.path, octets)


def rate(frame: DataFrame, rounds: int) -> float:
    """Return rows/s of writing a frame to nowhere; the first run warms up."""
    taken = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        taken.append(time.perf_counter() - began)
    return SEGMENTS * ROWS_EACH / median(taken[1:])


def reading(bench: Bench) -> list[Figure]:
    """Measure the source beside Spark's own Parquet source, on the same files."""
    rounds = max(bench.effort.rounds, 3)
    figures = []
    with folder() as path, spark() as spark_session:
        land(path)
        files = str(path / "bench" / "sensors")
        for what, columns in {
            "reading segments, 2 columns": ["ordinal", "message"],
            "reading segments, all columns": [
                "message", "address", "link", "ingress_router", "arrived", "ordinal", "lander", "segment",
                "landed_time",
            ],
        }.items():  # fmt: skip
            raw = spark_session.read.format("amqp").option("decode", "raw").load(str(path))
            ours = spark_session.read.format("amqp").schema(raw.select(*columns).schema).load(str(path))
            own = spark_session.read.option("recursiveFileLookup", "true").parquet(files)
            own = own.select(*(name for name in columns if name in own.columns))
            figures.append(
                Figure(what, rate(ours, rounds), "rows/s", ratio_at_least(SHARE), rate(own, rounds), "Spark's Parquet")
            )
        full = spark_session.read.format("amqp").options(decode="full", includeHeaders="true").load(str(path))
        all_columns = rate(full, rounds)
        figures.append(Figure("reading segments, decode=full with headers", all_columns, "rows/s", None))
        two = spark_session.read.format("amqp").options(decode="full", columns=",".join(TWO_COLUMNS)).load(str(path))
        what = f"reading segments, decode=full, columns={','.join(TWO_COLUMNS)}"
        figures.append(
            Figure(what, rate(two, rounds), "rows/s", ratio_at_least(PRUNED), all_columns, "all columns with headers")
        )
    return figures


def decoding(bench: Bench) -> list[Figure]:
    """Measure decoding on one core, without Spark."""
    import pyarrow as pa

    from sluice.pipeline import columns

    count = 10_000
    array = pa.array(messages(count), pa.binary())

    def decoded_rate(names: list[str]) -> float:
        taken = []
        for _ in range(10 * bench.effort.rounds):
            began = time.process_time()
            columns.decoded_columns(array, names)
            taken.append(time.process_time() - began)
        return count / median(taken)

    figures = []
    for mode, headers in (("body", False), ("full", False), ("full", True)):
        names = [name for name in columns.columns_of_mode(mode, headers) if name in columns.DECODED]
        what = f"decode={mode}{' with headers' if headers else ''}, one core"
        figures.append(Figure(what, decoded_rate(names), "rows/s", at_least(DECODED)))
    # A body is octets to copy, whichever other columns are decoded, so that row has no bar.
    for names, bar in ((list(TWO_COLUMNS), ratio_at_least(PRUNED)), (["message_id", "body"], None)):
        what = f"columns {', '.join(names)}, one core"
        figures.append(Figure(what, decoded_rate(names), "rows/s", bar, figures[2].value, figures[2].what))
    return figures


@contextmanager
def accepting(port: int, address: str) -> Iterator[None]:
    """Run a receiver in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtests.accepting", str(port), address], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "receiving\n":
            raise MeasureError("the receiver does not receive")
        yield
    finally:
        process.kill()
        process.communicate()


def sending(bench: Bench) -> list[Figure]:
    """Measure writing a table to a receiver that only counts, through a router: unsettled, each row accepted."""
    taken: list[float] = []
    used: list[float] = []
    with bench.router(1, CONFIGURATION) as router, spark() as spark_session:
        table = spark_session.range(SINK_ROWS, numPartitions=2).selectExpr(
            "concat('m', id) as message_id", f"cast(repeat('x', {BODY}) as binary) as body"
        )
        for number in range(bench.effort.rounds + 1):
            address = f"sink{number}"
            options: dict[str, Any] = {"amqp.url": f"amqp://127.0.0.1:{router.port}", "address": address}
            with accepting(router.port, address):
                before = sending_cpu()
                began = time.perf_counter()
                table.write.format("amqp").mode("append").options(**options, sendTimeoutMs="30000").save()
                taken.append(time.perf_counter() - began)
                used.append(sending_cpu() - before)
            if taken[-1] > SINK_LIMIT:
                raise MeasureError(f"the sink took {taken[-1]:.0f} s for {SINK_ROWS} rows")
    micros = median(used[1:]) * 1e6 / SINK_ROWS
    return [
        Figure("sink, unsettled, two tasks", SINK_ROWS / median(taken[1:]), "rows/s", at_least(SENT)),
        Figure("sink: CPU of a row, Spark and its workers", micros, "µs", at_most(SENT_CPU)),
    ]


def sending_cpu() -> float:
    """Return the CPU seconds of Java and of its Python workers: the descendants of this process through Spark."""
    java = (each for each in psutil.Process().children() if each.name() == "java")
    return sum(cpu_seconds(each.pid) for each in java)


def visible(bench: Bench) -> list[Figure]:
    """Measure from send to the table that a query writes.

    A message is visible once its batch's log is in the folder.
    """
    with bench.router(1, CONFIGURATION) as router, folder() as path, spark() as spark_session:
        landing = path / "landing"
        with lander(router, "visible", landing):
            stream = spark_session.readStream.format("amqp").schema("body binary").load(str(landing))
            query = (
                stream.writeStream.format("parquet")
                .option("checkpointLocation", str(path / "checkpoint"))
                .trigger(processingTime="1 second")
                .start(str(path / "table"))
            )
            table = QueryTable(path / "table")
            try:
                warm = VISIBLE_RATE * VISIBLE_WARM
                router.load(address="visible", receivers=0, rate=VISIBLE_RATE, count=warm, size=BODY)
                table.wait(query, warm)
                sent = VISIBLE_RATE * VISIBLE_SECONDS
                router.load(address="visible", receivers=0, rate=VISIBLE_RATE, count=sent, size=BODY)
                table.wait(query, warm + sent)
            finally:
                query.stop()
    found = sorted(table.seconds()[warm:])
    what = f"send to visible in a table, {VISIBLE_RATE:,}/s, trigger of 1 s"
    return [
        Figure(f"{what}, p50", found[len(found) // 2], "s", None),
        Figure(f"{what}, p99", found[len(found) * 99 // 100], "s", at_most(VISIBLE_AFTER)),
    ]


class QueryTable:
    """Table that a query writes.

    Each read covers only the rows added since the last, to take little CPU from the query.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: set[int] = set()
        self.files: set[str] = set()
        self.rows = 0
        self.found: list[Any] = []  # (send time in ns, ns until visible)

    def wait(self, query: Any, count: int) -> None:
        """Wait until the table has `count` rows."""
        deadline = time.monotonic() + VISIBLE_LIMIT
        while self.look() < count:
            if time.monotonic() > deadline or not query.isActive:
                raise MeasureError(f"{self.rows} of {count} messages are in the table: {query.exception()}")
            time.sleep(0.5)

    def look(self) -> int:
        """Read new rows; return the number of all rows.

        Each tenth log of Spark is called NUMBER.compact, and names the files of all batches.
        """
        import pyarrow.parquet as pq

        ahead = time.time_ns() - time.monotonic_ns()
        logs = {
            int(log.name.removesuffix(".compact")): log
            for log in (self.path / "_spark_metadata").glob("*")
            if log.name.removesuffix(".compact").isdecimal()
        }
        for batch in sorted(logs.keys() - self.batches):
            self.batches.add(batch)
            at = logs[batch].stat().st_mtime_ns - ahead
            for line in logs[batch].read_text().splitlines()[1:]:  # the first line is a version
                name = Path(json.loads(line)["path"].removeprefix("file://")).name
                if name not in self.files:
                    self.files.add(name)
                    self._take(pq.read_table(self.path / name, columns=["body"])["body"], at)
        return self.rows

    def _take(self, bodies: Any, at: int) -> None:
        """Record the delay of each message. A body begins with the send time by the monotonic clock, in ns."""
        import numpy as np

        for bodies_of in bodies.chunks:
            _, offsets, octets = bodies_of.buffers()
            begin = np.frombuffer(offsets, np.int32)[bodies_of.offset :][: len(bodies_of)]
            eight = np.frombuffer(octets, np.uint8)[begin[:, None] + np.arange(8)]
            sent = np.ascontiguousarray(eight).view(np.int64)[:, 0]
            self.found.append(np.stack([sent, at - sent]))
            self.rows += len(sent)

    def seconds(self) -> list[float]:
        """Return the seconds until each message was visible, in the order of sending."""
        import numpy as np

        both = np.concatenate(self.found, axis=1)
        seconds: list[float] = (both[1][np.argsort(both[0])] / 1e9).tolist()
        return seconds
