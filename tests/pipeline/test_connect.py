"""Spark Connect: a server with the data source, and a client without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")
import pyspark

from sluice.pipeline.segments import Landing, LandingLog
from tests.pipeline.java import environment
from tests.pipeline.receiving import ReceivingThread
from tests.pipeline.segments import land, numbered
from tests.system.networks import ports
from tests.system.router import ROOT, poll

pytestmark = pytest.mark.long

SERVER = Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh"
PATIENCE = 240.0


@pytest.fixture
def server(java_runs: None, tmp_path: Path) -> Iterator[str]:
    """URL of a Spark Connect server on loopback."""
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status: pip install 'pyspark[connect]'")
    folder = tmp_path / "server"
    folder.mkdir()
    (port,) = ports(1)
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SERVER, "--wait", "--master", "local[2,4]", "--driver-memory", "768m",
             "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
             "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false",
             "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True,
            env=environment(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, SPARK_LOG_DIR=str(folder)),
        )  # fmt: skip
    try:
        poll(lambda: "Spark Connect server started at" in log.read_text(), "the start of the server", PATIENCE)
        yield f"sc://127.0.0.1:{port}"
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        psutil.wait_procs(children, 30)


@pytest.mark.timeout(800)
def test_client_reads_and_writes_through_the_server(server: str, landing: Landing, url: str, tmp_path: Path):
    for number in range(3):
        land(landing, LandingLog("one", "a"), number, numbered(10 * number, 10))
    with ReceivingThread(url, "from-connect") as consumer:
        ran = subprocess.run(
            [sys.executable, ROOT / "tests" / "pipeline" / "connect_client.py", server, landing.url, tmp_path, url],
            capture_output=True, text=True, timeout=450, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-3000:]
        bodies = sorted(int(message.body) for message in consumer.messages)
    assert bodies == sorted([*range(20), *range(30)]), "each message is settled when the client's calls return"
    found = json.loads(ran.stdout.splitlines()[-1])
    assert "option decode: 'xml' is not one of raw, body, full" in found.pop("error")
    assert found == {
        "session": "pyspark.sql.connect.session", "sluice": False, "read": 30, "streamed": 30, "table": 30,
    }  # fmt: skip
    batches = sorted(path.name for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert batches == ["0", "1", "2"], "maxRecordsPerTrigger limits each batch"
