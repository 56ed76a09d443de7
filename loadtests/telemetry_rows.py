"""Rows about telemetry: the roll-up of a router-day with Spark, and the cost of the telemetry process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from loadtests.landing_rows import CONFIGURATION
from loadtests.measuring import BODY, Bench, cpu_seconds
from loadtests.processes import ROOT, START_LIMIT, MeasureError
from loadtests.report import Figure, at_most

DAY = datetime(2026, 3, 1, tzinfo=UTC)
INTERVAL = 10  # seconds
FLOWS = 2000  # flows active in each interval: 17.3 million rows a day
LINKS = 1000
WORKERS = 8
SECONDS = 30.0
MEMORY = "2g"
MOST_MEMORY = 2048.0  # MiB
LIMIT = 600.0  # seconds
LOOKS = 3  # measured intervals of the telemetry process
SHARE = 0.01
LOOK = 0.2  # seconds between readings of the memory


def flows() -> list[dict[str, Any]]:
    """Return the rows of fact_flow of one interval.

    Deliveries vary as much as real ones, because file sizes depend on it.
    """
    return [
        {
            "boot_id": "b" * 32, "interval_ms": 1000 * INTERVAL, "worker_in": n % WORKERS,
            "worker_out": n * 7 % WORKERS, "link_in": n if n % 4 else None, "link_out": LINKS + n % LINKS,
            "connection_in": n % LINKS if n % 4 else None, "connection_out": LINKS + n % LINKS,
            "address": f"address/{n % 300}", "deliveries": n * 7919 % 4999,
        }
        for n in range(FLOWS)
    ]  # fmt: skip


def links() -> list[dict[str, Any]]:
    """Return the rows of fact_link of one interval."""
    return [
        {
            "boot_id": "b" * 32, "interval_ms": 1000 * INTERVAL, "worker": n % WORKERS, "link_id": n,
            "connection_id": n, "dir": "in" if n < LINKS // 2 else "out", "address": f"address/{n % 300}",
            "deliveries": n * 7919 % 4999, "accepted": n * 7919 % 4999, "rejected": 0, "released": 0, "modified": 0,
            "presettled": 0, "dropped_presettled": 0, "delayed_1s": 0, "delayed_10s": 0, "unsettled": n % 7,
            "undelivered": n % 5, "credit": 250, "capacity": 250, "stuck": 0, "zero_credit_ms": n % 3 * 100,
            "settle_hist": {8 + n % 3: 1000, 9 + n % 3: 100} if n < LINKS // 2 else None,
        }
        for n in range(LINKS)
    ]  # fmt: skip


def workers() -> list[dict[str, Any]]:
    """Return the rows of fact_worker of one interval."""
    names = ("rss", "loop_turns", "connections", "links", "buffered", "ingress", "egress", "transit", "accepted",
             "rejected", "released", "modified", "presettled", "dropped_presettled")  # fmt: skip
    return [
        {
            "boot_id": "b" * 32, "interval_ms": 1000 * INTERVAL, "worker": n, "pid": n, "cpu_user_us": 3_000_000 + n,
            "cpu_sys_us": 1_000_000, **dict.fromkeys(names, 1000),
        }
        for n in range(WORKERS)
    ]  # fmt: skip


def write_day(path: Path) -> int:
    """Write the files of one router's day, one a minute for each table, as the telemetry process does.

    Returns the number of rows of fact_flow.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sluice.router.telemetry.parquet import encode
    from sluice.router.telemetry.schema import VERSION
    from sluice.router.telemetry.writer import router_folder

    random = np.random.default_rng(1)
    intervals = 60 // INTERVAL
    count = 0
    for table, rows in {"fact_flow": flows(), "fact_link": links(), "fact_worker": workers()}.items():
        for row in rows:
            row["interval_start"] = 0
        octets = encode(table, [{**row, "interval_start": n * INTERVAL} for n in range(intervals) for row in rows])
        minute = pq.read_table(pa.BufferReader(octets))
        at = minute.schema.get_field_index("interval_start")
        offsets = minute.column("interval_start").cast(pa.int64())
        for number in range(24 * 60):
            began = DAY + timedelta(minutes=number)
            base = int(began.timestamp() * 1e6)
            starts = pa.array(
                [base + offset.as_py() * 1_000_000 for offset in offsets.unique()], minute.schema.field(at).type
            )
            times = starts.take(offsets.dictionary_encode().combine_chunks().indices)
            folder = path / f"v{VERSION}" / table / router_folder("R") / f"date={began:%Y-%m-%d}" / f"hour={began:%H}"
            folder.mkdir(parents=True, exist_ok=True)
            made = minute.set_column(at, minute.schema.field(at), times)
            if table != "fact_worker":  # makes the files as hard to compress as real ones
                deliveries = pa.array(random.integers(0, 5000, made.num_rows))
                made = made.set_column(made.schema.get_field_index("deliveries"), "deliveries", deliveries)
            pq.write_table(made, folder / f"{began:%H%M%S}-bbbbbbbb-{number:06}.parquet", compression="zstd")
            count += made.num_rows if table == "fact_flow" else 0
    connections = [
        {
            "boot_id": "b" * 32, "valid_from": int(DAY.timestamp() * 1e6), "connection_id": n, "worker": n % WORKERS,
            "container": f"client-{n % 97}-{n}", "user": f"user{n % 11}", "vhost": "", "peer": f"10.0.{n % 200}.1:{n}",
            "listener": "amqp", "role": "normal",
        }
        for n in range(2 * LINKS)
    ]  # fmt: skip
    folder = path / f"v{VERSION}" / "dim_connection" / router_folder("R") / f"date={DAY:%Y-%m-%d}" / "hour=00"
    folder.mkdir(parents=True)
    (folder / "000000-bbbbbbbb-000000.parquet").write_bytes(encode("dim_connection", connections))
    return count


