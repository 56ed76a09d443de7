"""Fixtures of the pipeline's tests: one SparkSession for all tests of a run, routers, and landing folders.

Routers have one worker unless a test needs more; tests/system covers traffic across workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluice.pipeline.errors import MissingError
from sluice.pipeline.prerequisites import find_java
from sluice.pipeline.segments import Landing
from tests.pipeline.java import OPTIONS, environment
from tests.system.conftest import pytest_runtest_makereport, start
from tests.system.router import SETTINGS, RouterProcess, listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pytest_runtest_makereport", "start"]

PATIENCE = 400  # seconds for a test that may be the first to start Spark


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with Spark as long. Starting Spark takes most of their time, so two pytest-xdist processes share
    them."""
    for item in items:
        if isinstance(item, pytest.Function) and "spark" in item.fixturenames:
            second = item.path.name == "test_source.py"
            item.add_marker(pytest.mark.long)
            # Drop a group added by the system tests' hook: pytest-xdist would join both names.
            item.own_markers = [mark for mark in item.own_markers if mark.name != "xdist_group"]
            item.add_marker(pytest.mark.xdist_group("spark-source" if second else "spark"))
            if item.get_closest_marker("timeout") is None:  # the first test of a process starts Spark
                item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.fixture
def java_runs() -> None:
    """Skip a test if Java is missing, for tests whose processes start Java themselves."""
    skip_without_java()


def skip_without_java() -> None:
    try:
        find_java()
    except MissingError as error:
        pytest.skip(str(error))


def need_stream_reader() -> None:
    """Skip a test if this version of Spark has no streams from landing folders."""
    from sluice.pipeline import spark_api

    if not spark_api.HAS_STREAM_READER:
        pytest.skip(f"streams from landing folders need Spark {spark_api.STREAM_READER}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark session with two slots and a small heap, in which a failed task is retried."""
    pytest.importorskip("pyspark")
    skip_without_java()
    from sluice.pipeline.env import spark_session

    os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]  # the session's workers inherit the variable
    folder = tmp_path_factory.mktemp("spark")
    made = spark_session(
        "tests",
        memory="768m",
        conf={
            "spark.master": "local[2,4]",
            "spark.driver.extraJavaOptions": OPTIONS,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder),
            "spark.log.level": "ERROR",
        },
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def _router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    router = RouterProcess(tmp_path_factory.mktemp("router"), [listener(), *SETTINGS])
    router.start()
    yield router
    router.stop()


@pytest.fixture
def url(_router: RouterProcess, request: pytest.FixtureRequest) -> str:
    """URL of a router that tests share."""
    request.node.routers = [_router]
    return f"amqp://127.0.0.1:{_router.port}"


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Empty landing folder."""
    return Landing.create(str(tmp_path / "landing"))
