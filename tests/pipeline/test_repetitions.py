"""Repeated messages in the table of `sluice pipeline query --dedup`: each message once, and none is lost."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
from sluice.pipeline.commands.query import drop_repetitions, run_query
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.segments import Landing, LandingLog
from tests.pipeline.segments import land, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long

START = 1_767_323_045_000  # landing time of the first segment, ms
WINDOW = 5  # seconds


def land_log(landing: Landing, log: LandingLog, first: int, segments: int, rows: int, step: int, skew: int = 0) -> int:
    """Land segments every `step` ms, of distinct messages from number `first` on; return the number after the last."""
    for number in range(segments):
        land(landing, log, number, numbered(first, rows), landed=START + skew + number * step)
        first += rows
    return first


def read_stream(spark: SparkSession, landing: Landing, rows: int) -> DataFrame:
    """Return a stream with at most so many rows in a batch."""
    return spark.readStream.format("amqp").options(decode="full", maxRecordsPerTrigger=str(rows)).load(landing.url)


def write(frame: DataFrame, folder: Path) -> None:
    writer = frame.writeStream.format("parquet").trigger(availableNow=True)
    assert run_query(writer.option("checkpointLocation", str(folder / "checkpoint")), str(folder / "table")) == 0


def write_table(spark: SparkSession, landing: Landing, folder: Path, rows: int) -> list[str]:
    """Run the query of the command on all segments; return the message ids in the table, sorted."""
    write(drop_repetitions(read_stream(spark, landing, rows), WINDOW), folder)
    return sorted(row.message_id for row in spark.read.parquet(str(folder / "table")).select("message_id").collect())


def ids(numbers: Iterable[int]) -> list[str]:
    return sorted(map(str, numbers))


def test_table_of_logs_with_unequal_rates_lacks_nothing(spark: SparkSession, landing: Landing, tmp_path: Path):
    end = land_log(landing, LandingLog("one", "fast"), 0, 60, 5, 1000)
    end = land_log(landing, LandingLog("one", "slow"), end, 6, 1, 10_000)
    assert write_table(spark, landing, tmp_path, 60) == ids(range(end))


def test_table_of_landers_with_clock_skew_lacks_nothing(spark: SparkSession, landing: Landing, tmp_path: Path):
    """The clock of the second lander is ahead by far more than the window."""
    right, ahead = LandingLog("one", "a"), LandingLog("two", "a")
    end = land_log(landing, right, 0, 12, 5, 1000)
    end = land_log(landing, ahead, end, 12, 5, 1000, skew=90_000)
    assert write_table(spark, landing, tmp_path, 25) == ids(range(end))
    for log, skew in ((ahead, 90_000), (right, 0)):
        land(landing, log, 12, numbered(end, 5), landed=START + skew + 12_000)
        end += 5
    assert write_table(spark, landing, tmp_path, 25) == ids(range(end))


def test_repetition_within_the_window_is_dropped_in_any_log_and_batch(
    spark: SparkSession, landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    one, two = LandingLog("one", "a"), LandingLog("two", "a")
    for number in range(12):
        land(landing, one, number, numbered(10 * number, 10), landed=START + 1000 * number)
        # The other lander lands the first half of each segment again, with the window's distance.
        land(landing, two, number, numbered(10 * number, 5), landed=START + 1000 * (number + WINDOW))
    assert write_table(spark, landing, tmp_path, 25) == ids(range(120))
    assert "180 messages, 60 of them repeated in " in capsys.readouterr().err


def test_query_that_drops_late_messages_fails_with_their_number(spark: SparkSession, landing: Landing, tmp_path: Path):
    for number, (rows, landed) in enumerate([(5, 0), (5, 90_000), (5, 91_000), (8, 0)]):
        land(landing, LandingLog("one", "a"), number, numbered(10 * number, rows), landed=START + landed)
    frame = read_stream(spark, landing, 5).withWatermark("landed_time", "5 seconds")
    with pytest.raises(PipelineError, match=r"^8 messages are missing in the table: they came after"):
        write(frame.dropDuplicatesWithinWatermark(["message_id"]), tmp_path)
