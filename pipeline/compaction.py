"""Compaction: merge segments that all groups have read, and the telemetry files of past hours, into large files.

Every step may be interrupted anywhere and is repeated by the next run. A large file lists the small ones it contains,
in its name or its metadata. The small ones are deleted after the large one has been published.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from sluice.pipeline.errors import FileError, LandingError
from sluice.pipeline.identity import differ, parse_identity
from sluice.pipeline.retention import retained_from
from sluice.pipeline.segments import (
    FORMAT,
    FORMAT_KEY,
    LOG_FILE,
    Landing,
    LandingLog,
    Segment,
    clip,
    consumed_end,
    now,
    schema,
)
from sluice.pipeline.stores import LandingStore, open_store
from sluice.router import json_codec

MERGED_OCTETS_MAX = 256 << 20  # upper bound in octets of small files that are merged into one
MERGED = "merged-"  # prefix of the names of merged telemetry files
MERGED_KEY = b"sluice.merged"  # metadata key: names of the files that were merged
HOUR = timedelta(hours=1)


def archive(landing: Landing, into: str, retention: float, *, at: int | None = None) -> tuple[int, int]:
    """Move segments that all groups have read, and that landed over `retention` seconds ago, to another store.

    One file holds one hour of a log, at INTO/LANDER/ADDRESS/date=…/hour=…/FIRST-LAST.parquet. Added columns tell each
    row's lander, segment and landing time. Returns (segments, files).
    """
    store = open_store(into)
    groups = landing.groups()
    before = (now() if at is None else at) - int(retention * 1000)
    segments = files = 0
    for log in landing.logs():
        end = consumed_end(log, groups)
        old = landing.listing(log.key).segments[:-1]
        ready = [each for each in old[: retained_from(old, before)] if each.end <= end]
        if not ready:
            continue
        _check_identity(landing, store, log)
        done = _archive_end(store, log)
        for part in _split_by_hour(_divide_at_hours(landing, clip(ready, done))):
            _archive_part(landing, store, part)
            files += 1
        landing.delete(ready)
        segments += len(ready)
    return segments, files


def _hour(segment: Segment) -> datetime:
    return datetime.fromtimestamp(segment.landed / 1000, UTC).replace(minute=0, second=0, microsecond=0)


def _divide_at_hours(landing: Landing, segments: list[Segment]) -> Iterator[Segment]:
    """Yield segments, merged files in parts of one hour each. Raises FileNotFoundError, LandingError."""
    from sluice.pipeline.reading import merged_segments

    for segment in segments:
        if segment.file is None:
            yield segment
            continue
        for _, of_hour in groupby(merged_segments(landing, segment), _hour):
            each = list(of_hour)
            yield segment.part(each[0].number, each[-1].end)._replace(landed=each[-1].landed)


def _split_by_hour(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Split segments into groups of one hour each and at most MOST octets, if a group has more than one."""
    for _, of_hour in groupby(segments, _hour):
        part: list[Segment] = []
        for segment in of_hour:
            if part and sum(each.octets for each in part) + segment.octets > MERGED_OCTETS_MAX:
                yield part
                part = []
            part.append(segment)
        yield part


def _check_identity(landing: Landing, store: LandingStore, log: LandingLog) -> None:
    """Check that an archive holds segments of this log, and not of one that had its name and numbers before.

    Segments with numbers that the archive has are deleted, so this would delete the segments of the new log unread.
    Raises LandingError.
    """
    identity = landing.log_identity(log.key)
    path = f"{log.key}/{LOG_FILE}"
    octets = store.read(path)
    if octets is None:
        if identity is not None:
            store.make_folder(log.key)
            store.publish(path, json_codec.encode({"id": identity}))
    elif differ(identity, parse_identity(octets, f"{store.url}/{path}")):
        raise LandingError(
            f"{store.url}/{log.key} archives a log that was made anew since; archive the new one into another folder"
        )


