"""Merged files: the rows that readers see before, during and after a merge, also after a crash at any step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.pipeline import merging
from sluice.pipeline.commands.bench import deliveries
from sluice.pipeline.compaction import archive
from sluice.pipeline.errors import LandingError
from sluice.pipeline.lag import lag_of
from sluice.pipeline.merging import LogMerger, merge
from sluice.pipeline.reading import SegmentReader, merged_segments, read_segment, verify_segment
from sluice.pipeline.retention import delete_beyond, delete_consumed_segments
from sluice.pipeline.segments import (
    MERGED,
    Group,
    Landing,
    LandingLog,
    MergedFile,
    Segment,
    arrange,
    clip,
    first_since,
    parse_merged_name,
)
from sluice.pipeline.stores import LocalStore
from sluice.pipeline.writer import SegmentWriter
from tests.unit.pipeline.test_compaction import Killed

LOG = LandingLog("l", "a")
KEY = LOG.key
NAMES = ("segment", "ordinal", "message", "landed_time", "lander", "arrived", "address", "link")
START = 1_700_000_000_000
HOUR = 3_600_000
Rows = list[dict[str, Any]]


class MergedLog:
    """Log with small segments, their rows, and its merger."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, step: int = 1000) -> None:
        """step: ms between two landing times."""
        patch.setattr(merging, "LEAST_SEGMENTS", 4)
        self.root = path
        self.landing = Landing.create(str(path))
        self.step = step
        self.at = START
        patch.setattr("sluice.pipeline.writer.now", self._now)
        self.writer = SegmentWriter(self.landing, LOG, "l-0")
        self.said: list[str] = []
        self.merger = self.new_merger()
        self.written: list[Segment] = []

    def _now(self) -> int:
        self.at += self.step
        return self.at

    def new_merger(self, rows: int = 20, grace: float = 0) -> LogMerger:
        return LogMerger(self.landing, KEY, self.writer.identity, rows, grace)

    def land(self, count: int, rows: int = 3) -> None:
        for _ in range(count):
            segment = self.writer.write(deliveries(rows, 4))
            self.written.append(segment)
            self.merger.add(segment)

    def merge(self) -> None:
        """Merge and delete until nothing is due."""
        while self.merger.work(self.said.append):
            pass
        self.merger.work(self.said.append)

    def rows(self, first: int = 0, end: int | None = None) -> Rows:
        """Return the rows of a range of segments, in the order of readers."""
        listing = self.landing.listing(KEY)
        segments, missing = listing.range(first, listing.end if end is None else end)
        assert missing == []
        return read(self.landing, segments)

    def files(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the first and last numbers of the merged files, and the numbers of the files of single segments."""
        names = [parse_merged_name(KEY, name) for name in self.landing.store.names(f"{KEY}/{MERGED}")]
        single = [path.name for path in (self.root / KEY).glob("0*/*.parquet")]
        return [(each.first, each.last) for each in names if each], sorted(int(name[:12]) for name in single)


def read(landing: Landing, segments: list[Segment]) -> Rows:
    return [row for segment in segments for batch in read_segment(landing, segment, NAMES) for row in batch.to_pylist()]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MergedLog:
    return MergedLog(tmp_path, monkeypatch)


def test_merged_file_has_the_rows_of_its_segments(log: MergedLog):
    log.land(9)
    before = log.rows()
    assert len(before) == 27
    log.merge()
    assert log.files() == ([(0, 6)], [7, 8])
    assert log.rows() == before
    for first in range(9):
        for end in range(first, 10):
            assert log.rows(first, end) == [row for row in before if first <= row["segment"] < end]


def test_last_segment_of_a_log_is_not_merged(log: MergedLog):
    log.land(7)
    log.merge()
    assert log.files() == ([], list(range(7)))
    log.land(1)
    log.merge()
    assert log.files() == ([(0, 6)], [7])
    assert log.landing.end(KEY) == 8


def test_segments_stay_until_the_grace_period_ends(log: MergedLog):
    log.merger = log.new_merger(grace=1000)
    log.land(8)
    before = log.rows()
    log.merge()
    assert log.files() == ([(0, 6)], list(range(8)))
    listing = log.landing.listing(KEY)
    assert [each.number for each in listing.segments] == [0, 7]
    assert [each.number for each in listing.covered] == list(range(7))
    assert log.rows() == before, "each number counts once"
    assert [each.number for each in log.landing.by_number(KEY)] == [0, 7]
    assert [each.number for each in log.landing.by_number(KEY, descending=True)] == [7, 0]
    log.merger = log.new_merger()  # the next lander
    log.merge()
    assert log.files() == ([(0, 6)], [7])
    assert log.rows() == before


def test_files_with_few_rows_are_merged_once_more(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(merging, "RUN_FILES", 4)
    log.land(13)
    before = log.rows()
    log.merge()
    assert log.files() == ([(0, 7), (8, 11)], [12])
    assert log.rows() == before
    assert (log.merger.segments, log.merger.files) == (12, 2)


def test_row_is_merged_twice_at_most(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(merging, "RUN_FILES", 2)
    monkeypatch.setattr(merging, "LEAST_SEGMENTS", 2)
    log.merger = log.new_merger(rows=1000)
    log.land(9)
    before = log.rows()
    log.merge()
    assert log.files() == ([(0, 3), (4, 7)], [8])
    assert log.rows() == before


def test_segments_that_waited_are_merged_whatever_their_rows(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    log.merger = log.new_merger(rows=1000)
    log.land(6)
    before = log.rows()
    log.merge()
    assert log.files() == ([], list(range(6)))
    monkeypatch.setattr(merging, "WAIT", 0.0)
    log.merge()
    assert log.files() == ([(0, 4)], [5])
    assert log.rows() == before


def test_wait_begins_with_the_second_segment_after_a_merge(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("sluice.pipeline.merging.time.monotonic", lambda: now[0])
    log.merger = log.new_merger(rows=1000)
    for end in (5, 10):
        now[0] += 10 * merging.WAIT  # only the last segment waits
        log.merge()
        log.land(5)
        log.merge()
        assert log.files()[1] == list(range(max(end - 6, 0), end))
        now[0] += merging.WAIT
        log.merge()
        assert log.files()[1] == [end - 1]


def test_log_with_little_traffic_has_few_files_and_writes_rows_seldom(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(merging, "WAIT", 0.0)
    log.merger = log.new_merger(rows=10_000)
    written = [0]

    def counted(*arguments: Any) -> Segment | None:
        made = merge(*arguments)
        written[0] += made.rows if made is not None else 0
        return made

    monkeypatch.setattr(merging, "merge", counted)
    log.land(1, 1)
    for _ in range(64):  # each makes a merged file of four rows
        log.land(4, 1)
        log.merge()
    assert log.files() == ([(0, 255)], [256])
    assert written[0] <= 256 * (1 + 6), "each merge of merged files at least doubles one"
    log.land(4, 1)
    log.merge()
    assert log.files() == ([(0, 255), (256, 259)], [260])
    assert len(log.rows()) == 261


def test_damaged_file_ends_the_merge_of_merged_files(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(merging, "WAIT", 0.0)
    log.merger = log.new_merger(rows=1000)
    log.land(5)
    log.merge()
    assert log.files()[0] == [(0, 3)]
    (path,) = (log.root / KEY / MERGED).iterdir()
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    for end in (7, 11, 15):
        log.land(4)
        log.merge()
        assert log.files()[0][0] == (0, 3)
        assert log.files()[0][-1][1] == end
    assert log.files()[0] == [(0, 3), (4, 11), (12, 15)]
    assert len([text for text in log.said if "is not merged" in text]) == 1


def test_large_segments_stay(log: MergedLog):
    for rows in (3, 30, 3, 3, 3, 3, 3, 3, 3, 30, 30, 3):
        log.land(1, rows)
    before = log.rows()
    log.merge()
    assert log.files() == ([(2, 8)], [0, 1, 9, 10, 11])
    assert log.rows() == before


def test_run_ends_at_a_gap_and_where_the_clock_went_back(log: MergedLog):
    log.land(4)
    log.at -= HOUR
    log.land(4)
    log.writer.number += 1
    log.land(8)
    before = read(log.landing, log.landing.listing(KEY).segments)
    log.merge()
    assert log.files()[0] == [(0, 3), (4, 7), (9, 15)]
    assert read(log.landing, log.landing.listing(KEY).segments) == before
    assert log.landing.listing(KEY).range(0, 17)[1] == [8]


def test_number_of_a_write_that_failed_is_merged_as_well(log: MergedLog):
    log.land(3)
    log.writer.write(deliveries(3, 4))  # published, and unknown to the merger
    log.land(6)
    log.merge()
    assert log.files()[0] == [(0, 6)]


def test_octets_in_memory_bound_a_merged_file(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    log.land(1)
    monkeypatch.setattr(
        merging, "RUN_MEMORY", merging._read(log.landing, log.written[0], log.writer.identity).nbytes * 5
    )
    log.land(12)
    before = log.rows()
    log.merge()
    assert log.files() == ([(0, 4), (5, 9)], [10, 11, 12])
    assert log.rows() == before


def operations(patch: pytest.MonkeyPatch, left: int) -> list[int]:
    """Let the process die before a step of the store. left: steps before it. Return a list that counts them."""
    done = [0]

    def killing(name: str) -> Any:
        method = getattr(LocalStore, name)

        def call(*arguments: Any) -> Any:
            if done[0] == left:
                raise Killed
            done[0] += 1
            return method(*arguments)

        return call

    for name in ("rename", "delete", "delete_folder", "_create"):
        patch.setattr(LocalStore, name, killing(name))
    return done


def crash_points() -> Iterator[int]:
    return iter(range(40))


def test_crash_at_any_step_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(merging, "RUN_FILES", 4)
    for left in crash_points():
        log = MergedLog(tmp_path / str(left), monkeypatch)
        log.land(13)
        before = log.rows()
        with monkeypatch.context() as patch:
            done = operations(patch, left)
            try:
                log.merge()
                assert done[0] < left + 1
                assert left > 20, "the merge has many steps"
                return
            except Killed:
                pass
        assert log.rows() == before
        log.landing.store.clear(KEY)
        log.merger = log.new_merger()
        log.merge()
        assert log.files() == ([(0, 7), (8, 11)], [12])
        assert log.rows() == before
    pytest.fail("the merge did not end")


@pytest.mark.parametrize("step", ["publish", "delete"])
def test_failing_disk_changes_nothing_and_the_merge_is_repeated(
    log: MergedLog, monkeypatch: pytest.MonkeyPatch, step: str
):
    log.land(9)
    before = log.rows()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, step, fail)
        with pytest.raises(OSError, match="No space left"):
            log.merge()
    assert log.rows() == before
    log.merge()
    assert log.files() == ([(0, 6)], [7, 8])
    assert log.rows() == before


def test_tasks_planned_before_a_merge_read_their_segments(log: MergedLog):
    log.land(9)
    planned = log.landing.listing(KEY).segments
    before = log.rows()
    log.merge()
    assert log.files()[1] == [7, 8]
    tables = []
    for task in (planned[::2], planned[1::2]):
        reader = SegmentReader(log.landing, NAMES, {KEY: log.writer.identity})
        tables += [row for segment in task for batch in reader.read(segment) for row in batch.to_pylist()]
    assert sorted(tables, key=lambda row: (row["segment"], row["ordinal"])) == before


def test_task_reads_a_merged_file_once(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    log.land(9)
    planned = log.landing.listing(KEY).segments
    log.merge()
    opened: list[object] = []
    parquet = pq.ParquetFile

    def counted(source: object, **options: Any) -> pq.ParquetFile:
        opened.append(source)
        return parquet(source, **options)

    monkeypatch.setattr("sluice.pipeline.reading.pq.ParquetFile", counted)
    reader = SegmentReader(log.landing, ["segment", "body"], {})
    for segment in planned[:7:2]:
        assert {each for batch in reader.read(segment) for each in batch["segment"].to_pylist()} == {segment.number}
    assert len([each for each in opened if f"/{MERGED}/" in str(each)]) == 1


def test_segment_that_was_deleted_and_not_merged_is_missing(log: MergedLog):
    log.land(9)
    log.landing.store.delete(log.written[8].path)
    log.merge()
    reader = SegmentReader(log.landing, NAMES, {})
    with pytest.raises(FileNotFoundError):
        list(reader.read(log.written[8]))
    file = log.landing.listing(KEY).segments[0]
    log.landing.store.delete(file.path)
    with pytest.raises(FileNotFoundError):
        list(reader.read(file))


def test_start_at_a_time_within_a_merged_file(log: MergedLog):
    log.land(9)
    times = [each.landed for each in log.written]
    expected = [first_since(log.landing, KEY, at + late) for at in times for late in (-1, 0, 1)]
    log.merge()
    assert log.files()[0] == [(0, 6)]
    assert [first_since(log.landing, KEY, at + late) for at in times for late in (-1, 0, 1)] == expected


def test_segments_of_a_merged_file_have_their_own_times_and_rows(log: MergedLog):
    log.land(8)
    log.merge()
    (part, _) = log.landing.listing(KEY).segments
    found = merged_segments(log.landing, part.part(2, 5))
    assert [(each.number, each.landed, each.rows) for each in found] == [
        (each.number, each.landed, 3) for each in log.written[2:5]
    ]


def test_merged_file_is_deleted_when_all_its_segments_are_read_and_old(log: MergedLog):
    log.land(9)
    log.merge()
    landed = [each.landed for each in log.written]
    log.landing.commit(Group("g", {KEY: 6}))
    assert delete_consumed_segments(log.landing, 0, at=landed[8] + 1) == []
    log.landing.commit(Group("g", {KEY: 8}))
    assert delete_consumed_segments(log.landing, 1, at=landed[6] + 999) == []
    (deleted,) = delete_consumed_segments(log.landing, 1, at=landed[6] + 1000)
    assert (deleted.number, deleted.span, deleted.rows) == (0, 7, 21)
    assert log.files() == ([], [7, 8])


def test_deletion_includes_covered_segments(log: MergedLog):
    log.merger = log.new_merger(grace=1000)
    log.land(9)
    log.merge()
    assert log.files() == ([(0, 6)], list(range(9)))
    assert [each.number for each in delete_beyond(log.landing, None, 0, at=log.at)] == [0, 7]
    assert log.files() == ([], [8])


def test_interrupted_deletion_of_a_merged_file_leaves_each_row_once(log: MergedLog, monkeypatch: pytest.MonkeyPatch):
    log.merger = log.new_merger(grace=1000)
    log.land(9)
    before = log.rows()
    log.merge()
    log.landing.commit(Group("g", {KEY: 8}))
    for left in range(7):
        with monkeypatch.context() as patch:
            operations(patch, 1)
            with pytest.raises(Killed):
                delete_consumed_segments(log.landing, 0, at=log.at + 1)
        assert log.rows() == before, left
    delete_consumed_segments(log.landing, 0, at=log.at + 1)
    assert log.files() == ([], [8])


def test_lag_of_a_reader_within_a_merged_file(log: MergedLog):
    log.land(8)
    log.merge()
    segments = log.landing.listing(KEY).segments
    whole, part = lag_of(segments, 0), lag_of(segments, 5)
    assert (whole.rows, part.rows, lag_of(segments, 8).rows) == (24, 9, 0)


def test_archive_has_merged_segments_by_hour_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = MergedLog(tmp_path / "landing", monkeypatch, step=HOUR // 3)
    into = tmp_path / "archive"
    log.land(2)
    log.landing.commit(Group("g", {KEY: 1}))
    monkeypatch.setattr(Landing, "delete", lambda *_: None)  # the process is killed before it deletes
    archive(log.landing, str(into), 0, at=log.at + HOUR)
    monkeypatch.undo()
    monkeypatch.setattr("sluice.pipeline.writer.now", log._now)
    log.land(7)
    before = log.rows()
    log.merge()
    log.landing.commit(Group("g", {KEY: 9}))
    assert archive(log.landing, str(into), 0, at=log.at + 10 * HOUR)[1] >= 3
    files = sorted(into.rglob("[0-9]*.parquet"))
    rows = pa.concat_tables([pq.ParquetFile(file).read() for file in files]).to_pylist()
    expected = [row for row in before if row["segment"] < 8]
    assert [(row["segment"], row["message"], row["landed_time"]) for row in rows] == [
        (row["segment"], row["message"], row["landed_time"]) for row in expected
    ]
    for file in files:
        hours = {
            row["landed_time"].strftime("date=%Y-%m-%d/hour=%H") for row in pq.ParquetFile(file).read().to_pylist()
        }
        assert hours == {f"{file.parent.parent.name}/{file.parent.name}"}


def flip(path: Path, octets: bytes) -> None:
    """Change one bit at these octets of a file."""
    content = bytearray(path.read_bytes())
    content[content.index(octets)] ^= 1
    path.write_bytes(content)


def test_damaged_segment_is_named_and_not_merged(log: MergedLog):
    log.land(5)
    batch = deliveries(3, 40)
    damaged = log.writer.write(batch)
    log.merger.add(damaged)
    log.land(9)
    flip(log.root / damaged.path, batch.messages[:40])
    log.merge()
    assert log.files() == ([(0, 4), (6, 12)], [5, 13, 14])
    assert len(log.said) == 1
    assert damaged.name in log.said[0]
    assert log.said[0].endswith("; it is not merged")


def test_segments_without_checksums_are_not_merged(log: MergedLog):
    log.land(9)
    path = log.root / log.written[0].path
    with pq.ParquetFile(path) as file:
        table, metadata = file.read(), dict(file.schema_arrow.metadata)
    del metadata[b"sluice.checksum"]
    pq.write_table(table.replace_schema_metadata(metadata), path)
    path.rename(path.with_name(log.written[0]._replace(octets=path.stat().st_size).name))
    log.merge()
    assert log.files() == ([(1, 7)], [0, 8])
    assert log.said == []


@pytest.mark.parametrize("name", ["segment", "landed_time"])
def test_damaged_merged_file_is_an_error(log: MergedLog, name: str):
    log.land(8)
    log.merge()
    (part, _) = log.landing.listing(KEY).segments
    assert verify_segment(log.landing, part)
    path = log.root / part.path
    with pq.ParquetFile(path) as file:
        metadata = file.metadata.row_group(0)
    column = next(each for each in map(metadata.column, range(8)) if each.path_in_schema == name)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(LandingError, match=f"{part.name} (is damaged|cannot be read)"):
        verify_segment(log.landing, part)


def test_merged_file_under_another_name_is_refused(log: MergedLog):
    log.land(8)
    log.merge()
    (part, _) = log.landing.listing(KEY).segments
    assert part.file is not None
    other = part.file._replace(first=0, last=5)
    os.rename(log.root / part.path, log.root / other.path)
    with pytest.raises(LandingError, match="has other segments than its name says"):
        read(log.landing, [other.whole()])


def test_truncated_merged_file_is_named(log: MergedLog):
    log.land(8)
    log.merge()
    (part, _) = log.landing.listing(KEY).segments
    os.truncate(log.root / part.path, 100)
    with pytest.raises(LandingError, match=rf"{part.name} has 100 octets instead of {part.octets}: it is damaged"):
        log.landing.listing(KEY)


def test_foreign_names_among_merged_files_are_shown(log: MergedLog):
    log.land(8)
    log.merge()
    for name in ("notes.txt", "000000000009-000000000005-1700000000000-1-1.parquet", "_hidden"):
        log.landing.store.publish(f"{KEY}/{MERGED}/{name}", b"x")
    assert log.landing.listing(KEY).foreign == [
        "merged/000000000009-000000000005-1700000000000-1-1.parquet",
        "merged/notes.txt",
    ]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=8))
def test_number_in_many_merged_files_counts_once(ranges: list[tuple[int, int]]):
    files = {MergedFile(KEY, first, first + more, START, 100, 100) for first, more in ranges}
    parts, covered = arrange(files)
    numbers = [number for part in parts for number in range(part.number, part.end)]
    assert numbers == sorted({number for file in files for number in range(file.first, file.last + 1)})
    assert len(parts) + len(covered) == len(files)
    assert {each.file for each in (*parts, *covered)} == files
    for first, _ in ranges:
        assert [number for part in clip(parts, first, first + 3) for number in range(part.number, part.end)] == [
            number for number in numbers if first <= number < first + 3
        ]


def test_merge_of_segments_of_another_log_is_refused(log: MergedLog):
    log.land(3)
    with pytest.raises(merging._UnreadableError, match="is of a log that was made anew"):
        merge(log.landing, log.written, "other")
    assert log.files() == ([], [0, 1, 2])


def test_merger_ends_between_two_segments(log: MergedLog):
    log.land(9)
    log.merger.stop.set()
    assert not log.merger.work(log.said.append)
    assert merge(log.landing, log.written, log.writer.identity, 2, lambda: True) is None
    assert log.files() == ([], list(range(9)))
