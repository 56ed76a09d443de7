"""Parts of Spark's API for data sources in Python that some supported versions of Spark lack.

Spark 4.0 has no writer of streams for Arrow. Spark 4.0 and 4.1 tell the reader of a stream neither the start of a batch
nor a limit, so no reader of streams can be written for them (docs/decisions/0102-spark-versions.md).
"""

import importlib.util
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from sluice.pipeline.errors import PipelineOptionError

#: Oldest versions that have what streams from addresses and to addresses need.
STREAM_READER, STREAM_WRITER = "4.2", "4.1"

HAS_STREAM_READER = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
HAS_STREAM_WRITER = hasattr(datasource, "DataSourceStreamArrowWriter")
#: Argument for Arrow timestamps in UTC, which 4.0 and 4.1 make by default.
UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}

if TYPE_CHECKING or HAS_STREAM_READER:
    from pyspark.sql.streaming.datasource import (
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit: ...

    class ReadMaxBytes(ReadLimit): ...

    class ReadMaxFiles(ReadLimit): ...

    class ReadMaxRows(ReadLimit): ...

    class SupportsTriggerAvailableNow: ...


if TYPE_CHECKING or HAS_STREAM_WRITER:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter: ...


__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_type",
    "check_stream_reader",
    "check_stream_writer",
]


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type, with timestamps in UTC."""
    return to_arrow_type(kind, **UTC)


def check_stream_reader(
    what: str = "readStream with format amqp", instead: str = "spark.read reads what has landed"
) -> None:
    """Raise PipelineOptionError if this Spark lacks what a reader of streams needs.

    what: the feature that reads a stream. instead: the alternative to it.
    """
    if not HAS_STREAM_READER:
        raise PipelineOptionError(_lacks(what, STREAM_READER, instead))


def check_stream_writer() -> None:
    """Raise PipelineOptionError if this Spark lacks what a writer of streams needs."""
    if not HAS_STREAM_WRITER:
        instead = "foreachBatch with write sends each batch"
        raise PipelineOptionError(_lacks("writeStream with format amqp", STREAM_WRITER, instead))


def _lacks(what: str, oldest: str, instead: str) -> str:
    return f"{what} needs Spark {oldest} or later; this is Spark {pyspark.__version__}: {instead}"