def _archive_end(store: LandingStore, log: LandingLog) -> int:
    """Return the end of the archived range: all segments with smaller numbers are in the archive."""
    end = 0
    for date in store.folders(log.key):
        for hour in store.folders(f"{log.key}/{date}"):
            for name, _ in store.files(f"{log.key}/{date}/{hour}"):
                first, dash, last = name.removesuffix(".parquet").partition("-")
                if dash and first.isdecimal() and last.isdecimal():
                    end = max(end, int(last) + 1)
    return end


def _archive_part(landing: Landing, store: LandingStore, part: list[Segment]) -> None:
    import pyarrow as pa

    from sluice.pipeline.reading import read_placed

    tables = []
    for segment in part:
        table = read_placed(landing, segment).replace_schema_metadata({FORMAT_KEY: str(FORMAT)})
        lander = pa.repeat(pa.scalar(segment.log.partition("/")[0]), table.num_rows)
        tables.append(table.add_column(len(schema()), "lander", lander))
    hour = _hour(part[0])
    folder = f"{part[0].log}/date={hour:%Y-%m-%d}/hour={hour:%H}"
    store.make_folder(folder)
    name = f"{part[0].number:012}-{part[-1].end - 1:012}.parquet"
    store.publish(f"{folder}/{name}", _parquet(pa.concat_tables(tables)))


def merge_telemetry(url: str, *, at: datetime | None = None) -> tuple[int, int]:
    """Merge the telemetry files of each hour that ended over an hour ago, in TABLE/router=…/date=…/hour=….

    Returns (files removed, files made).
    """
    store = open_store(url)
    last = (at or datetime.now(UTC)) - 2 * HOUR
    gone = made = 0
    for folder in _hours(store, ""):
        values = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
        try:
            hour = datetime.fromisoformat(values["date"]).replace(hour=int(values["hour"]), tzinfo=UTC)
        except (KeyError, ValueError):
            continue  # not a telemetry folder
        if hour <= last:
            merged, files = _merge(store, folder)
            gone += merged
            made += files
    return gone, made


def _hours(store: LandingStore, folder: str) -> Iterator[str]:
    """Yield the paths of the hour=… folders at any depth."""
    for name in store.folders(folder):
        path = f"{folder}/{name}" if folder else name
        if name.startswith("hour="):
            yield path
        elif not name.startswith((".", "_")):
            yield from _hours(store, path)


def _merge(store: LandingStore, folder: str) -> tuple[int, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sizes = {name: size for name, size in store.files(folder) if name.endswith(".parquet") and name[0] not in "._"}
    gone = 0
    for name in [name for name in sizes if name.startswith(MERGED)]:
        if name not in sizes:
            continue
        with store.open(f"{folder}/{name}") as source:
            of = json_codec.decode((pq.read_metadata(source).metadata or {}).get(MERGED_KEY, b"[]"))
        for each in set(of) & set(sizes):  # an interrupted run published the merged file and did not delete these
            store.delete(f"{folder}/{each}")
            del sizes[each]
            gone += 1
    names: list[str] = []
    octets = 0
    for name in sorted(sizes):
        if octets + sizes[name] > MERGED_OCTETS_MAX:
            break  # left for the next run
        names.append(name)
        octets += sizes[name]
    if len(names) < 2:
        return gone, 0
    tables = []
    for name in names:
        try:
            with store.open(f"{folder}/{name}") as source:
                tables.append(pq.ParquetFile(source, page_checksum_verification=True).read())
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FileError(f"{store.url}/{folder}/{name} cannot be read: {error}") from error
    table = pa.concat_tables(tables, promote_options="default")
    metadata = {**(table.schema.metadata or {}), MERGED_KEY: json_codec.encode(names)}
    large = f"{MERGED}{names[0].removeprefix(MERGED).removesuffix('.parquet')}-{len(names)}.parquet"
    store.publish(f"{folder}/{large}", _parquet(table.replace_schema_metadata(metadata)))
    for name in names:
        store.delete(f"{folder}/{name}")
    return gone + len(names), 1


def _parquet(table: Any) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=1 << 17, write_page_checksum=True)
    return sink.getvalue()
