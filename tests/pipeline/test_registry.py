"""Payloads with schemas in a registry, in Spark: rows, and the error of a registry that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
pytest.importorskip("requests")
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
