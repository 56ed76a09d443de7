"""Data source "amqp" of Spark: reads landing folders as tables and streams, and writes rows to addresses (sink.py).

An offset is {log: number of its next segment} (segments.py), with the identities of the logs (identified_reader.py),
and for streams the batch time; a batch consists of whole segments. Spark creates instances of these classes in several
processes, pickles them and drops them without notice. Therefore none owns a file, a lock or a thread.

Batch time: the latest landing time that a stream has read, one value for all rows of a batch. It is stored in the
offsets, so it is the same when a batch is repeated, and it never goes back. A watermark on it drops no message that a
slow log, a backlog or a slow clock delivers late (docs/decisions/0074-batch-time.md).
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import LongType, StringType, StructType

from sluice.pipeline import columns
from sluice.pipeline.errors import DataLossError, LandingError, OtherLogError, PipelineOptionError
from sluice.pipeline.identified_reader import IdentifiedReader
from sluice.pipeline.identity import Identities
from sluice.pipeline.options import LATEST, SourceOptions, TimeBounds, check_offsets, source_options
from sluice.pipeline.payloads import ERROR, MADE, PAYLOAD, RETRIES, RETRY_ERROR
from sluice.pipeline.payloads import FORMATS as PAYLOADS
from sluice.pipeline.payloads.payload import NEEDED, Payload, open_payload, spark_schema, spark_type
from sluice.pipeline.reading import SegmentReader
from sluice.pipeline.resets import BEGIN, RESET, read_reset
from sluice.pipeline.retention import delete_consumed_segments
from sluice.pipeline.segments import Group, Landing, Offsets, Segment, first_since, now, parse_log_key
from sluice.pipeline.spark_api import (
    DataSourceStreamArrowWriter,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    arrow_type,
    check_stream_reader,
    check_stream_writer,
)
from sluice.pipeline.unread import UNLIMITED, UnreadLog, merge_segments

#: Size of a task, if the options do not give the number of tasks.
BIN_ROWS, BIN_OCTETS = 150_000, 24 << 20
#: Seconds between two searches for segments that may be deleted.
COLLECT_EVERY = 30.0
#: Seconds between two searches for a missing segment.
HOLE_POLL = 0.2

log = logging.getLogger(__name__)


class Amqp(DataSource):
    """Data source of `format("amqp")`."""

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> StructType | str:
        options = source_options(self.options)
        names = columns.columns_of_mode(options.decode, options.headers)
        if options.decode not in PAYLOADS:
            return columns.ddl(select_columns(options, names))
        found: StructType = spark_schema(names, open_payload(options, None), retries=options.registry_retries)
        return StructType([found[name] for name in select_columns(options, found.names)])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, stream=False)
        return BatchReader(options, *read_columns(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_stream_reader()
        options = source_options(self.options, stream=True)
        return IdentifiedReader(StreamReader(options, *read_columns(options, schema)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from sluice.pipeline.sink import BatchWriter, sink_options

        return BatchWriter(sink_options(self.options, overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from sluice.pipeline.sink import StreamWriter, sink_options

        check_stream_writer()
        return StreamWriter(sink_options(self.options, overwrite), schema)


def select_columns(options: SourceOptions, names: list[str]) -> list[str]:
    """Return the columns that the option `columns` selects, all without it. Spark tells a source in Python none.

    Raises PipelineOptionError for a column that `decode` does not have.
    """
    for name in options.columns:
        if name not in names:
            raise PipelineOptionError(
                f"option columns: decode={options.decode} has no column {name!r}; it has {', '.join(names)}"
            )
    return list(options.columns) or names


def read_columns(options: SourceOptions, schema: StructType) -> tuple[list[str], Payload | None]:
    """Return the names of the columns that Spark wants, and the maker of payloads if they are among them."""
    typed = options.decode in PAYLOADS
    own = MADE if typed else ()
    columns.check_user_schema(
        (field.name, field.dataType.simpleString()) for field in schema.fields if field.name not in own
    )
    names = [field.name for field in schema.fields]
    if options.columns and names != list(options.columns):
        raise PipelineOptionError(
            "option columns: a schema is given as well; it selects columns, so leave out the option"
        )
    if not set(names) & set(own):
        return names, None
    kinds = {field.name: field.dataType for field in schema.fields}
    for name, kind in ((ERROR, StringType()), (RETRIES, LongType()), (RETRY_ERROR, StringType())):
        if kinds.get(name, kind) != kind:
            raise PipelineOptionError(f"schema: column {name!r} is {kind.simpleString()}")
    wanted = kinds.get(PAYLOAD)
    payload = open_payload(options, None if wanted is None else arrow_type(wanted))
    if wanted is not None and spark_type(payload.codec.type).simpleString() != wanted.simpleString():
        found = spark_type(payload.codec.type).simpleString()
        raise PipelineOptionError(f"schema: column {PAYLOAD!r} is {found}, not {wanted.simpleString()}")
    return names, payload


class SegmentBin(InputPartition):
    """Segments that one task reads, and the batch time (ms)."""

    def __init__(self, segments: list[Segment], batch_time: int) -> None:
        super().__init__(None)
        self.segments = segments
        self.batch_time = batch_time


def divide_into_bins(segments: Sequence[Segment], count: int | None, batch_time: int) -> list[SegmentBin]:
    """Divide segments into `count` tasks of about equal octets.

    Equal segments are divided in the same way, so a repeated batch has the same tasks. count: None for as many as pay
    off; each costs Spark as much as some 30,000 rows.
    """
    if count is None:
        rows, octets = sum(each.rows for each in segments), sum(each.octets for each in segments)
        count = max(-(-rows // BIN_ROWS), -(-octets // BIN_OCTETS))
    loads = [(0, index) for index in range(min(count, len(segments)))]
    parts: list[list[Segment]] = [[] for _ in loads]
    for segment in sorted(segments, key=lambda each: (-each.octets, each)):
        load, index = min(loads)
        parts[index].append(segment)
        loads[index] = (load + segment.octets, index)
    return [SegmentBin(sorted(part), batch_time) for part in parts]


class _SourceReader:
    """Base class of the batch reader and the stream reader."""

    def __init__(self, options: SourceOptions, names: list[str], payload: Payload | None = None) -> None:
        self.options = options
        self.names = names
        self.payload = payload

    def landing(self) -> Landing:
        return Landing.open(self.options.path)

    def logs(self, landing: Landing) -> list[str]:
        return [each.key for each in landing.logs() if self.options.wants(each.address)]

    def start(self, landing: Landing) -> Offsets:
        """Return the start offsets of a new query.

        A log that they lack, now or later, is read from its oldest segment.
        """
        starting = self.options.starting
        if isinstance(starting, dict):
            return starting
        if starting == LATEST:
            return {key: landing.end(key) for key in self.logs(landing)}
        times = self.options.starting_times
        return {key: first_since(landing, key, time_of_log(times, key) or 0) for key in self.logs(landing)}

    def lost(self, what: str) -> None:
        """Report lost segments: raise DataLossError, or log a warning with failOnDataLoss=false."""
        if self.options.fail_on_loss:
            raise DataLossError(
                f"{self.options.path}: {what}; the messages may be lost (failOnDataLoss=false goes on without them)"
            )
        log.warning("%s: %s; the query goes on without these messages", self.options.path, what)

    def segments(self, start: Offsets, end: Offsets, landing: Landing | None = None) -> list[Segment]:
        """Return the segments of a range of offsets. landing: None to open the folder if a log has to be listed."""
        found: list[Segment] = []
        for key, stop in end.items():
            first = start.get(key)
            if first is None:
                landing = landing or self.landing()
                first = next((each.number for each in landing.listing(key, 0, stop).segments), stop)
            if first >= stop:
                continue
            known = self.known_segments(key, first, stop)
            if known:
                found += known
                continue
            landing = landing or self.landing()
            there, missing = landing.listing(key, first, stop).range(first, stop)
            if missing:
                self.lost(f"log {key} has no segments {format_ranges(missing)}")
            found += there
        return found

    def known_segments(self, key: str, first: int, stop: int) -> list[Segment]:
        """Return the segments with numbers `first` to `stop` - 1; empty if not all are known."""
        return []

    def read(self, partition: InputPartition, identities: Identities | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. identities: those that the logs of its segments must have."""
        if not isinstance(partition, SegmentBin):
            return  # Spark calls this way if there are no partitions
        landing = self.landing()
        wanted = [name for name in self.names if name not in columns.BATCH]
        names = wanted or ["segment"]
        if self.payload:
            names = list(dict.fromkeys([*(name for name in wanted if name not in MADE), *NEEDED]))
        reader = SegmentReader(landing, names, identities or {})
        for segment in partition.segments:
            try:
                for batch in reader.read(segment):
                    for rows in self.payload.add(batch, wanted) if self.payload else (batch,):
                        yield add_batch_time(rows, self.names, partition.batch_time)
            except FileNotFoundError:
                self.lost(f"segment {segment.path} was deleted")
            except OtherLogError as error:
                self.lost(str(error))


