"""Payloads with schemas in a registry, in Spark: rows, and the error of a registry that does not answer."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
pytest.importorskip("requests")
from sluice.pipeline.commands import query as query_command
from sluice.pipeline.env import convert_spark_errors
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.segments import Landing, LandingLog
from sluice.router.client import Message
from tests.pipeline.segments import land
from tests.unit.pipeline.schema_registry import RegistryServer
from tests.unit.pipeline.test_registered import FIRST, SECOND, avro, framed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    made = RegistryServer()
    yield made
    made.stop()


def test_spark_reads_payloads_of_a_registry_and_names_its_failure(
    spark: SparkSession, landing: Landing, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.register(7, "reading", FIRST)
    server.register(9, "reading", SECOND)
    bodies = [framed(7, avro(FIRST, {"celsius": 1.5})), framed(9, avro(SECOND, {"celsius": 2.5, "hall": "b"})), b"x"]
    land(landing, LandingLog("one", "a"), 0, [Message(body) for body in bodies])
    source = spark.read.format("amqp").option("decode", "avro").option("schemaRegistry", server.url)
    frame = source.option("payloadSubject", "reading").load(landing.url)
    found = [(row.payload and tuple(row.payload), row.payload_error) for row in frame.orderBy("ordinal").collect()]
    assert found == [((1.5, None), None), ((2.5, "b"), None), (None, "no octet 0 and schema id at the beginning")]
    server.body = b"<html>"
    with (
        pytest.raises(PipelineError, match="schema registry .*: status 200, and not an answer"),
        convert_spark_errors(),
    ):
        source.option("payloadSubject", "reading").load(landing.url).collect()


def test_query_counts_repeated_requests_and_its_table_has_no_column_of_them(
    spark: SparkSession, landing: Landing, server: RegistryServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.register(7, "reading", FIRST)
    land(landing, LandingLog("one", "a"), 0, [Message(framed(7, avro(FIRST, {"celsius": 1.5})))] * 3)
    server.faults_of["/schemas/ids/7"] = [503, 429]
    registry = ["--option", f"schemaRegistry={server.url}", "--option", "payloadSubject=reading"]
    parser = argparse.ArgumentParser()
    query_command.add_arguments(parser)
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    words = ["--path", landing.url, "--table", table, "--checkpoint", checkpoint, "--decode", "avro", "--once"]
    options = parser.parse_args([*words, *registry])
    frame = spark.readStream.format("amqp").options(**query_command.data_source_options(options)).load(landing.url)
    assert query_command.write_stream(frame, options) == 0
    assert re.search(
        r"schema registry: 2 requests repeated, the last: \S+Z /schemas/ids/7: status 429\n", capsys.readouterr().err
    )
    written = ds.dataset(table).to_table()
    assert written["payload"].to_pylist() == [{"celsius": 1.5}] * 3
    assert not {"registry_retries", "registry_error"} & set(written.column_names)
