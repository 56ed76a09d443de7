"""Batches that a stream plans, driven as Spark does, without Spark."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from sluice.pipeline.errors import DataLossError, LandingError
from sluice.pipeline.options import source_options
from sluice.pipeline.segments import Landing, LandingLog, MergedFile, Segment, now
from sluice.pipeline.source import BatchReader, SegmentBin, StreamReader
from sluice.pipeline.stores import LocalStore

START = 1_700_000_000_000
WINDOW = 5_000  # ms
Entries = tuple[list[tuple[str, int]], list[str]]


class SparkDriver:
    """Caller of a reader's methods in Spark's order, with offsets that were JSON."""

    def __init__(self, landing: Landing, rows: int = 10, **options: str) -> None:
        self.options = {"path": landing.url, "deleteOnCommit": "true", "retentionMinutes": "0", **options}
        self.limit: ReadLimit = ReadMaxRows(rows)
        self.restart()
        self.offset = self.reader.initialOffset()

    def restart(self) -> None:
        self.reader = StreamReader(source_options(self.options, stream=True), ["message"])

    def batch(self) -> list[SegmentBin]:
        """Plan a batch; return its tasks, none if there is nothing to read."""
        start = json.loads(json.dumps(self.offset))
        end = self.reader.latestOffset(start, self.limit)
        if json.dumps(end) == json.dumps(start):
            return []
        bins = [each for each in self.reader.partitions(start, end) if isinstance(each, SegmentBin)]
        self.offset = end
        return bins

    def batches(self) -> list[list[SegmentBin]]:
        found = []
        while batch := self.batch():
            found.append(batch)
        return found


def land(landing: Landing, log: LandingLog, *landed: int, rows: int = 5, first: int = 0) -> list[Segment]:
    """Publish segments without content, and return them."""
    landing.store.make_folder(log.key)
    made = [Segment(log.key, first + number, START + time, rows, 1) for number, time in enumerate(landed)]
    for segment in made:
        path = Path(landing.url) / segment.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    return made


def delete(landing: Landing, segment: Segment) -> None:
    landing.store.delete(segment.path)


def places(batch: list[SegmentBin]) -> list[tuple[str, int]]:
    return [(segment.log, segment.number) for each in batch for segment in each.segments]


@pytest.fixture(scope="module", autouse=True)
def _without_fsync() -> Iterator[None]:
    """Leave out syncs of files: examples of Hypothesis write hundreds of folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing.create(str(tmp_path / "landing"))


A, B = LandingLog("one", "a"), LandingLog("two", "b")


def test_batch_time_never_goes_back_also_after_a_restart(landing: Landing):
    land(landing, A, 0, 9000, 1000, 2000)
    driver = SparkDriver(landing, 5)
    times = []
    while batch := driver.batch():
        times.append(batch[0].batch_time - START)
        driver.restart()
    assert times == [0, 9000, 9000, 9000]


def test_batch_time_is_not_ahead_of_the_clock(landing: Landing):
    before = now()
    land(landing, A, before - START + 86_400_000)
    (batch,) = SparkDriver(landing).batches()
    assert before <= batch[0].batch_time <= now()


def test_checkpoint_without_batch_time_begins_with_the_clock(landing: Landing):
    land(landing, A, 0, 1)
    driver = SparkDriver(landing, 5)
    driver.offset = {A.key: 1}
    before = now()
    (batch,) = driver.batches()
    assert before <= batch[0].batch_time <= now()
    assert driver.batches() == []


def test_trigger_without_segments_returns_the_same_offset(landing: Landing):
    land(landing, A, 0)
    driver = SparkDriver(landing)
    assert len(driver.batches()) == 1
    for offset in (driver.offset, {A.key: 1}):
        assert driver.reader.latestOffset(dict(offset), driver.limit) == offset


def test_run_to_the_target_waits_at_a_hole(landing: Landing, monkeypatch: pytest.MonkeyPatch):
    made = land(landing, A, 0, 1, 2)
    delete(landing, made[1])
    driver = SparkDriver(landing)
    driver.reader.prepareForTriggerAvailableNow()
    assert places(driver.batch()) == [(A.key, 0)]
    land(landing, A, 3, first=3)
    monkeypatch.setattr(time, "sleep", lambda _: land(landing, A, 1, first=1))
    assert places(driver.batch()) == [(A.key, 1), (A.key, 2)]
    assert driver.batch() == [], "segment 3 landed after the start of this run"


