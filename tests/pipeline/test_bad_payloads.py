"""Payloads that cannot be decoded, in the tables, progress and metrics of `sluice pipeline query`."""

from __future__ import annotations

import argparse
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
from sluice.pipeline.commands import query as query_command
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.segments import Landing, LandingLog
from sluice.pipeline.tables.batch_writer import QUERY_ID, TableBatchWriter
from sluice.pipeline.tables.table import open_table
from sluice.router.client.message import Message
from tests.pipeline.landers import COMMAND
from tests.pipeline.segments import land
from tests.pipeline.test_killed_queries import DeltaQueryTable, QueryProcess
from tests.system.router import poll

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PATIENCE = 240.0
#: Bodies of two segments; ids are positions. Two of them are not JSON.
BODIES = ((b'{"a": 0}', b"{", b'{"a": 2}'), (b'{"a": 3}', b"\xff"))
GOOD, BAD = ["0", "2", "3"], ["1", "4"]


@pytest.fixture
def sensors(landing: Landing, java_runs: None) -> Landing:
    """Landing folder with BODIES."""
    numbers = iter(range(5))
    for segment, bodies in enumerate(BODIES):
        land(landing, LandingLog("l", "a"), segment, [Message(each, message_id=str(next(numbers))) for each in bodies])
    return landing


def query(landing: Landing, folder: Path, *words: str) -> list[str]:
    """Return the words of a query that writes JSON payloads to a table in a folder."""
    table = ["--table", str(folder / "table"), "--checkpoint", str(folder / "checkpoint")]
    memory = ["--memory", "768m", "--conf", "spark.sql.shuffle.partitions=2", "--min-rows", "1"]
    return [*COMMAND, "query", "--path", landing.url, *table, *memory, "--decode", "json", *words]


def write_once(spark: SparkSession, landing: Landing, folder: Path, *words: str) -> None:
    """Run the query of the command on all that has landed."""
    parser = argparse.ArgumentParser()
    query_command.add_arguments(parser)
    options = parser.parse_args([*query(landing, folder, *words, "--once")[len(COMMAND) + 1 :]])
    frame = spark.readStream.format("amqp").options(**query_command.data_source_options(options)).load(landing.url)
    assert query_command.write_stream(frame, options) == 0


def test_dead_letters_go_to_their_table_and_are_counted(sensors: Landing, tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    words = ["--format", "delta", "--bad-payloads", "deadletter", "--dead-letters", str(dead)]
    running = QueryProcess(
        query(sensors, tmp_path, *words, "--trigger", "0.1", "--metrics", "127.0.0.1:0"), tmp_path / "checkpoint"
    )
    try:
        poll(lambda: "metrics at " in running.printed.read_text(), "the query serves metrics", PATIENCE)
        found = re.search(r"metrics at (\S+)", running.printed.read_text())
        assert found is not None

        def page() -> str:
            with urllib.request.urlopen(found[1], timeout=20) as answer:
                return str(answer.read().decode())

        poll(lambda: "sluice_query_messages_total 5.0" in page(), "the query has read all", PATIENCE)
        assert "sluice_query_undecoded_total 2.0" in page()
    finally:
        running.kill()
    assert "2 of them not decoded" in running.printed.read_text()
    assert sorted(DeltaQueryTable(tmp_path / "table").ids()) == GOOD
    letters = DeltaQueryTable(dead)
    assert sorted(letters.ids()) == BAD
    assert letters.rows("body", "payload_error")[0]["payload_error"].startswith("not JSON: ")
    assert sorted(row["body"] for row in letters.rows("body")) == [b"{", b"\xff"]


def test_dropped_payloads_are_counted(
    spark: SparkSession, sensors: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_once(spark, sensors, tmp_path, "--bad-payloads", "drop")
    assert "2 payloads could not be decoded" in capsys.readouterr().err
    assert sorted(ds.dataset(tmp_path / "table").to_table()["message_id"].to_pylist()) == GOOD


def test_query_that_fails_at_bad_payloads_names_the_first(
    spark: SparkSession, sensors: Landing, tmp_path: Path
) -> None:
    place = r"lander l, address a, segment 0, ordinal 1"
    with pytest.raises(PipelineError, match=rf"a payload cannot be decoded \({place}\): not JSON: "):
        write_once(spark, sensors, tmp_path, "--format", "delta", "--bad-payloads", "fail")
    assert DeltaQueryTable(tmp_path / "table").ids() == []


def test_batch_interrupted_between_both_tables_is_in_each_once(
    spark: SparkSession, sensors: Landing, tmp_path: Path
) -> None:
    frame = spark.read.format("amqp").options(decode="json").load(sensors.url).drop("batch_time")
    table, dead = (open_table("delta", str(tmp_path / name), frame.schema, (), {}) for name in ("table", "dead"))
    spark.sparkContext.setLocalProperty(QUERY_ID, "q")
    # The state after a kill: the dead letters of the batch are committed, its other rows are not.
    TableBatchWriter(dead, (), frame.columns)(frame.filter("payload_error is not null"), 0)
    for _ in range(2):
        TableBatchWriter(table, (), frame.columns, dead)(frame, 0)
        assert sorted(DeltaQueryTable(tmp_path / "table").ids()) == GOOD
        assert sorted(DeltaQueryTable(tmp_path / "dead").ids()) == BAD
    TableBatchWriter(table, (), frame.columns, dead)(frame.filter("payload_error is null"), 1)
    assert (table.last_batch("q"), dead.last_batch("q")) == (1, 0), "no dead letters make no commit"
