"""Cost of planning a batch: CPU by the number of segments that the stream has read before, requests to a store."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

from loadtests.measuring import FULL, Bench
from loadtests.pipeline_rows import folder
from loadtests.report import Figure, at_most

ADDRESSES = 100
# Segments of an hour, one every 200 ms. The last folder of a log is almost full, which costs most.
HOUR = 18_990
PART = 990  # segments of a shorter history, for comparison
QUICK_SHARE = 10  # part of the segments with --quick
INTERVAL = 200  # ms
LINKS_MOST = 60_000  # hard links of one file; ext4 allows 65,000
TRIGGERS = 5
CPU_MOST = 0.3  # seconds of a trigger
REQUESTS_MOST = 2 * ADDRESSES  # of a trigger with new segments of all addresses


class RetainedSegments:
    """Landing folder with `count` segments of each address, all read by the group of the stream."""

    def __init__(self, path: Path, count: int) -> None:
        from sluice.pipeline.segments import Landing, LandingLog

        self.landing = Landing.create(str(path))
        self.logs = [LandingLog("bench", f"plant/{number}") for number in range(ADDRESSES)]
        self.count = 0
        self._links = 0
        self._target = path / "_segment"
        self._began = int(time.time() * 1000) - count * INTERVAL
        for _ in range(count):
            self.add()

    def add(self) -> None:
        """Add a segment to each log. All are hard links to a few files, which saves inodes."""
        from sluice.pipeline.segments import Segment

        for log in self.logs:
            if self._links % LINKS_MOST == 0:
                self._target.unlink(missing_ok=True)
                self._target.write_bytes(b"x")
            self._links += 1
            segment = Segment(log.key, self.count, self._began + self.count * INTERVAL, 10, 1)
            path = os.path.join(self.landing.url, segment.path)
            try:
                os.link(self._target, path)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path))
                os.link(self._target, path)
        self.count += 1

    @property
    def offset(self) -> dict[str, int]:
        """Position of a stream that has read everything."""
        return {**{log.key: self.count for log in self.logs}, "batch_time": self._began}


def trigger_cpu(path: Path, count: int) -> tuple[float, float]:
    """Return the CPU seconds of a trigger (median), and of one that also searches for segments to delete.

    None is old enough, because this process may need longer to make the segments than a lander does.
    """
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from sluice.pipeline.options import source_options
    from sluice.pipeline.source import SegmentBin, StreamReader

    made = RetainedSegments(path, count)
    options = {"path": str(path), "decode": "raw", "retentionMinutes": "1440"}
    reader = StreamReader(source_options(options, stream=True), ["message"])
    spent = []
    for _ in range(1 + TRIGGERS):
        start = made.offset
        made.add()
        began = time.process_time()
        end = reader.latestOffset(start, ReadMaxRows(1_000_000))
        tasks = reader.partitions(start, end)
        reader.commit(end)
        spent.append(time.process_time() - began)
        planned = [segment for each in tasks if isinstance(each, SegmentBin) for segment in each.segments]
        assert len(planned) == ADDRESSES
    return median(spent[1:]), spent[0]


def trigger_requests() -> int:
    """Return the requests to an object store of a trigger with one new segment of each address, with its commit."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from loadtests.object_store import RecordingObjectStore
    from sluice.pipeline.identified_reader import IdentifiedReader
    from sluice.pipeline.options import source_options
    from sluice.pipeline.segments import Landing, LandingLog, Segment, now
    from sluice.pipeline.source import StreamReader

    limit = ReadMaxRows(1_000_000)
    with RecordingObjectStore() as server:
        url = server.bucket("planning")
        landing = Landing.create(url)
        logs = [LandingLog("bench", f"plant/{number}") for number in range(ADDRESSES)]
        reader = IdentifiedReader(
            StreamReader(source_options({"path": url, "decode": "raw"}, stream=True), ["message"])
        )
        end = reader.initialOffset()
        for number in range(2):
            for log in logs:
                landing.identify_log(log.key)
                landing.store.publish(Segment(log.key, number, now(), 10, 1).path, b"x")
            server.requests.clear()
            start, end = end, reader.latestOffset(end, limit)
            reader.partitions(start, end)
            reader.commit(end)
        return len(server.requests)


def planning(bench: Bench) -> list[Figure]:
    """Measure a trigger with one new segment of each address, after a short and a long history."""
    share = 1 if bench.effort == FULL else QUICK_SHARE
    figures = []
    for count in (PART // share, HOUR // share):
        with folder() as path:
            usual, collecting = trigger_cpu(path / "landing", count)
        what = f"planning a trigger, {ADDRESSES} addresses, {count:,} segments each"
        figures.append(Figure(what, usual, "s of CPU", at_most(CPU_MOST)))
        figures.append(Figure(f"{what}, with a search for deletable ones", collecting, "s of CPU", at_most(CPU_MOST)))
    what = f"planning a trigger, {ADDRESSES} addresses with new segments, object store"
    figures.append(Figure(what, trigger_requests(), "requests", at_most(REQUESTS_MOST)))
    return figures