@pytest.mark.parametrize("behind", [3, 50])
def test_run_to_the_target_fails_at_a_hole_that_stays(landing: Landing, behind: int):
    made = land(landing, A, *range(behind))
    for segment in made[1:-1]:
        delete(landing, segment)
    driver = SparkDriver(landing, holeTimeoutMs="300")
    driver.reader.prepareForTriggerAvailableNow()
    assert places(driver.batch()) == [(A.key, 0)]
    missing = "1" if behind == 3 else "1-48"
    with pytest.raises(DataLossError, match=f"log one/a has no segments {missing}; the messages may be lost"):
        driver.batch()


def test_run_to_the_target_skips_a_hole_if_loss_is_allowed(landing: Landing):
    delete(landing, land(landing, A, 0, 1, 2)[1])
    driver = SparkDriver(landing, holeTimeoutMs="300", failOnDataLoss="false")
    driver.reader.prepareForTriggerAvailableNow()
    assert [places(batch) for batch in driver.batches()] == [[(A.key, 0)], [(A.key, 2)]]


def test_hole_behind_the_target_does_not_hold_the_run(landing: Landing):
    land(landing, A, 0)
    driver = SparkDriver(landing)
    driver.reader.prepareForTriggerAvailableNow()
    land(landing, A, 2, first=2)
    assert [places(batch) for batch in driver.batches()] == [[(A.key, 0)]]


def test_stream_at_a_hole_reads_what_landed_before_it(landing: Landing):
    delete(landing, land(landing, A, 0, 2, 4)[1])
    land(landing, B, 1, 3, 5)
    driver = SparkDriver(landing, 100)
    assert sorted(place for batch in driver.batches() for place in places(batch)) == [
        (A.key, 0),
        (B.key, 0),
        (B.key, 1),
    ]


def test_backlog_counts_segments_behind_a_hole(landing: Landing):
    made = land(landing, A, *range(10))
    delete(landing, made[4])
    driver = SparkDriver(landing, 10)
    driver.batch()
    report = driver.reader.reportLatestOffset()
    assert report is not None
    assert report[A.key] == 10
    lag = report["lag"]
    assert (lag["segments"], lag["rows"], lag["octets"]) == (7, 35, 7)
    assert 0 <= now() - made[2].landed - lag["ms"] < 10_000


@pytest.mark.parametrize("offset", [{"batch_time": "x"}, {"batch_time": None, "one/a": 1}, {"other": 1}])
def test_offset_of_another_source_is_refused(landing: Landing, offset: dict[str, Any]):
    with pytest.raises(LandingError, match="the checkpoint has offsets of another source"):
        SparkDriver(landing).reader.latestOffset(offset, ReadMaxRows(1))


class WatermarkDeduplication:
    """Model of dropDuplicatesWithinWatermark: state that is evicted, and rows that are late, by the previous batch."""

    def __init__(self) -> None:
        self.expiry: dict[int, int] = {}  # ms, by message id
        self.watermark = 0
        self.latest = 0

    def add(self, time: int, ids: list[int]) -> list[int]:
        """Return the ids of a batch that are kept."""
        self.watermark = max(self.watermark, self.latest - WINDOW)
        kept = []
        for each in ids:
            if time <= self.watermark:
                continue
            if each not in self.expiry:
                self.expiry[each] = time + WINDOW
                kept.append(each)
        self.latest = max(self.latest, time)
        self.expiry = {each: until for each, until in self.expiry.items() if until > self.watermark}
        return kept


#: Landing times of the segments of a log: a first time (clock skew), and the distances of the segments (rate).
LOGS = st.lists(st.tuples(st.integers(0, 60_000), st.lists(st.integers(0, 8_000), max_size=12)), min_size=1, max_size=4)


@settings(max_examples=50, deadline=None)
@given(LOGS, st.integers(1, 40), st.booleans(), st.data())
def test_deduplication_keeps_each_message_of_unequal_logs_once(
    tmp_path_factory: pytest.TempPathFactory,
    logs: list[tuple[int, list[int]]],
    rows: int,
    live: bool,
    data: st.DataObject,
):
    """Segments have 5 messages. Messages are distinct, whatever rates, clocks and limits are."""
    landing = Landing.create(str(tmp_path_factory.mktemp("landing")))
    pending = []
    for index, (skew, steps) in enumerate(logs):
        landed, log = skew, LandingLog("l", str(index))
        for number, step in enumerate(steps):
            landed += step
            pending.append((log, number, landed))
    expected = {(log.key, number) for log, number, _ in pending}
    model, driver = WatermarkDeduplication(), None
    kept: list[int] = []
    place_ids = {place: index for index, place in enumerate(sorted(expected))}
    for log, number, landed in pending:
        land(landing, log, landed, first=number)
        if live and data.draw(st.booleans()):
            driver = driver or SparkDriver(landing, rows)
            kept += read_all(driver, model, place_ids, 1)
    driver = driver or SparkDriver(landing, rows)
    kept += read_all(driver, model, place_ids, None)
    assert sorted(kept) == list(range(len(expected)))


