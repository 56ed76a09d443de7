"""Sessions of Spark for the verbs of `sluice pipeline` and the tests: made for one machine, unless a master is named.

A program that has a session of its own needs nothing of this.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.errors import OptionError
from pipeline.needs import java, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "1g"
LEAST_MEMORY = 512 << 20  # octets; Spark refuses less than about 450 MiB
#: A task that fails is run again: `local[N]` alone fails the query with it.
LOCAL = "local[*,4]"
LOOPBACK = "127.0.0.1"
#: The module by which Spark finds the data source, where the package is installed.
FOUND = "pyspark_amqp"
SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def check_memory(memory: str) -> str:
    """A size of a Java heap as Spark writes it. Raises OptionError."""
    match = re.fullmatch(r"(\d+)([kmg])", memory.lower())
    if match is None or int(match[1]) * SIZES[match[2]] < LEAST_MEMORY:
        raise OptionError(f"memory {memory!r}: expected 512m or more, for example 2g")
    return memory.lower()


def session(
    name: str, *, master: str | None = None, memory: str = MEMORY, conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """A session with the data source "amqp". master: None for this machine. Raises MissingError, OptionError."""
    require("pyspark", "pandas", "pyarrow")
    java()
    check_memory(memory)
    # Workers are to be the same Python; Spark would take the first `python3` of the PATH.
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
    if importlib.util.find_spec(FOUND) is None:  # else Spark has it already, and would warn
        from pipeline.source import Amqp

        spark.dataSource.register(Amqp)
    return spark