def verb(words: list[str]) -> tuple[float, float, float]:
    """Run `sluice pipeline …`. Return its seconds, the peak memory of its Java process in MiB, and its CPU seconds."""
    began = time.perf_counter()
    most = 0
    used = 0.0
    process = subprocess.Popen(
        [sys.executable, "-m", "sluice.router.cli.main", "pipeline", *words], cwd=ROOT, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    own = psutil.Process(process.pid)
    try:
        while True:
            try:
                said, errors = process.communicate(timeout=LOOK)
                break
            except subprocess.TimeoutExpired:
                if time.perf_counter() - began > LIMIT:
                    raise MeasureError(f"sluice pipeline {words[0]} takes longer than {LIMIT:.0f} s") from None
                used = max(used, running_cpu(process.pid))
                most = max([most, *(resident(each) for each in own.children(recursive=True))])
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode:
        raise MeasureError(f"sluice pipeline {words[0]}: {(errors or said).strip().splitlines()[-1]}")
    return time.perf_counter() - began, most / (1 << 20), used


def running_cpu(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants; 0.0 after it has exited."""
    try:
        return cpu_seconds(pid)
    except psutil.Error:
        return 0.0


def resident(process: psutil.Process) -> int:
    """Return the resident octets of a Java process; 0 for any other, or after it has exited."""
    try:
        return process.memory_info().rss if process.name() == "java" else 0
    except psutil.Error:
        return 0


def rollup(bench: Bench) -> list[Figure]:
    """Measure the roll-up of 17 million rows of fact_flow and half as many of fact_link, a day's telemetry.

    The roll-up runs twice: on files of a minute, as the telemetry process writes them, and on files of an hour.
    """
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="telemetry-") as folder:
        rows = write_day(Path(folder))
        period = ["--telemetry", folder, "--from", f"{DAY:%Y-%m-%d}", "--to", f"{DAY + timedelta(days=1):%Y-%m-%d}"]
        minutes = verb(["rollup", *period, "--memory", MEMORY])
        merging, _, merging_cpu = verb(["compact", "--telemetry", folder])
        hours = verb(["rollup", *period, "--memory", MEMORY])
        report, _, report_cpu = verb(["report", *period, "--memory", MEMORY, "--out", str(Path(folder, "report.html"))])
    figures = []
    for what, (seconds, memory, used) in {"minute": minutes, "hour": hours}.items():
        name = f"roll-up of a day, {rows / 1e6:.1f} million rows of flows, a file a {what}"
        figures += [
            Figure(name, seconds, "s", at_most(SECONDS)),
            Figure(f"{name}: CPU, Java's start included", used, "s", at_most(2 * SECONDS)),
            Figure(f"{name}: memory of Java, --memory {MEMORY}", memory, "MiB", at_most(MOST_MEMORY)),
        ]
    return [
        *figures,
        Figure("telemetry of a day: files of minutes to files of hours", merging, "s", None),
        Figure("telemetry of a day: the same, CPU", merging_cpu, "s", None),
        Figure("report of the same day", report, "s", None),
        Figure("report of the same day: CPU", report_cpu, "s", None),
    ]


def telemetry(bench: Bench) -> list[Figure]:
    """Measure the telemetry process at its default interval, while one worker is fully loaded."""
    seconds = LOOKS * INTERVAL
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="telemetry-") as folder:
        section = f"telemetry {{\n    path: {folder}\n    interval: {INTERVAL}\n}}\n"
        with bench.router(1, CONFIGURATION + section) as router:
            process = telemetry_process(router.pid)
            router.load(seconds=INTERVAL + 1.0, size=BODY)  # the first interval, in which pyarrow is loaded
            before = cpu_seconds(process)
            report = router.load(seconds=float(seconds), size=BODY)
            used = cpu_seconds(process) - before
    worker = report["router_cpu"]["user_seconds"] + report["router_cpu"]["system_seconds"] - used
    return [
        Figure("telemetry: CPU of its process, of a core", used / seconds, "", at_most(SHARE)),
        Figure("telemetry: CPU of its process, of the worker's", used / worker, "", None),
    ]


def telemetry_process(router: int) -> int:
    """Wait for the telemetry process; return its id."""
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        for each in psutil.Process(router).children(recursive=True):
            with suppress(psutil.Error):
                if each.name().endswith("-tel"):
                    return each.pid
        time.sleep(LOOK)
    raise MeasureError("there is no telemetry process")