def read_all(
    driver: SparkDriver, model: WatermarkDeduplication, place_ids: dict[tuple[str, int], int], most: int | None
) -> list[int]:
    """Read at most so many batches; return the ids that the model keeps."""
    kept = []
    while most is None or most > 0:
        batch = driver.batch()
        if not batch:
            break
        places = [place_ids[each.log, each.number] for part in batch for each in part.segments]
        kept += model.add(batch[0].batch_time, places)
        most = None if most is None else most - 1
    return kept


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=15), st.integers(1, 20), st.integers(0, WINDOW))
def test_deduplication_drops_repetitions_that_land_within_the_window(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], rows: int, distance: int
):
    """A second lander lands every segment again, at most the window later."""
    landing = Landing.create(str(tmp_path_factory.mktemp("landing")))
    landed = 0
    ids: dict[tuple[str, int], int] = {}
    for number, step in enumerate(steps):
        landed += step
        for log, at in ((A, landed), (B, landed + distance)):
            land(landing, log, at, first=number)
            ids[log.key, number] = number
    kept = read_all(SparkDriver(landing, rows), WatermarkDeduplication(), ids, None)
    assert sorted(kept) == list(range(len(steps)))


def test_known_segments_are_planned_without_listing(landing: Landing, monkeypatch: pytest.MonkeyPatch):
    land(landing, A, 0, 1, 2)
    driver = SparkDriver(landing, 15)
    start = dict(driver.offset)
    end = driver.reader.latestOffset(start, driver.limit)
    listed: list[str] = []
    entries = LocalStore.entries

    def spy(store: LocalStore, folder: str, first: str = "") -> Entries:
        listed.append(folder)
        return entries(store, folder, first)

    monkeypatch.setattr(LocalStore, "entries", spy)
    bins = [each for each in driver.reader.partitions(start, end) if isinstance(each, SegmentBin)]
    assert places(bins) == [(A.key, 0), (A.key, 1), (A.key, 2)]
    assert listed == []
    driver.restart()
    bins = [each for each in driver.reader.partitions(start, end) if isinstance(each, SegmentBin)]
    assert places(bins) == [(A.key, 0), (A.key, 1), (A.key, 2)], "a batch that is repeated after a restart is the same"
    assert listed == [A.key, f"{A.key}/000000000"]


def test_stream_waits_for_the_least_number_of_rows(tmp_path: Path) -> None:
    landing = Landing.create(str(tmp_path))
    log = LandingLog("one", "a")
    land(landing, log, 0)
    driver = SparkDriver(landing, 100, minOffsetsPerTrigger="12", maxTriggerDelay="1h")
    assert numbers(driver.batch()) == [0], "the first batch does not wait"
    land(landing, log, 10, 20, first=1)
    assert driver.batch() == []
    land(landing, log, 30, first=3)
    assert numbers(driver.batch()) == [1, 2, 3]


def test_stream_with_few_rows_ends_its_wait_after_the_delay(tmp_path: Path) -> None:
    landing = Landing.create(str(tmp_path))
    log = LandingLog("one", "a")
    land(landing, log, 0)
    driver = SparkDriver(landing, 100, minOffsetsPerTrigger="12", maxTriggerDelay="0s")
    assert numbers(driver.batch()) == [0]
    land(landing, log, 10, first=1)
    assert numbers(driver.batch()) == [1]


def test_run_with_available_now_does_not_wait_for_rows(tmp_path: Path) -> None:
    landing = Landing.create(str(tmp_path))
    land(landing, LandingLog("one", "a"), 0, 10, 20)
    driver = SparkDriver(landing, 5, minOffsetsPerTrigger="1000", maxTriggerDelay="1h")
    driver.reader.prepareForTriggerAvailableNow()
    assert [numbers(each) for each in driver.batches()] == [[0], [1], [2]]


def numbers(bins: list[SegmentBin]) -> list[int]:
    return sorted(segment.number for each in bins for segment in each.segments)


def test_batch_reader_reads_landing_times_of_addresses(tmp_path: Path) -> None:
    landing = Landing.create(str(tmp_path))
    for address in ("a", "b"):
        land(landing, LandingLog("one", address), 0, 10, 20, 30)

    def read(**options: str) -> dict[str, list[int]]:
        reader = BatchReader(source_options({"path": landing.url, **options}, stream=False), ["message"])
        found: dict[str, list[int]] = {"one/a": [], "one/b": []}
        for each in reader.partitions():
            assert isinstance(each, SegmentBin)
            for segment in each.segments:
                found[segment.log].append(segment.number)
        return {log: sorted(each) for log, each in found.items()}

    assert read(startingTimestamp=str(START + 10), endingTimestamp=str(START + 30)) == {
        "one/a": [1, 2],
        "one/b": [1, 2],
    }
    times = json.dumps({"a": START + 15})
    assert read(startingOffsetsByTimestamp=times) == {"one/a": [2, 3], "one/b": [0, 1, 2, 3]}
    assert read(endingOffsetsByTimestamp=times) == {"one/a": [0, 1], "one/b": [0, 1, 2, 3]}
    assert read(endingTimestamp="2030-01-01T00:00:00Z")["one/a"] == [0, 1, 2, 3]


