"""Example of docs/user/pipeline-sensors.md, run as printed there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
from sluice.pipeline.segments import Landing, LandingLog
from sluice.router.client.blocking import connect
from sluice.router.client.message import Message
from tests.pipeline.java import environment
from tests.pipeline.landers import LanderProcess
from tests.pipeline.receiving import ReceivingThread
from tests.pipeline.segments import land, numbered
from tests.system.router import ROOT, poll

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

SENSORS, READINGS = 200, 5
TOTAL = SENSORS * READINGS
PATIENCE = 120


def example_code() -> str:
    page = (ROOT / "docs" / "user" / "pipeline-sensors.md").read_text()
    match = re.search(r"^# A program: sensors$.*?^```python\n(.*?)^```$", page, re.S | re.M)
    assert match is not None
    return match[1]


@pytest.mark.timeout(300)
def test_sensors_example_computes_averages(spark: SparkSession, url: str, tmp_path: Path):
    landing, out = tmp_path / "landing", tmp_path / "out"
    first, _, code = example_code().partition("\n")
    assert first.startswith("landing, url, out = ")
    code, last_line, _ = code.rpartition("spark.streams.awaitAnyTermination()")
    assert last_line
    names: dict[str, Any] = {"landing": str(landing), "url": url, "out": str(out)}
    with LanderProcess(url, landing, address="sensors") as lander, ReceivingThread(url, "averages") as consumer:
        lander.ready()
        exec(compile(code, "docs/user/pipeline-sensors.md", "exec"), names)
        table, averages = names["table"], names["averages"]
        try:
            with connect(url, timeout=10) as connection:
                sender = connection.sender("sensors", timeout=10)
                messages = [
                    Message(
                        json.dumps({"celsius": reading}).encode(),
                        subject=f"s{sensor}",
                        message_id=f"s{sensor}-{reading}",
                    )
                    for reading in range(READINGS)
                    for sensor in range(SENSORS)
                ]
                sender.send_all([*messages, *messages[:7]], timeout=60)  # seven messages are sent twice

            def last() -> dict[str, Any]:
                found = [json.loads(message.body) for message in consumer.messages]
                return {each["sensor"]: each for each in found}

            def all_came() -> bool:
                for query in (averages, table):
                    assert query.isActive, query.exception()
                read: int = sum(each["readings"] for each in last().values())
                return read == TOTAL + 7

            poll(all_came, "the averages of all readings", PATIENCE)
            assert last()["s9"] == {"sensor": "s9", "celsius": (READINGS - 1) / 2, "readings": READINGS}
            table.processAllAvailable()
        finally:
            averages.stop()
            table.stop()
    rows = spark.read.parquet(str(out / "table")).collect()
    assert len(rows) == TOTAL
    assert {row.message_id for row in rows} == {message.message_id for message in messages}
    assert {row.celsius for row in rows} == set(map(float, range(READINGS)))


def test_query_runs_in_any_folder(java_runs: None, landing: Landing, tmp_path: Path):
    """Spark does not search the path of an editable installation, so the command must set it."""
    land(landing, LandingLog("one", "a"), 0, numbered(0, 3))
    variables = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    program: list[str | Path] = [
        ROOT / ".venv" / "bin" / "sluice",
        "pipeline",
        "query",
        "--path",
        landing.url,
        "--show",
        "3",
    ]
    done = subprocess.run(
        program, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "|body" in done.stdout
