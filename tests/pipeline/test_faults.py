"""Spark processes killed at fixed points: no message is lost, and a message sent twice has the same id."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
import pyarrow.dataset as ds

from sluice.pipeline.segments import Landing, LandingLog
from tests.pipeline.crashing_source import mark, run
from tests.pipeline.java import environment
from tests.pipeline.landers import LanderProcess, SendingThread, rows
from tests.pipeline.receiving import ReceivingThread
from tests.pipeline.segments import land, numbered
from tests.system.router import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

SEGMENTS, ROWS = 3, 50
EXPECTED = {str(n).encode() for n in range(SEGMENTS * ROWS)}
PATIENCE = 150


@pytest.fixture
def landed(landing: Landing) -> Landing:
    for number in range(SEGMENTS):
        land(landing, LandingLog("one", "a"), number, numbered(ROWS * number, ROWS))
    return landing


def run_driver(landing: Landing, checkpoint: Path, out: str) -> int:
    """Run a driver process, and return its exit code."""
    words = [sys.executable, "-m", "tests.pipeline.crashing_source", landing.url, str(checkpoint), out]
    ran = subprocess.run(words, env=environment(), cwd=ROOT, timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False)
    return ran.returncode


def check_ids(consumer: ReceivingThread) -> int:
    """Check that all bodies arrived with one id each; return the number of repeated messages."""
    assert {message.body for message in consumer.messages} == EXPECTED
    by_id: dict[object, set[bytes]] = {}
    for message in consumer.messages:
        by_id.setdefault(message.message_id, set()).add(message.body)
    assert len(by_id) == len(EXPECTED)
    assert all(len(bodies) == 1 for bodies in by_id.values())
    return len(consumer.messages) - len(EXPECTED)


@pytest.mark.parametrize("point", ["read", "before-write", "after-write"])
def test_killed_python_worker_loses_nothing(spark: SparkSession, url: str, landed: Landing, tmp_path: Path, point: str):
    mark(tmp_path, point).touch()
    with ReceivingThread(url, f"balanced.{point}") as consumer:
        run(spark, landed.url, str(tmp_path / "checkpoint"), f"{url}/balanced.{point}")
        repeated = check_ids(consumer)
    assert not mark(tmp_path, point).exists(), "the process was killed"
    assert repeated == (ROWS if point == "after-write" else 0)


@pytest.mark.parametrize("point", ["plan", "commit"])
@pytest.mark.timeout(400)
def test_killed_driver_repeats_only_the_uncommitted_batch(
    java_runs: None, url: str, landed: Landing, tmp_path: Path, point: str
):
    mark(tmp_path, point).touch()
    checkpoint = tmp_path / "checkpoint"
    with ReceivingThread(url, f"balanced.{point}") as consumer:
        assert run_driver(landed, checkpoint, f"{url}/balanced.{point}") != 0
        assert not mark(tmp_path, point).exists(), "the process was killed"
        assert run_driver(landed, checkpoint, f"{url}/balanced.{point}") == 0
        repeated = check_ids(consumer)
    assert repeated == (ROWS if point == "commit" else 0), "the batch whose commit was not written"


@pytest.mark.timeout(400)
def test_table_is_exact_after_a_killed_driver(java_runs: None, landed: Landing, tmp_path: Path):
    mark(tmp_path, "plan").touch()
    out = tmp_path / "table"
    assert run_driver(landed, tmp_path / "checkpoint", str(out)) != 0
    assert run_driver(landed, tmp_path / "checkpoint", str(out)) == 0
    names = [str(path) for path in out.glob("*.parquet")]
    bodies = ds.dataset(names).to_table(columns=["body"]).column("body").to_pylist()
    assert sorted(bodies) == sorted(EXPECTED)


def test_table_has_each_message_once_after_a_killed_lander(spark: SparkSession, url: str, tmp_path: Path):
    """A lander killed after a segment was published, before its messages were accepted, lands them twice with equal
    ids."""
    path, out = tmp_path / "landing", tmp_path / "table"
    sent = [message.encode() for message in numbered(0, 1500)]
    words = (url, path, "--id", "l", "--land-rows", "200")
    command = (sys.executable, "-m", "tests.pipeline.crashing_lander", "after-rename", "1")
    with LanderProcess(*words, command=command).ready() as lander:
        sending_thread = SendingThread(url, sent)
        assert lander.wait() == -signal.SIGKILL
    with LanderProcess(*words).ready() as lander:
        sending_thread.done()
        lander.stop()
    assert rows(path).num_rows > len(sent)
    query = (
        spark.readStream.format("amqp").option("decode", "full").load(str(path))
        .withWatermark("batch_time", "10 minutes").dropDuplicatesWithinWatermark(["address", "message_id"])
        .writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start(str(out))
    )  # fmt: skip
    assert query.awaitTermination(PATIENCE)
    found = [bytes(row.body) for row in spark.read.parquet(str(out)).select("body").collect()]
    assert sorted(found, key=int) == [str(n).encode() for n in range(len(sent))]
