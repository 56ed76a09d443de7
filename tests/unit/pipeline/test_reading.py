"""Segments as record batches: columns in the wanted order, sizes of batches, and damaged files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.pipeline import columns
from sluice.pipeline.commands.bench import LOG, deliveries
from sluice.pipeline.errors import LandingError
from sluice.pipeline.reading import ROWS, read_segment, verify_segment
from sluice.pipeline.segments import CHECKSUM_KEY, Landing, Segment, schema
from sluice.pipeline.writer import SegmentWriter


@pytest.fixture
def landing(tmp_path):
    return Landing.create(str(tmp_path))


@pytest.fixture
def segment(landing):
    return SegmentWriter(landing, LOG, "l").write(deliveries(3, 4))


def segment_file(landing: Landing, segment: Segment) -> Path:
    return Path(landing.url) / segment.path


def rewrite(landing: Landing, segment: Segment, table: pa.Table, metadata: bool = True) -> None:
    """Replace the file of a segment, with the metadata of a lander or without."""
    path = segment_file(landing, segment)
    found = pq.read_schema(path).metadata
    pq.write_table(table.replace_schema_metadata(found if metadata else None), path)


def read(landing: Landing, segment: Segment, *names: str) -> pa.Table:
    return pa.Table.from_batches(list(read_segment(landing, segment, names)))


def test_columns_come_in_wanted_order(landing, segment):
    table = read(landing, segment, "segment", "body", "ordinal", "lander", "landed_time")
    assert table.schema.names == ["segment", "body", "ordinal", "lander", "landed_time"]
    assert table["segment"].to_pylist() == [segment.number] * 3
    assert table["ordinal"].to_pylist() == [0, 1, 2]
    assert set(table["lander"].to_pylist()) == {"bench"}
    assert {round(time.timestamp() * 1000) for time in table["landed_time"].to_pylist()} == {segment.landed}
    assert [len(body) for body in table["body"].to_pylist()] == [4, 4, 4]


def test_segment_without_stored_columns_has_all_rows(landing, segment):
    assert read(landing, segment, "segment").num_rows == 3


def test_segment_with_many_rows_comes_in_several_batches(landing):
    long = SegmentWriter(landing, LOG, "l").write(deliveries(ROWS + 1, 1))
    batches = list(read_segment(landing, long, ["segment", "ordinal"]))
    assert [batch.num_rows for batch in batches] == [ROWS, 1]


def test_long_messages_are_decoded_in_smaller_batches(landing, monkeypatch):
    written = SegmentWriter(landing, LOG, "l").write(deliveries(20, 1000))
    monkeypatch.setattr(columns, "DECODE_OCTETS_MAX", 5000)
    batches = list(read_segment(landing, written, ["body"]))
    assert sum(batch.num_rows for batch in batches) == 20
    assert max(batch.num_rows for batch in batches) < 5


def test_missing_segment_is_not_called_damaged(landing, segment):
    landing.store.delete(segment.path)
    with pytest.raises(FileNotFoundError):
        read(landing, segment, "body")


def test_file_that_is_no_parquet_is_damaged(landing, segment):
    segment_file(landing, segment).write_bytes(b"x" * segment.octets)
    with pytest.raises(LandingError, match=rf"{segment.name} is damaged: "):
        read(landing, segment, "body")


def test_file_of_another_program_is_refused(landing, segment):
    rewrite(landing, segment, schema().empty_table(), metadata=False)
    with pytest.raises(LandingError, match=segment.name):
        read(landing, segment, "body")


def test_segment_with_other_row_count_than_named_is_refused(landing, segment):
    rewrite(landing, segment, pq.read_table(segment_file(landing, segment)).slice(0, 2))
    with pytest.raises(LandingError, match="has 2 rows instead of 3"):
        read(landing, segment, "body")


def test_missing_column_is_named(landing, segment):
    rewrite(landing, segment, pq.read_table(segment_file(landing, segment)).drop(["ordinal"]))
    with pytest.raises(LandingError, match="has no column 'ordinal' of type "):
        read(landing, segment, "ordinal")


def test_column_of_another_type_is_named(landing, segment):
    table = pq.read_table(segment_file(landing, segment))
    texts = pa.array(["x"] * 3, pa.string())
    rewrite(landing, segment, table.set_column(table.schema.get_field_index("ordinal"), "ordinal", texts))
    with pytest.raises(LandingError, match="has no column 'ordinal' of type "):
        read(landing, segment, "ordinal")


def test_flipped_bit_is_an_error_or_has_no_effect(landing):
    segment = SegmentWriter(landing, LOG, "l").write(deliveries(3, 4))
    names = ["message", "address", "link", "arrived", "ordinal", "body", "message_id"]
    path = segment_file(landing, segment)
    whole, expected = path.read_bytes(), read(landing, segment, *names)
    errors: list[str] = []
    harmless = 0
    for bit in range(0, 8 * len(whole), 7):  # each octet, each time another bit
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert read(landing, segment, *names) == expected, f"bit {bit}"
            harmless += 1
        except LandingError as error:
            errors.append(str(error))
    assert len(errors) > harmless > 0
    assert all(segment.name in error for error in errors)


def test_segment_without_checksums_is_read(landing, segment):
    table = pq.read_table(segment_file(landing, segment))
    assert verify_segment(landing, segment)
    metadata = {key: value for key, value in table.schema.metadata.items() if key != CHECKSUM_KEY}
    pq.write_table(table.replace_schema_metadata(metadata), segment_file(landing, segment))
    assert read(landing, segment, "ordinal")["ordinal"].to_pylist() == [0, 1, 2]
    assert not verify_segment(landing, segment)
