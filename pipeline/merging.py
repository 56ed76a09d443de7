"""Merger of the small segments of a log: a lander lets new readers open one file instead of thousands.

A run of consecutive segments becomes one file (segments.py) as soon as it has enough rows or files, or has waited long,
and the segments are deleted after a grace period, in which tasks that were planned before read them. A merged file with
few rows is merged again: with its successors as soon as they have enough rows together, and with its predecessors that
have no more rows than it. So a row is merged again only into a file of at least twice the rows, or into one of enough
rows, which is not merged any more.

Publishing the merged file is the only step that changes what readers see: before it, its segments count; after it, they
are covered. A crash therefore loses and doubles nothing, and the next lander deletes covered files that are left.

Owner: the lander, whose lock keeps others from merging this log. `add` is called from its event loop, `work` from one
thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.pipeline.errors import LandingError, OtherLogError
from sluice.pipeline.reading import read_placed
from sluice.pipeline.segments import CHECKSUM_KEY, FORMAT, FORMAT_KEY, IDENTITY_KEY, Landing, MergedFile, Segment
from sluice.pipeline.stores import LocalStore

#: Files of a run at which it is merged even if it has few rows.
RUN_FILES = 2000
#: Fewer segments are not merged: a row of a segment of 2,000 rows is read as fast as one of a merged file. A merged
#: file of few rows is merged again with any neighbour.
LEAST_SEGMENTS, LEAST_MERGED = 10, 2
#: Octets of files at which a run is merged. Fewer than LEAST_SEGMENTS files of that size are large enough.
RUN_OCTETS = 8 << 20
#: Octets of messages in memory at which a run ends: what compresses well is larger in memory than its files tell.
RUN_MEMORY = 64 << 20
#: Seconds after which segments are merged although they have few rows. An address with little traffic would keep up to
#: RUN_FILES of them otherwise.
WAIT = 600.0
#: Seconds from the publication of a merged file to the deletion of its segments: tasks that were planned with the
#: segments begin in that time, and complete listings take less.
GRACE = 60.0
COMPRESSION, LEVEL, CHECKSUM = "zstd", 1, "crc32"


class _Queue:
    """Files of a log that wait to be merged, by number, with the sums of their rows and octets."""

    def __init__(self, least_files: int) -> None:
        self.files: deque[Segment] = deque()
        self.least_files = least_files
        self.rows = self.octets = 0

    def append(self, segment: Segment) -> None:
        self.files.append(segment)
        self.rows += segment.rows
        self.octets += segment.octets

    def drop(self, count: int) -> None:
        """Remove the first `count` files."""
        for _ in range(count):
            segment = self.files.popleft()
            self.rows -= segment.rows
            self.octets -= segment.octets

    def run(self, rows: int, spared: int, overdue: bool = False) -> list[Segment]:
        """Return the first run that is due; empty if none is. Files that belong to no run are removed before it.

        rows: sum at which a run is due. spared: number of files at the end that no run may have. overdue: a run is due
        whatever it has. A gap in the numbers ends a run. A landing time before that of the predecessor ends it as well,
        so that no segment of a file landed after its last one.
        """
        while (
            self.rows >= rows
            or self.octets >= RUN_OCTETS
            or len(self.files) >= RUN_FILES
            or (overdue and len(self.files) - spared >= self.least_files)
        ):
            found: list[Segment] = []
            run_rows = run_octets = 0
            due = overdue
            for each in islice(self.files, max(len(self.files) - spared, 0)):
                if found and not follows(found[-1], each):
                    due = True
                    break
                found.append(each)
                run_rows += each.rows
                run_octets += each.octets
                if run_rows >= rows or run_octets >= RUN_OCTETS or len(found) >= RUN_FILES:
                    due = True
                    break
            if not due:
                return []
            if len(found) >= self.least_files:
                return found
            self.drop(1)
        return []

    def tail(self) -> list[Segment]:
        """Return the longest run at the end of which no file has more rows than its successors together."""
        found: list[Segment] = []
        rows = 0
        for each in reversed(self.files):
            if found and (each.rows > rows or not follows(each, found[-1])):
                break
            found.append(each)
            rows += each.rows
        return found[::-1]


def follows(before: Segment, after: Segment) -> bool:
    """Return True if both may be in one file, next to each other."""
    return after.number == before.end and after.landed >= before.landed


class LogMerger:
    """Merger of one log."""

    def __init__(self, landing: Landing, key: str, identity: str, rows: int, grace: float | None = None) -> None:
        """key, identity: of the log. rows: from so many on, a merged file stays as it is. grace: None for GRACE."""
        self.landing = landing
        self.key = key
        self.identity = identity
        self.rows = rows
        self.grace = GRACE if grace is None else grace
        self.stop = threading.Event()  # set: `work` returns as soon as it can
        self.segments = self.files = 0  # segments that were merged, and files that have them
        self._added: deque[Segment] = deque()  # segments that `work` has not seen
        self._condemned: deque[tuple[float, list[Segment]]] = deque()  # time of deletion (monotonic), and files
        self._landed, self._merged = _Queue(LEAST_SEGMENTS), _Queue(LEAST_MERGED)
        self._since = time.monotonic()  # since when the segments wait that were landed first
        self._end: int | None = None  # number after the last segment in the queues; None: the log was not listed

    def _list(self) -> None:
        """Begin with the files that exist. Segments of format 1, which have no checksums, stay as they are."""
        self._landed, self._merged = _Queue(LEAST_SEGMENTS), _Queue(LEAST_MERGED)
        listing = self.landing.listing(self.key)
        for each in listing.segments:
            if each.file is None:
                self._landed.append(each)
            elif each.rows < self.rows and each == each.file.whole():
                self._merged.append(each)
        self._end = listing.end
        if listing.covered:
            self._condemned.append((time.monotonic() + self.grace, listing.covered))

    def add(self, segment: Segment) -> None:
        """Note a segment that was landed."""
        self._added.append(segment)

    def work(self, say: Callable[[str], None]) -> bool:
        """Merge a run if one is due, and delete segments that were merged before. Return True if there may be more.

        say: gets a line for each segment that cannot be merged. Raises OSError, LandingError for an unusable log.
        """
        if self._end is None:
            self._list()
        while self._added:
            segment = self._added.popleft()
            if self._end is None or segment.number > self._end:
                # The log was not listed, or a write that failed may have published the number before.
                self._condemned.clear()
                self._list()
            elif segment.number == self._end:
                self._landed.append(segment)
                self._end = segment.end
        self._delete_condemned()
        if self.stop.is_set():
            return False
        if run := self._merged.run(self.rows, 0):
            self._merge(self._merged, run, say)
        elif run := self._landed.run(self.rows, 1, time.monotonic() - self._since >= WAIT):
            self._merge(self._landed, run, say)
        elif len(run := self._merged.tail()) >= LEAST_MERGED:
            self._merge_tail(run, say)
        else:
            if len(self._landed.files) <= 1:  # the last one is not merged
                self._since = time.monotonic()
            return False
        return not self.stop.is_set()

    def _delete_condemned(self) -> None:
        while self._condemned and self._condemned[0][0] <= time.monotonic() and not self.stop.is_set():
            self.landing.delete(self._condemned[0][1])
            self._condemned.popleft()

    def _merge(self, queue: _Queue, run: list[Segment], say: Callable[[str], None]) -> None:
        """Merge a run at the beginning of a queue."""
        made = self._merged_file(queue, run, say)
        if made is None:
            return
        queue.drop(sum(each.end <= made.end for each in run))
        if queue is self._landed:
            self._since = time.monotonic()
            if made.rows < self.rows:
                self._merged.append(made)

    def _merge_tail(self, run: list[Segment], say: Callable[[str], None]) -> None:
        """Merge a run at the end of the queue of merged files."""
        kept = list(self._merged.files)[: -len(run)]
        made = self._merged_file(self._merged, run, say)
        if made is None:
            return
        rest = [each for each in run if each.end > made.end]
        self._merged = _Queue(LEAST_MERGED)
        for each in (*kept, made, *rest):
            self._merged.append(each)

    def _merged_file(self, queue: _Queue, run: list[Segment], say: Callable[[str], None]) -> Segment | None:
        """Merge a run of a queue, as much of it as memory allows. None: the queue has what may still be merged."""
        before = queue.files.index(run[0])
        try:
            made = merge(self.landing, run, self.identity, queue.least_files, self.stop.is_set)
        except _UnreadableError as error:
            if str(error):
                say(f"{error}; it is not merged")
            queue.drop(before + run.index(error.segment) + 1)
            return None
        if made is None:
            if not self.stop.is_set():  # too few segments have so many octets
                queue.drop(before + max(queue.least_files - 1, 1))
            return None
        done = [each for each in run if each.end <= made.end]
        self.segments += sum(each.span for each in done if each.file is None)
        self.files += 1 - sum(each.file is not None for each in done)
        self._condemned.append((time.monotonic() + self.grace, done))
        return made


class _UnreadableError(Exception):
    """Raised for a segment of a run that cannot be merged; text: "" if that is no fault."""

    def __init__(self, segment: Segment, text: str = "") -> None:
        super().__init__(text)
        self.segment = segment


def merge(
    landing: Landing,
    run: Sequence[Segment],
    identity: str,
    least: int = LEAST_MERGED,
    ending: Callable[[], bool] = lambda: False,
) -> Segment | None:
    """Publish a file with the rows of consecutive segments, and return it.

    It has as many of them as memory allows, up to the first one that is damaged, has no checksums, or does not exist.
    identity: that of the log. least: least number of segments. ending: asked before each segment; True ends the merge.
    Returns None if memory allows fewer than `least`, or the merge was ended. Raises OSError, and _UnreadableError for
    a segment before which there are fewer than `least`.
    """
    assert all(one.end == other.number for one, other in pairwise(run)), "the run has a gap"
    tables: list[pa.Table] = []
    octets = 0
    for segment in run:
        if ending():
            return None
        try:
            table = _read(landing, segment, identity)
        except _UnreadableError:
            if len(tables) < least:
                raise
            break
        octets += table.nbytes
        if tables and octets > RUN_MEMORY:
            break
        tables.append(table)
    if len(tables) < least:
        return None
    first, last = run[0], run[len(tables) - 1]
    table = pa.concat_tables(tables)
    buffer = _encode(table, identity)
    file = MergedFile(first.log, first.number, last.end - 1, last.landed, table.num_rows, buffer.size)
    landing.store.publish(file.path, buffer)
    return file.whole()


def _read(landing: Landing, segment: Segment, identity: str) -> pa.Table:
    try:
        octets = None
        if not isinstance(landing.store, LocalStore):
            octets = landing.store.read(segment.path)  # fewer requests than to read columns one by one
            if octets is None:
                raise FileNotFoundError(segment.path)
        table = read_placed(landing, segment, identity, octets)
    except FileNotFoundError:
        raise _UnreadableError(segment) from None
    except (LandingError, OtherLogError) as error:
        raise _UnreadableError(segment, str(error)) from error
    if CHECKSUM_KEY not in (table.schema.metadata or {}):
        raise _UnreadableError(segment)  # a checksum would vouch for octets that nobody compared
    return table.replace_schema_metadata()


def _encode(table: pa.Table, identity: str) -> Any:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=COMPRESSION,
        compression_level=LEVEL,
        use_dictionary=["address", "link", "ingress_router"],
        column_encoding=dict.fromkeys(("arrived", "ordinal", "segment", "landed_time"), "DELTA_BINARY_PACKED"),
        write_statistics=["arrived", "segment", "landed_time"],
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        metadata = {FORMAT_KEY: str(FORMAT), CHECKSUM_KEY: CHECKSUM, IDENTITY_KEY: identity}
        writer.add_key_value_metadata({key.decode(): value for key, value in metadata.items()})
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
    return sink.getvalue()
