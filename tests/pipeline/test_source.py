"""Landing folders as Spark tables and streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException

from sluice.pipeline import columns
from sluice.pipeline.identity import split_offset
from sluice.pipeline.segments import FORMAT_KEY, Group, Landing, LandingLog, Segment, now
from sluice.router.client.message import Message
from tests.pipeline.conftest import need_stream_reader
from tests.pipeline.segments import ARRIVED, land, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

A, B = LandingLog("one", "a"), LandingLog("two", "b/c")


class TableQuery:
    """Streaming query from a landing folder into a Parquet table, with a checkpoint beside the table."""

    def __init__(self, spark: SparkSession, landing: Landing, folder: Path) -> None:
        self.spark = spark
        self.landing = landing
        self.out = folder / "table"
        self.checkpoint = folder / "checkpoint"

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Run the query on all available segments; return the progress of its batches."""
        stream = self.spark.readStream.format("amqp").options(**options).load(self.landing.url)
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.out))
        )
        try:
            assert query.awaitTermination(60), query.lastProgress
        finally:
            query.stop()
        return [json.loads(each.json) for each in query.recentProgress if each.numInputRows]

    def bodies(self) -> list[int]:
        rows = self.spark.read.parquet(str(self.out)).select("body").collect()
        return sorted(int(bytes(row.body)) for row in rows)


@pytest.fixture
def table(spark: SparkSession, landing: Landing, tmp_path: Path) -> TableQuery:
    need_stream_reader()
    return TableQuery(spark, landing, tmp_path)


def read(spark: SparkSession, landing: Landing, **options: Any) -> DataFrame:
    return spark.read.format("amqp").options(**options).load(landing.url)


def bodies(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.body)) for row in frame.select("body").collect())


def land_tens(landing: Landing, segments: int = 2, log: LandingLog = A) -> list[int]:
    """Land segments of ten messages each, and return the numbers in their bodies."""
    for number in range(segments):
        land(landing, log, number, numbered(10 * number, 10), landed=1000 * (number + 1))
    return list(range(10 * segments))


# -- batches -----------------------------------------------------------------------------------------------------------


def test_row_has_fields_of_the_message(spark: SparkSession, landing: Landing):
    message = Message(b"x", message_id=5, subject="s", creation_time=1000, durable=True, properties={"a": 1, "b": None})
    land(landing, B, 0, [message], landed=2000)
    rows = read(spark, landing, decode="full", includeHeaders="true").collect()
    (found,) = [{name: value for name, value in row.asDict().items() if value is not None} for row in rows]
    assert found.pop("creation_time").timestamp() == 1
    assert found.pop("landed_time").timestamp() == 2
    assert found.pop("batch_time").timestamp() == 2
    assert found.pop("arrived").timestamp() == ARRIVED.timestamp()
    assert found == {
        "address": "b/c", "link": "link", "ordinal": 0, "lander": "two", "segment": 0, "message_id": "ul:5",
        "subject": "s", "durable": True, "body": bytearray(b"x"), "body_kind": "data",
        "application_properties": {"a": "1", "b": None},
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["raw", "body", "full"])
def test_decode_mode_selects_the_columns(spark: SparkSession, landing: Landing, mode: str):
    octets = Message(b"x", message_id="m").encode()
    land(landing, A, 0, [octets])
    frame = read(spark, landing, decode=mode)
    assert frame.columns == columns.columns_of_mode(mode, False)
    (row,) = frame.collect()
    assert bytes(row.message if mode == "raw" else row.body) == (octets if mode == "raw" else b"x")


def test_option_selects_the_columns_to_decode(spark: SparkSession, landing: Landing):
    land(landing, A, 0, [Message(b"x", message_id="m", subject="s").encode()])
    frame = read(spark, landing, decode="full", columns="subject, segment, batch_time, message_id")
    assert frame.columns == ["subject", "segment", "batch_time", "message_id"]
    (row,) = frame.collect()
    assert (row.subject, row.segment, row.message_id, row.batch_time.timestamp()) == ("s", 0, "m", 1_767_323_045)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW two USING amqp OPTIONS (path '{landing.url}', columns 'body,ordinal')")
    assert [tuple(row) for row in spark.sql("SELECT ordinal FROM two").collect()] == [(0,)]


