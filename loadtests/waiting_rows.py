"""Rows about senders that wait for each outcome: their segments are small, and archives merge them."""

from __future__ import annotations

from pathlib import Path

from loadtests.configuration import router_configuration
from loadtests.landing_rows import lander
from loadtests.measuring import BODY, FULL, Bench
from loadtests.pipeline_rows import folder
from loadtests.report import Figure, at_least, at_most

SENDERS = 20
SECONDS, QUICK_SECONDS = 300, 20  # with --quick, an archive file has too few rows to be compared with the bar
MERGED_ROWS_LEAST = 20_000  # mean of a merged file
VISIBLE_AFTER = 1.0  # seconds, p99


def waiting(bench: Bench) -> list[Figure]:
    """Land messages of senders with a credit of one, then merge the segments.

    A message is visible to readers once its segment has its name.
    """
    from sluice.pipeline.compaction import archive
    from sluice.pipeline.segments import Group, Landing

    full = bench.effort == FULL
    seconds = SECONDS if full else QUICK_SECONDS
    with bench.router(1, router_configuration(1, 1)) as router, folder() as path:
        with lander(router, "waiting", path / "landing"):
            router.load(address="waiting", senders=SENDERS, receivers=0, seconds=seconds, size=BODY)
        landing = Landing.open(str(path / "landing"))
        (log,) = landing.logs()
        segments = landing.listing(log.key).segments
        rows = sum(each.rows for each in segments)
        delays = sorted(delay for each in segments for delay in seconds_until_visible(path / "landing" / each.path))
        landing.commit(Group("bench", {log.key: segments[-1].number + 1}))
        merged, files = archive(landing, str(path / "archive"), 0)
        left = segments[merged:]
    merged_rows = (rows - sum(each.rows for each in left)) / files
    what = f"{SENDERS} senders that wait for each outcome"
    return [
        Figure(f"{what}, send to visible, p99", delays[len(delays) * 99 // 100], "s", at_most(VISIBLE_AFTER)),
        Figure(f"{what}, mean rows of a segment", rows / len(segments), "rows", None),
        Figure(
            f"{what}, mean rows of an archive file", merged_rows, "rows", at_least(MERGED_ROWS_LEAST) if full else None
        ),
    ]


def seconds_until_visible(path: Path) -> list[float]:
    """Return the time from sending each message of a segment until the segment got its name.

    A body begins with the send time by the monotonic clock, in ns. The body is the last section.
    """
    import time

    import pyarrow.parquet as pq

    ahead = time.time_ns() - time.monotonic_ns()
    at = path.stat().st_ctime_ns - ahead
    messages = pq.read_table(path, columns=["message"])["message"].to_pylist()
    return [(at - int.from_bytes(each[-BODY : 8 - BODY], "little")) / 1e9 for each in messages]
