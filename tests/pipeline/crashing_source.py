"""Data source "crashing": "amqp" with one process that is killed by SIGKILL at a given point, once.

A test creates a file crash-POINT beside the landing folder, or beside the checkpoint for points of a sink. The process
that reaches the point removes the file and kills itself.

As a program, `python -m tests.pipeline.crashing_source LANDING CHECKPOINT OUT` writes all available messages to OUT:
an AMQP URL with the address as its path, or the folder of a Parquet table.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from sluice.pipeline.identified_reader import IdentifiedReader
from sluice.pipeline.identity import Identities
from sluice.pipeline.options import source_options
from sluice.pipeline.sink import StreamWriter, sink_options
from sluice.pipeline.source import Amqp, StreamReader, read_columns

PATIENCE = 120.0  # seconds for a query


def mark(folder: Path, point: str) -> Path:
    return folder / f"crash-{point}"


def reached(folder: Path, point: str) -> bool:
    try:
        mark(folder, point).unlink()
    except FileNotFoundError:
        return False
    return True


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_driver() -> None:
    """Kill the Java process above this one, and the program that started it."""
    for process in psutil.Process().parents():
        if process.name() == "java":
            process.kill()
            process.wait(30)
            break
    crash()


class CrashingReader(StreamReader):
    def folder(self) -> Path:
        return Path(self.options.path).parent

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        found = super().partitions(start, end)
        if reached(self.folder(), "plan"):
            kill_driver()
        return found

    def read(self, partition: InputPartition, identities: Identities | None = None) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition, identities):
            yield batch
            if reached(self.folder(), "read"):
                crash()


class CrashingWriter(StreamWriter):
    folder: Path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if reached(self.folder, "before-write"):
            crash()
        message = super().write(iterator)
        if reached(self.folder, "after-write"):
            crash()
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if reached(self.folder, "commit"):
            kill_driver()
        super().commit(messages, batchId)


class CrashingSource(Amqp):
    @classmethod
    def name(cls) -> str:
        return "crashing"

    def streamReader(self, schema: StructType) -> IdentifiedReader:
        return IdentifiedReader(
            CrashingReader(
                source_options(self.options, stream=True), *read_columns(source_options(self.options), schema)
            )
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        writer = CrashingWriter(sink_options(self.options, overwrite), schema)
        writer.folder = Path(self.options["checkpointlocation"]).parent
        return writer


def run(spark: Any, landing: str, checkpoint: str, out: str) -> None:
    """Write all available messages, one segment in a batch."""
    spark.dataSource.register(CrashingSource)
    stream = spark.readStream.format("crashing").option("maxRecordsPerTrigger", "1").load(landing)
    if out.startswith("amqp:"):
        url, _, address = out.rpartition("/")
        options = {"amqp.url": url, "address": address, "sendTimeoutMs": "20000"}
        writer = stream.select("body").writeStream.format("crashing").options(**options)
    else:
        writer = stream.writeStream.format("parquet").option("path", out)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE), query.lastProgress
    finally:
        query.stop()


if __name__ == "__main__":
    from sluice.pipeline.env import spark_session

    made = spark_session("crashing", memory="512m", conf={"spark.master": "local[2,4]", "spark.log.level": "ERROR"})
    run(made, *sys.argv[1:])
    made.stop()