def test_columns_that_are_not_there_are_named(spark: SparkSession, landing: Landing):
    with pytest.raises(PySparkException, match="option columns: decode=body has no column 'subject'; it has address"):
        read(spark, landing, columns="body,subject")
    reader = spark.read.format("amqp").option("columns", "body").schema("body binary, ordinal int")
    with pytest.raises(PySparkException, match="option columns: a schema is given as well"):
        reader.load(landing.url).collect()


def test_schema_of_reader_selects_columns(spark: SparkSession, landing: Landing):
    octets = Message(b"x", message_id="m").encode()
    land(landing, A, 0, [octets])
    frame = spark.read.format("amqp").schema("segment bigint, message_id string, message binary").load(landing.url)
    assert [tuple(row) for row in frame.collect()] == [(0, "m", octets)]
    (row,) = spark.read.format("amqp").schema("batch_time timestamp").load(landing.url).collect()
    assert row.batch_time.timestamp() == 1_767_323_045


@pytest.mark.parametrize(
    ("schema", "text"),
    [("colour string", "there is no column 'colour'"), ("priority string", "column 'priority' is bigint, not string")],
)
def test_wrong_schema_is_reported(spark: SparkSession, landing: Landing, schema: str, text: str):
    with pytest.raises(PySparkException, match=text):
        spark.read.format("amqp").schema(schema).load(landing.url).collect()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {0, 1, 2}),
        ({"startingOffsets": '{"one/a": 2}'}, {2}),
        ({"startingOffsets": '{"one/a": 1}', "endingOffsets": '{"one/a": 2}'}, {1}),
        ({"startingTimestamp": "2000"}, {1, 2}),
        ({"startingTimestamp": "9000"}, set()),
        ({"subscribe": "a"}, {0, 1, 2}),
        ({"subscribe": "a2, b"}, set()),
        ({"subscribePattern": "[ab]"}, {0, 1, 2}),
        ({"subscribePattern": "b.*"}, set()),
        ({"minPartitions": "1"}, {0, 1, 2}),
    ],
)
def test_options_select_segments(spark: SparkSession, landing: Landing, options: dict[str, str], expected: set[int]):
    land_tens(landing, 3)
    assert {int(n / 10) for n in bodies(read(spark, landing, **options))} == expected


# -- streams -----------------------------------------------------------------------------------------------------------


def test_stream_reads_present_and_later_segments(table: TableQuery):
    expected = land_tens(table.landing)
    table.run()
    assert table.bodies() == expected
    land(table.landing, A, 2, numbered(20, 10))
    land(table.landing, B, 0, numbered(30, 5))
    table.run()
    assert table.bodies() == list(range(35)), "the checkpoint goes on, and a new log is read from its start"


@pytest.mark.long
def test_record_limit_keeps_whole_segments(table: TableQuery):
    land_tens(table.landing, 5)
    progress = table.run(maxRecordsPerTrigger="25")
    assert [each["numInputRows"] for each in progress] == [20, 20, 10], "whole segments"
    lag = progress[0]["sources"][0]["latestOffset"]
    assert lag["one/a"] == 5
    assert (lag["lag"]["segments"], lag["lag"]["rows"]) == (3, 30)


@pytest.mark.long
def test_octet_limit_reads_at_least_one_segment(table: TableQuery):
    land_tens(table.landing, 3)
    progress = table.run(maxBytesPerTrigger="1")
    assert [each["numInputRows"] for each in progress] == [10, 10, 10], "one segment at least"


@pytest.mark.long
def test_logs_are_read_by_landing_time(table: TableQuery):
    land_tens(table.landing, 6)
    land(table.landing, B, 0, numbered(60, 10), landed=2500)
    progress = table.run(maxRecordsPerTrigger="30")
    ends = [split_offset(each["sources"][0]["endOffset"])[0] for each in progress]
    assert ends == [
        {"one/a": 2, "two/b%2Fc": 1, "batch_time": 2500},
        {"one/a": 5, "two/b%2Fc": 1, "batch_time": 5000},
        {"one/a": 6, "two/b%2Fc": 1, "batch_time": 6000},
    ]


