"""Rows about senders that wait for each outcome: their segments are small, and the lander merges them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from loadtests.configuration import router_configuration
from loadtests.landing_rows import lander
from loadtests.measuring import BODY, FULL, Bench, cpu_seconds
from loadtests.pipeline_rows import folder
from loadtests.report import Figure, at_least, at_most

if TYPE_CHECKING:
    from sluice.pipeline.segments import Segment

SENDERS = 20
SECONDS, QUICK_SECONDS = 300, 20  # with --quick, there are too few rows for a merged file
MERGED_ROWS_LEAST = 20_000  # mean of a merged file
VISIBLE_AFTER = 1.0  # seconds, p99
READ_EVERY = 10.0  # seconds; a segment is deleted a minute after it was merged


class WatchedLog(threading.Thread):
    """Reader of the names and messages of a log's segments as they land."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.delays: list[float] = []
        self.segments = 0
        self.rows = 0
        self.end = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(READ_EVERY):
            self.read()

    def read(self) -> None:
        from sluice.pipeline.segments import Landing

        landing = Landing.open(str(self.path))
        for log in landing.logs():
            listing = landing.listing(log.key, self.end, merged=False)
            for segment in listing.segments:
                self._add(segment)

    def _add(self, segment: Segment) -> None:
        self.delays += seconds_until_visible(self.path / segment.path)
        self.segments += 1
        self.rows += segment.rows
        self.end = segment.end


def waiting(bench: Bench) -> list[Figure]:
    """Land messages of senders with a credit of one, while the lander merges the segments.

    A message is visible to readers once its segment has its name.
    """
    from sluice.pipeline.reading import read_segment
    from sluice.pipeline.segments import Landing

    full = bench.effort == FULL
    seconds = SECONDS if full else QUICK_SECONDS
    with bench.router(1, router_configuration(1, 1)) as router, folder() as path:
        watched = WatchedLog(path / "landing")
        with lander(router, "waiting", path / "landing") as process:
            watched.start()
            before = cpu_seconds(process)
            router.load(address="waiting", senders=SENDERS, receivers=0, seconds=seconds, size=BODY)
            watched.ended.set()
            watched.join()
            used = cpu_seconds(process) - before
        watched.read()
        landing = Landing.open(str(path / "landing"))
        (log,) = landing.logs()
        listing = landing.listing(log.key)
        merged = [each for each in listing.segments if each.file is not None]
        assert sum(each.rows for each in listing.segments) == watched.rows, "the merged files have the rows that landed"
        reading = time.process_time()
        for segment in merged:
            for _ in read_segment(landing, segment, ["message", "ordinal"]):
                pass
        reading = time.process_time() - reading
    delays = sorted(watched.delays)
    rows = sum(each.rows for each in merged)
    what = f"{SENDERS} senders that wait for each outcome"
    figures = [
        Figure(f"{what}, send to visible, p99", delays[len(delays) * 99 // 100], "s", at_most(VISIBLE_AFTER)),
        Figure(f"{what}, mean rows of a segment", watched.rows / watched.segments, "rows", None),
        Figure(f"{what}, CPU of a segment in the lander", used * 1e3 / watched.segments, "ms", None),
    ]
    if full:
        figures += [
            Figure(f"{what}, mean rows of a merged file", rows / len(merged), "rows", at_least(MERGED_ROWS_LEAST)),
            Figure(f"{what}, reading a row of a merged file, CPU", reading * 1e6 / rows, "µs", None),
        ]
    return figures


def seconds_until_visible(path: Path) -> list[float]:
    """Return the time from sending each message of a segment until the segment got its name.

    A body begins with the send time by the monotonic clock, in ns. The body is the last section.
    """
    import pyarrow.parquet as pq

    ahead = time.time_ns() - time.monotonic_ns()
    at = path.stat().st_ctime_ns - ahead
    messages = pq.read_table(path, columns=["message"])["message"].to_pylist()
    return [(at - int.from_bytes(each[-BODY : 8 - BODY], "little")) / 1e9 for each in messages]
