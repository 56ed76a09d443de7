"""Spark sessions for the verbs of `sluice pipeline` and the tests: for this machine, unless a master is named.

A program with a Spark session of its own needs nothing from this module.
"""

import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluice.pipeline.errors import PipelineError, PipelineOptionError
from sluice.pipeline.prerequisites import find_java, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "1g"
LEAST_MEMORY = 512 << 20  # octets; Spark refuses a heap of less than about 450 MiB
#: `local[N]` alone fails a query at the first failed task. This one allows four attempts.
LOCAL = "local[*,4]"
LOOPBACK = "127.0.0.1"
#: Module by which Spark finds the data source if the package is installed.
SOURCE_MODULE = "pyspark_amqp"
# Java's messages for a write that a full disk, a quota or a process limit stopped.
FULL_DISK = ("No space left on device", "Disk quota exceeded", "File too large")
SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def check_memory(memory: str) -> str:
    """Return the size of a Java heap in Spark's notation. Raises PipelineOptionError."""
    match = re.fullmatch(r"(\d+)([kmg])", memory.lower())
    if match is None or int(match[1]) * SIZES[match[2]] < LEAST_MEMORY:
        raise PipelineOptionError(f"memory {memory!r}: expected 512m or more, for example 2g")
    return memory.lower()


def spark_session(
    name: str, *, master: str | None = None, memory: str = MEMORY, conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return a Spark session with the data source "amqp". master: None for this machine.

    Raises MissingError, PipelineOptionError.
    """
    require("pyspark", "pandas", "pyarrow")
    find_java()
    check_memory(memory)
    # Spark would otherwise start its workers with the first `python3` of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.log.level": "WARN",
    }
    if master is None:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        settings |= {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master or LOCAL)
    for key, value in {**settings, **(conf or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    # Spark registers the source by itself if it finds the module, and warns about a second registration. It searches
    # folders only, and so misses an editable installation.
    if all(module.name != SOURCE_MODULE for module in pkgutil.iter_modules()):
        from sluice.pipeline.source import Amqp

        spark.dataSource.register(Amqp)
    return spark


@contextmanager
def convert_spark_errors() -> Iterator[None]:
    """Convert Spark exceptions to PipelineError."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise PipelineError(describe_failure(error)) from error


def describe_failure(error: Exception) -> str:
    """Return the text for a Spark failure: the pipeline's own error, the meaning of a full disk, or the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("sluice.pipeline.errors.")]
    if ours:
        return ours[-1].partition(": ")[2]
    full = next((each for each in FULL_DISK if each in str(error)), None)
    if full is not None:
        text = f"{full}, for the checkpoint, the table or Spark's own files"
        return f"{text}. Nothing is lost: make room and start it again"
    return lines[0] if lines else type(error).__name__