@pytest.mark.long
def test_stream_from_latest_reads_new_segments_only(table: TableQuery):
    land_tens(table.landing)
    table.run(startingOffsets="latest")
    land(table.landing, A, 2, numbered(20, 10))
    table.run(startingOffsets="latest")
    assert table.bodies() == list(range(20, 30))


@pytest.mark.long
def test_hole_after_timeout_fails_or_is_skipped(table: TableQuery):
    land_tens(table.landing, 4)
    listing = table.landing.listing(A.key)
    table.landing.store.delete(listing.segments[1].path)
    with pytest.raises(PySparkException, match="log one/a has no segments 1; the messages may be lost"):
        table.run(holeTimeoutMs="0")
    table.run(holeTimeoutMs="0", failOnDataLoss="false")
    assert table.bodies() == [*range(10), *range(20, 40)]


@pytest.mark.long
def test_run_at_a_hole_fails_each_time_until_it_is_filled(table: TableQuery):
    land_tens(table.landing, 3)
    listing = table.landing.listing(A.key)
    octets = table.landing.store.read(listing.segments[1].path)
    table.landing.store.delete(listing.segments[1].path)
    for _ in range(2):
        with pytest.raises(PySparkException, match="log one/a has no segments 1; the messages may be lost"):
            table.run(holeTimeoutMs="1000")
        assert table.bodies() == list(range(10)), "segments behind the hole wait"
    table.landing.store.publish(listing.segments[1].path, octets)
    table.run()
    assert table.bodies() == list(range(30))


@pytest.mark.long
def test_recreated_folder_is_refused(table: TableQuery):
    land_tens(table.landing, 3)
    table.run()
    for segment in table.landing.listing(A.key).segments:
        table.landing.store.delete(segment.path)
    land_tens(table.landing, 1)
    with pytest.raises(PySparkException, match="was the log made anew"):
        table.run()


@pytest.mark.long
def test_offsets_of_another_source_are_refused(table: TableQuery):
    land_tens(table.landing)
    table.run()
    last = sorted((table.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))[-1]
    last.write_text(last.read_text().rsplit("\n", 1)[0] + '\n{"partition-0": "x"}')
    (table.checkpoint / "offsets" / f".{last.name}.crc").unlink(missing_ok=True)
    land(table.landing, A, 2, numbered(20, 10))
    with pytest.raises(PySparkException, match="offsets of another source"):
        table.run()


# -- groups and what is deleted ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_slowest_group_keeps_segments(table: TableQuery):
    land_tens(table.landing, 4)
    table.landing.commit(Group("slow", {A.key: 1}))
    table.run(maxRecordsPerTrigger="10", deleteOnCommit="true", retentionMinutes="0", group="fast")
    found = {group.name: group.offsets for group in table.landing.groups()}
    assert found["slow"] == {A.key: 1}
    assert found["fast"][A.key] >= 3, "all batches but the last are committed"
    assert [each.number for each in table.landing.listing(A.key).segments] == [1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("options", [{"deleteOnCommit": "true"}, {"retentionMinutes": "0"}])
def test_segments_are_kept_without_retention(table: TableQuery, options: dict[str, str]):
    for number in range(4):
        land(table.landing, A, number, numbered(10 * number, 10), landed=now())
    table.run(maxRecordsPerTrigger="10", **options)
    assert len(table.landing.listing(A.key).segments) == 4


@pytest.mark.long
def test_groups_read_all_segments_each(spark: SparkSession, landing: Landing, tmp_path: Path):
    need_stream_reader()
    for number in range(3):
        land(landing, A, number, numbered(10 * number, 10), landed=now())
    for name in ("one", "two"):
        table = TableQuery(spark, landing, tmp_path / name)
        table.run(group=name, maxRecordsPerTrigger="10", retentionMinutes="60")
        assert table.bodies() == list(range(30))


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "a,,b"}, "option subscribe"),
        ({"subscribePattern": "("}, "option subscribePattern"),
        ({"subscribe": "a", "subscribePattern": "a"}, "options subscribe and subscribePattern"),
        ({"startingOffsets": "first"}, "option startingOffsets"),
        ({"startingOffsets": '{"a": 1}'}, "option startingOffsets: 'a' is not a log"),
        ({"startingOffsets": '{"one/a": "x"}'}, "option startingOffsets"),
        ({"startingOffsets": "latest"}, "option startingOffsets"),
        ({"endingOffsets": "earliest"}, "option endingOffsets"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "options startingOffsets and startingTimestamp"),
        ({"maxRecordsPerTrigger": "0"}, "option maxRecordsPerTrigger"),
        ({"maxOffsetsPerTrigger": "x"}, "option maxOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "5 apples"}, "option maxBytesPerTrigger"),
        ({"minPartitions": "-1"}, "option minPartitions"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss"),
        ({"group": "a/b"}, "option group"),
        ({"decode": "xml"}, "option decode"),
        ({"includeHeaders": "true"}, "option includeHeaders needs decode=full"),
        ({"retentionMinutes": "-1"}, "option retentionMinutes"),
        ({"maxRecordsPerTriger": "5"}, "is it maxRecordsPerTrigger?"),
    ],
)
def test_invalid_options_are_reported(options: dict[str, str], text: str):
    from sluice.pipeline.errors import PipelineOptionError
    from sluice.pipeline.options import source_options

    with pytest.raises(PipelineOptionError) as caught:
        source_options({"path": "/landing", **options}, stream=False)
    assert text in str(caught.value)


