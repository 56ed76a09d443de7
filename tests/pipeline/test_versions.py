"""Features that depend on the version of Spark: each works, or an error names the oldest version that has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
import pyspark
from pyspark.errors import PySparkException

from sluice.pipeline.segments import Landing, LandingLog
from tests.pipeline.receiving import ReceivingThread
from tests.pipeline.segments import land, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def run_stream(stream: DataFrame, kind: str, folder: Path, **options: str) -> None:
    """Write all that a stream has; options: those of the sink."""
    options["checkpointLocation"] = str(folder / "checkpoint")
    query = stream.writeStream.format(kind).options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(60)


def test_landed_messages_are_a_stream_since_4_2(spark: SparkSession, landing: Landing, tmp_path: Path):
    land(landing, LandingLog("one", "a"), 0, numbered(0, 10))
    out = str(tmp_path / "table")

    def run() -> None:
        run_stream(spark.readStream.format("amqp").load(landing.url), "parquet", tmp_path, path=out)

    if VERSION >= (4, 2):
        run()
        assert spark.read.parquet(out).count() == 10
        return
    with pytest.raises(PySparkException, match=r"readStream with format amqp needs Spark 4.2 or later; this is Spark"):
        run()
    assert spark.read.format("amqp").load(landing.url).count() == 10, "the alternative that the error names"


def test_stream_is_sent_since_4_1(spark: SparkSession, url: str, tmp_path: Path):
    rows = spark.range(10).selectExpr("string(id) AS body")
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    sink = {"amqp.url": url, "address": "balanced/versions"}
    with ReceivingThread(url, "balanced/versions") as consumer:
        if VERSION >= (4, 1):
            run_stream(stream, "amqp", tmp_path, **sink)
        else:
            text = "writeStream with format amqp needs Spark 4.1 or later; this is Spark"
            with pytest.raises(PySparkException, match=text):
                run_stream(stream, "amqp", tmp_path, **sink)
            rows.write.format("amqp").mode("append").options(**sink).save()
        assert sorted(int(message.body) for message in consumer.wait(10)) == list(range(10))