def add_batch_time(batch: pa.RecordBatch, names: Sequence[str], batch_time: int) -> pa.RecordBatch:
    """Return the columns `names` of a batch and of the batch time, in ms."""
    if columns.BATCH_TIME not in names:
        return batch
    value = pa.scalar(batch_time * 1000, columns.TYPES[columns.BATCH[columns.BATCH_TIME]])
    added = {columns.BATCH_TIME: pa.repeat(value, batch.num_rows)}
    arrays = [added[name] if name in added else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def time_of_log(times: TimeBounds, key: str) -> int | None:
    return times.of(parse_log_key(key).address)


def format_ranges(numbers: Sequence[int]) -> str:
    """Format numbers as ranges for people: "3-5, 9"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


class BatchReader(_SourceReader, DataSourceReader):
    """Reader of `spark.read`: the segments that exist when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        landing = self.landing()
        start = self.start(landing)
        ending = self.options.ending
        if isinstance(ending, dict):
            end = {key: ending[key] for key in sorted({*self.logs(landing), *ending}) if key in ending}
        else:
            ends = {key: time_of_log(self.options.ending_times, key) for key in self.logs(landing)}
            end = {key: landing.end(key) if at is None else first_since(landing, key, at) for key, at in ends.items()}
        segments = self.segments(start, end, landing)
        batch_time = max((each.landed for each in segments), default=0)
        return divide_into_bins(segments, self.options.partitions, batch_time)


class StreamReader(_SourceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of `spark.readStream`.

    Spark gets offsets from one instance for the life of a query, and plans in others.
    """

    def __init__(self, options: SourceOptions, names: list[str], payload: Payload | None = None) -> None:
        super().__init__(options, names, payload)
        self.target: Offsets | None = None  # end offsets of Trigger.AvailableNow
        self.holes: dict[tuple[str, int], float] = {}  # (log, missing number): time of its discovery (monotonic)
        self.unread: dict[str, UnreadLog] = {}
        self.behind: dict[str, int] = {}
        self.latest: Offsets = {}
        self.batch_at: float | None = None  # time of the last batch (monotonic)
        self.available = 0  # rows that the last plan could have taken without limits
        self.collect_at = 0.0  # time of the next search for segments to delete (monotonic)

    def initialOffset(self) -> dict[str, Any]:
        landing = self.landing()
        start = self.start(landing)
        # A reset before the first batch of a query is not its own.
        reset = read_reset(landing.store, self.options.group)
        marks = {} if reset is None else {RESET: reset.identity}
        self.register(landing, start, marks.get(RESET, ""))  # keeps these segments from being deleted
        return {**make_position(start, 0), **marks}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        landing = self.landing()
        self.target = {key: landing.end(key) for key in self.logs(landing)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit, landing: Landing | None = None) -> dict[str, Any]:
        """Return the end of the next batch, or `start` if there is nothing to read. landing: None to open the folder.

        With Trigger.AvailableNow, an equal offset ends the query as a success. So the call waits at a hole until the
        missing segment appears or counts as lost.
        """
        at, batch_time = self.position(start)
        landing = landing or self.landing()
        reset = read_reset(landing.store, self.options.group)
        marks = {key: start[key] for key in (RESET,) if key in start}
        if reset is not None and reset.identity != start.get(RESET):
            log.warning("%s: group %s goes on at the position of its reset", self.options.path, self.options.group)
            at = {**at, **reset.offsets}
            marks = {RESET: reset.identity, BEGIN: at}
            self.skip_delay()
        taken, end, waiting = self.plan(landing, at, limit)
        while waiting:
            time.sleep(HOLE_POLL)
            taken, end, waiting = self.plan(landing, at, limit)
        if BEGIN not in marks and (end == at or self.waits_for_rows(taken)):
            return start
        self.batch_at = time.monotonic()
        if taken:
            # Limited by this clock, or a lander whose clock is ahead would hold the batch time until that time.
            batch_time = max(batch_time, min(max(each.landed for each in taken), now()))
        return {**make_position(end, batch_time), **marks}

    def waits_for_rows(self, taken: Sequence[Segment]) -> bool:
        """Return True if the rows are too few for a batch, and the last one began less than maxTriggerDelay ago."""
        if not taken or self.target is not None or self.batch_at is None:
            return False
        return self.available < self.options.least_rows and time.monotonic() - self.batch_at < self.options.delay

    def skip_delay(self) -> None:
        """Let the next batch begin with any number of rows."""
        self.batch_at = None

    def plan(self, landing: Landing, at: Offsets, limit: ReadLimit) -> tuple[list[Segment], Offsets, bool]:
        """Return the segments of the next batch, its end, and True if a hole alone keeps this run from its target."""
        end = dict(at)
        logs = [self.run(landing, key, at.get(key), end) for key in sorted({*self.logs(landing), *at})]
        runs = [log.before(self.target_end(log.key)) for log in logs]
        # A log waits for the missing segment of another one, unless its own next segment landed earlier.
        behind_holes = [log.hidden[0].landed for log in logs if log.hole_before(self.target_end(log.key))]
        taken = merge_segments(runs, *self.limits(limit), min(behind_holes, default=UNLIMITED))
        for segment in taken:
            end[segment.log] = segment.end
        self.available = sum(log.rows for log in logs)
        self.latest = {log.key: log.last_end for log in logs if log.key in end or log.last_end}
        self.behind = backlog(logs, end)
        return taken, end, end == at and self.target is not None and bool(behind_holes)

    def target_end(self, key: str) -> int:
        """Return the number after the last segment that this run may read."""
        return UNLIMITED if self.target is None else self.target.get(key, 0)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs and the backlog of the last batch (`lag`), for the query's progress."""
        return {**dict(sorted(self.latest.items())), "lag": self.behind} if self.latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        (first, _), (stop, batch_time) = self.position(start), self.position(end)
        first = end.get(BEGIN, first)
        return divide_into_bins(self.segments(first, stop), self.options.partitions, batch_time)

    def log_breaks(self, key: str) -> int:
        """Return a number that changes when a log may have been made anew between two triggers of this reader."""
        return self.unread[key].breaks

    def known_segments(self, key: str, first: int, stop: int) -> list[Segment]:
        log = self.unread.get(key)
        found = [each for each in log.before(stop) if each.number >= first] if log is not None else []
        return found if sum(each.span for each in found) == stop - first else []

    def commit(self, end: dict[str, Any], landing: Landing | None = None) -> None:
        """Store the group's offsets after a batch; then delete old segments if the options say so."""
        landing = landing or self.landing()
        self.register(landing, self.position(end)[0], end.get(RESET, ""))
        if self.options.delete and time.monotonic() >= self.collect_at:
            self.collect_at = time.monotonic() + min(COLLECT_EVERY, self.options.retention)
            try:
                delete_consumed_segments(landing, self.options.retention)
            except OSError as error:
                log.warning("%s: segments that all groups have read cannot be deleted: %s", self.options.path, error)

    def register(self, landing: Landing, offsets: Offsets, reset: str) -> None:
        """Store the position of the group. reset: identity of the last reset that the query has followed."""
        options = self.options
        landing.commit(Group(options.group, offsets, options.subscribe, options.pattern, reset=reset))

    def limits(self, limit: ReadLimit) -> tuple[int, int, int]:
        """Return the most rows, octets and segments that a batch may have."""
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self.options.most_octets, UNLIMITED
        if isinstance(limit, ReadMaxBytes):
            return UNLIMITED, limit.max_bytes, UNLIMITED
        if isinstance(limit, ReadMaxFiles):
            return UNLIMITED, UNLIMITED, limit.max_files
        return UNLIMITED, UNLIMITED, UNLIMITED

    def position(self, found: dict[str, Any]) -> tuple[Offsets, int]:
        """Split the offset of a checkpoint into offsets and batch time. Raises LandingError if it is another source's.

        A checkpoint of an older version has no batch time. This clock is not before any landing time that it has read.
        """
        offsets = {key: at for key, at in found.items() if key not in (RESET, BEGIN)}
        batch_time = offsets.pop(columns.BATCH_TIME, now() if found else 0)
        try:
            if not isinstance(batch_time, int):
                raise ValueError(f"{batch_time!r} is not a batch time")
            return check_offsets(offsets), batch_time
        except (ValueError, LandingError) as error:
            raise LandingError(
                f"the checkpoint has offsets of another source than {self.options.path}: {error}"
            ) from None

    def run(self, landing: Landing, key: str, first: int | None, end: Offsets) -> UnreadLog:
        """Return the segments of a log from number `first` on.

        A missing segment may still appear: it counts as lost after the option holeTimeoutMs. `end` of the log is set
        if the log ends before `first`.
        """
        log = self.unread.setdefault(key, UnreadLog(key, first))
        if not log.update(landing, first):
            why = "was the log made anew?"
            self.lost(f"log {key} ends before segment {log.end}, and the query is at {first}: {why}")
            end[key] = log.end
        while log.hidden and self.given_up(key, log.end):
            missing = range(log.end, log.hidden[0].number)
            self.lost(f"log {key} has no segments {format_ranges(missing)}")
            log.skip_hole()
        return log

    def given_up(self, key: str, number: int) -> bool:
        """Return True if a missing segment has been waited for long enough."""
        since = self.holes.setdefault((key, number), time.monotonic())
        return time.monotonic() - since >= self.options.patience


def make_position(offsets: Offsets, batch_time: int) -> dict[str, Any]:
    """Return the offset that Spark stores: the offsets, and the batch time in ms."""
    return dict(sorted({**offsets, columns.BATCH_TIME: batch_time}.items()))


def backlog(logs: Iterable[UnreadLog], end: Offsets) -> dict[str, int]:
    """Return the sums of the segments that a batch up to `end` leaves unread, also those behind a hole."""
    segments = rows = octets = 0
    oldest = None
    for log in logs:
        taken = list(log.before(end.get(log.key, 0)))
        # The batch may end within a merged file, whose rest is unread.
        done = len(taken) - bool(taken and taken[-1] != log.readable[len(taken) - 1])
        segments += len(log.readable) - done + len(log.hidden)
        rows += log.rows - sum(each.rows for each in taken) + sum(each.rows for each in log.hidden)
        octets += log.octets - sum(each.octets for each in taken) + sum(each.octets for each in log.hidden)
        left = next(islice(log.readable, done, None), log.hidden[0] if log.hidden else None)
        if left is not None:
            oldest = left.landed if oldest is None else min(oldest, left.landed)
    age = 0 if oldest is None else max(now() - oldest, 0)
    return {"segments": segments, "rows": rows, "octets": octets, "ms": age}