def test_invalid_option_is_named_by_spark(spark: SparkSession, landing: Landing):
    with pytest.raises(PySparkException, match="option decode: 'xml' is not one of raw, body, full"):
        read(spark, landing, decode="xml")
    with pytest.raises(PySparkException, match="option path"):
        spark.read.format("amqp").load()


@pytest.mark.long
def test_stream_with_end_option_is_refused(table: TableQuery):
    with pytest.raises(PySparkException, match="option endingOffsets is for spark.read only"):
        table.run(endingOffsets="latest")


def test_missing_landing_folder_is_named(spark: SparkSession, tmp_path: Path):
    with pytest.raises(PySparkException, match="is not a landing folder"):
        spark.read.format("amqp").load(str(tmp_path)).collect()


def test_foreign_files_are_ignored(spark: SparkSession, landing: Landing):
    expected = land_tens(landing)
    root = Path(landing.url)
    (root / "notes.txt").write_text("x")
    (root / A.key / "part-0.parquet").write_text("x")
    (root / A.key / ".000000000009-0000000001000-10-99.parquet.tmp").write_text("x")
    assert bodies(read(spark, landing)) == expected


def damage(landing: Landing, change: Any) -> None:
    path = Path(landing.url) / landing.listing(A.key).segments[0].path
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda octets: octets[:-20], "it is damaged"),
        (lambda octets: b"x" * len(octets), "is damaged"),
    ],
)
def test_damaged_segment_is_reported(spark: SparkSession, landing: Landing, change: Any, text: str):
    land_tens(landing)
    damage(landing, change)
    with pytest.raises(PySparkException, match=text):
        read(spark, landing).collect()


@pytest.mark.parametrize(
    ("metadata", "text"),
    [(None, "was not written by a lander"), ({FORMAT_KEY: b"2"}, "has format 2; this version reads 1")],
)
def test_segment_of_another_writer_is_refused(
    spark: SparkSession, landing: Landing, metadata: dict[bytes, bytes] | None, text: str
):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"message": [b""]}).replace_schema_metadata(metadata), sink)
    buffer = sink.getvalue()
    landing.store.make_folder(A.key)
    landing.store.publish(Segment(A.key, 0, 1_767_323_045_000, 1, buffer.size).path, buffer)
    with pytest.raises(PySparkException, match=text):
        read(spark, landing).collect()


def test_changed_format_is_refused(spark: SparkSession, landing: Landing):
    land_tens(landing)
    (Path(landing.url) / "_sluice.json").write_text('{"format": 3}')
    with pytest.raises(PySparkException, match="has format 3; this version of the pipeline reads 1 and 2"):
        read(spark, landing).collect()


def test_undecodable_messages_are_kept(spark: SparkSession, landing: Landing):
    land(landing, A, 0, [b"", b"junk", Message({"a": [1]}).encode(), Message("text").encode()])
    rows = read(spark, landing, decode="full").select("body_kind", "body").collect()
    assert [(row.body_kind, row.body and bytes(row.body)) for row in rows] == [
        ("none", None), ("malformed", b"junk"), ("json", b'{"a":[1]}'), ("string", b"text"),
    ]  # fmt: skip