def merge_files(landing: Landing, key: str, first: int, last: int, *, delete: bool) -> None:
    """Publish a merged file without content for the numbers `first` to `last`, and delete what it covers if wanted."""
    parts = landing.listing(key).range(first, last + 1)[0]
    rows = sum(each.rows for each in parts)
    file = MergedFile(key, first, last, max(each.landed for each in parts), rows, 1)
    landing.store.publish(file.path, b"x")
    if delete:
        landing.delete(landing.listing(key).covered)


def planned_numbers(bins: list[SegmentBin]) -> list[int]:
    """Return the numbers of the segments that tasks read."""
    return sorted(number for each in bins for part in each.segments for number in range(part.number, part.end))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["batch", "restart", "commit"]),
            st.integers(1, 6),
            st.tuples(st.integers(0, 1000), st.integers(1, 12), st.booleans()),
        ),
        max_size=40,
    )
)
def test_stream_reads_each_segment_once_while_others_are_merged(steps: list[Any]):
    """A number is a step that lands so many segments, a tuple one that merges some. A batch takes two segments."""
    with TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.pipeline.stores.os.fsync", lambda _: None)
        patch.setattr("sluice.pipeline.segments.SEGMENTS_OF_FOLDER", 4)
        patch.setattr("sluice.pipeline.unread.FAR_BEHIND", 2)
        patch.setattr("sluice.pipeline.unread.LATER_EVERY", 0)
        landing = Landing.create(path)
        log = LandingLog("l", "a")
        driver = SparkDriver(landing, rows=12, startingOffsets="earliest")
        landed = 0
        found: list[int] = []
        for step in [*steps, "batch", *["batch"] * 30]:
            if isinstance(step, int):
                land(landing, log, *range(landed, landed + step), first=landed)
                landed += step
            elif step == "restart":
                driver.restart()
            elif step == "commit":
                driver.reader.commit(driver.offset)
            elif step == "batch":
                start = driver.offset
                bins = driver.batch()
                found += planned_numbers(bins)
                if bins:  # Spark plans the last batch again after a restart
                    again = StreamReader(driver.reader.options, ["message"]).partitions(start, driver.offset)
                    tasks = [each for each in again if isinstance(each, SegmentBin)]
                    assert planned_numbers(tasks) == planned_numbers(bins)
            else:
                there, count, delete = step
                segments = landing.listing(log.key).segments[:-1]  # the last segment is never merged
                if segments:
                    first = segments[there % len(segments)].number
                    merge_files(landing, log.key, first, min(first + count, landed - 1) - 1, delete=delete)
        assert found == list(range(landed))


def test_stream_far_behind_reads_merged_files(landing: Landing, monkeypatch: pytest.MonkeyPatch):
    log = LandingLog("l", "a")
    land(landing, log, *range(300))
    driver = SparkDriver(landing, rows=100)
    first = driver.batch()
    assert sum(len(each.segments) for each in first) == 20
    merge_files(landing, log.key, 0, 99, delete=True)
    merge_files(landing, log.key, 100, 249, delete=True)
    monkeypatch.setattr("sluice.pipeline.unread.time.monotonic", lambda: time.perf_counter() + 10**9)
    parts = [part for batch in driver.batches() for each in batch for part in each.segments]
    assert [(part.number, part.end) for part in parts[:2]] == [(20, 100), (100, 250)]
    assert [number for part in parts for number in range(part.number, part.end)] == list(range(20, 300))


def test_planning_lists_merged_files_once(landing: Landing, monkeypatch: pytest.MonkeyPatch):
    log = LandingLog("l", "a")
    land(landing, log, *range(9))
    merge_files(landing, log.key, 0, 4, delete=True)
    driver = SparkDriver(landing, rows=1000)
    driver.batches()
    land(landing, log, 100, first=9)
    listed: list[str] = []
    entries = LocalStore.entries

    def spy(store: LocalStore, folder: str, first: str = "") -> Entries:
        listed.append(folder)
        return entries(store, folder, first)

    monkeypatch.setattr(LocalStore, "entries", spy)
    driver.batches()
    assert [each for each in listed if each.startswith("l/a/")] == ["l/a/000000000"] * 2
