"""`sluice pipeline bench`: cost of landing and reading on this machine and disk, without a router."""

import argparse
import os
import struct
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any

from sluice.pipeline.prerequisites import require
from sluice.pipeline.segments import Landing, LandingLog, schema
from sluice.pipeline.units import octets_text
from sluice.pipeline.writer import SegmentWriter
from sluice.router.cli.quantities import count

HELP = "measure the cost of landing and reading on this machine"
LOG = LandingLog("bench", "bench")
DATA = b"\x00\x53\x75\xb0"  # head of a data section; its size in four octets follows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", required=True, metavar="DIR", help="folder or URL for temporary segments")
    parser.add_argument("--rows", type=count, default=50_000, help="messages in a segment (%(default)s)")
    parser.add_argument("--size", type=count, default=100, metavar="OCTETS", help="size of a body (%(default)s)")
    parser.add_argument("--segments", type=count, default=10, metavar="N", help="number of segments (%(default)s)")


def run(options: argparse.Namespace) -> int:
    require("pyarrow")
    landing = Landing.create(options.path)
    writer = SegmentWriter(landing, LOG, "bench-0")
    batch = deliveries(options.rows, options.size)
    written = []
    try:
        writer.encode(batch)  # the first call loads modules
        encoding = timed(options.segments, lambda: writer.encode(batch))
        landed = timed(options.segments, lambda: written.append(writer.write(batch)))
        octets = sum(segment.octets for segment in written)
        reading = [timed(1, lambda path=segment.path: read(landing, path))[0] for segment in written]  # type: ignore[misc]
    finally:
        for segment in written:
            landing.store.delete(segment.path)
    print(f"{options.segments} segments of {options.rows} messages with bodies of {options.size} random octets")
    say("encode", encoding, options.rows)
    say("land: encode, write, wait for the disk", landed, options.rows)
    say("read with pyarrow, all columns", reading, options.rows)
    print(f"{'a segment':40} {octets_text(octets / len(written)):>12}")
    return 0


def deliveries(rows: int, size: int) -> Any:
    """Return a batch as a receiver delivers it."""
    message = len(DATA) + 4 + size
    octets = b"".join(DATA + struct.pack(">I", size) + os.urandom(size) for _ in range(rows))
    return SimpleNamespace(
        rows=rows,
        octets=len(octets),
        messages=octets,
        offsets=struct.pack(f"={rows + 1}i", *range(0, message * rows + 1, message)),
        arrived=struct.pack(f"={rows}q", *[time.time_ns() // 1000] * rows),
    )


def timed(times: int, work: Callable[[], Any]) -> list[float]:
    """Run `work` a number of times. Return the seconds of each run."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return taken


def read(landing: Landing, path: str) -> None:
    import pyarrow.parquet as pq

    with landing.store.open(path) as file:
        pq.ParquetFile(file).read(schema().names)


def say(what: str, seconds: list[float], rows: int) -> None:
    middle = median(seconds)
    print(f"{what:40} {middle * 1000:9.1f} ms  {rows / middle:12,.0f} messages/s, slowest {max(seconds) * 1000:.1f} ms")
