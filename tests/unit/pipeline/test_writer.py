"""Segment numbers and staged octets of the writer, including failed writes."""

import os
import struct
from array import array
from typing import Any

import pyarrow.parquet as pq
import pytest

from sluice.pipeline.commands.bench import LOG, deliveries
from sluice.pipeline.retention import delete_consumed_segments
from sluice.pipeline.segments import Group, Landing, LandingLog, Segment, now
from sluice.pipeline.stores import LocalStore
from sluice.pipeline.writer import SegmentWriter
from tests.unit.pipeline.test_segments import publish_segments

DAY = 86_400_000  # ms


@pytest.fixture
def landing(tmp_path):
    return Landing.create(str(tmp_path))


def numbers(landing: Landing) -> list[int]:
    return [segment.number for segment in landing.listing(LOG.key).segments]


def test_landing_time_is_of_the_clock_after_it_was_ahead(landing):
    before = now()
    publish_segments(landing, 0, key=LOG.key, landed=before + DAY)
    segment = SegmentWriter(landing, LOG, "l").write(deliveries(3, 4))
    assert segment.number == 1
    assert before <= segment.landed <= now()


def test_retention_ends_in_time_after_the_clock_was_ahead(landing):
    at = now()
    for number, landed in enumerate([at, at + DAY, at + 1, at + 2, at + 3]):
        publish_segments(landing, number, key=LOG.key, landed=landed - number)
    landing.commit(Group("g", {LOG.key: 4}))
    assert [each.number for each in delete_consumed_segments(landing, 0, at=at + 1)] == [0, 1, 2]


def test_retention_leaves_no_hole_after_the_clock_went_back(landing):
    at = now()
    for number, landed in enumerate([at, at + 1, at - DAY, at + 2, at + 3]):
        publish_segments(landing, number, key=LOG.key, landed=landed - number)
    landing.commit(Group("g", {LOG.key: 4}))
    delete_consumed_segments(landing, DAY / 2000, at=at + 2)
    assert numbers(landing) == [0, 1, 2, 3, 4], "the first two are not older than the retention"
    delete_consumed_segments(landing, DAY / 2000, at=at + DAY)
    assert numbers(landing) == [4]


@pytest.mark.parametrize("published", [False, True])
def test_number_of_possibly_published_segment_is_not_reused(landing, monkeypatch, published):
    writer = SegmentWriter(landing, LOG, "l")
    writer.write(deliveries(3, 4))
    publish = LocalStore.publish

    def failing(self, path, octets, **options):
        if published:
            publish(self, path, octets, **options)  # synchronising the folder fails afterwards
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "publish", failing)
        with pytest.raises(OSError, match="no"):
            writer.write(deliveries(3, 4))
    writer.write(deliveries(3, 4))
    assert numbers(landing) == list(range(3 if published else 2))


def test_staged_octets_are_unread_by_some_group(landing):
    writer = SegmentWriter(landing, LOG, "l")
    made = [writer.write(deliveries(3, 4)) for _ in range(3)]
    assert writer.staged() == sum(segment.octets for segment in made)
    assert writer.oldest() == made[0].landed
    landing.commit(Group("a", {LOG.key: 3}))
    landing.commit(Group("b", {LOG.key: 2}))
    assert writer.staged() == made[2].octets
    landing.commit(Group("b", {LOG.key: 3}))
    assert (writer.staged(), writer.oldest()) == (0, None)
    assert SegmentWriter(landing, LOG, "l").number == 3


def codecs_of(landing: Landing, segment: Segment) -> set[str]:
    with landing.store.open(segment.path) as file:
        row_group = pq.ParquetFile(file).metadata.row_group(0)
        return {row_group.column(index).compression for index in range(row_group.num_columns)}


def deliveries_of(message: bytes, rows: int) -> Any:
    batch = deliveries(rows, len(message))
    batch.messages = message * rows
    batch.octets = len(batch.messages)
    batch.offsets = array("i", [len(message) * row for row in range(rows + 1)])
    return batch


@pytest.mark.parametrize("rows", [1, 3000])
def test_random_messages_are_stored_uncompressed(landing, rows):
    batch = deliveries(rows, 100)
    segment = SegmentWriter(landing, LOG, "l").write(batch)
    assert codecs_of(landing, segment) == {"UNCOMPRESSED"}
    with landing.store.open(segment.path) as file:
        assert b"".join(pq.read_table(file)["message"].to_pylist()) == batch.messages


@pytest.mark.parametrize("rows", [1, 3000])
def test_repetitive_messages_are_compressed(landing, rows):
    batch = deliveries_of(b"\x00\x53\x75\xa0\x60" + b"temperature=20 " * 6, rows)
    segment = SegmentWriter(landing, LOG, "l").write(batch)
    assert codecs_of(landing, segment) == {"ZSTD"}
    assert segment.octets < batch.octets + 2000


def test_segments_of_any_length_have_their_own_ordinals_and_address(landing):
    writer = SegmentWriter(landing, LOG, "l")
    for rows in (3, 1, 7, 5000, 2):
        segment = writer.write(deliveries(rows, 4))
        with landing.store.open(segment.path) as file:
            table = pq.read_table(file)
        assert table["ordinal"].to_pylist() == list(range(rows))
        assert set(table["address"].to_pylist()) == {LOG.address}
        assert set(table["link"].to_pylist()) == {"l"}


@pytest.mark.parametrize("address", ["a", "a" * 200])
@pytest.mark.parametrize("size", [0, 1, 300, 3 << 20])
def test_segment_fits_in_its_output_memory(landing, size, address):
    rows = 3 if size > 1 << 20 else 100_000
    batch = deliveries_of(b"", rows)
    batch.messages = os.urandom(size * rows)
    batch.octets = len(batch.messages)
    batch.offsets = array("i", [size * row for row in range(rows + 1)])
    batch.arrived = os.urandom(8 * rows)  # differences of times do not shrink either
    segment = SegmentWriter(landing, LandingLog("bench", address), "l").write(batch)
    with landing.store.open(segment.path) as file:
        stored = pq.read_table(file, columns=["message"])["message"]
    assert b"".join(stored.to_pylist()) == batch.messages


def test_empty_messages_are_written(landing):
    batch = deliveries(3, 4)
    batch.messages, batch.octets, batch.offsets = b"", 0, struct.pack("=4i", 0, 0, 0, 0)
    assert SegmentWriter(landing, LOG, "l").write(batch).rows == 3
