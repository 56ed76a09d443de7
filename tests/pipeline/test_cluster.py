"""Standalone Spark cluster on loopback, with a master and two workers of one core, and a program run by
spark-submit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark")
import pyarrow.dataset as ds
import pyspark

from sluice.pipeline.segments import Landing, LandingLog
from tests.pipeline.java import environment
from tests.pipeline.segments import land, numbered
from tests.system.networks import ports
from tests.system.router import ROOT, poll

pytestmark = pytest.mark.long

BIN = Path(pyspark.__file__).parent / "bin"
PATIENCE = 90.0
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkCluster:
    """Spark cluster with its processes. Owner: the fixture."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = ports(1)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = environment(
            SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY="256m", PYSPARK_PYTHON=sys.executable
        )
        del self.environment["PYTHONPATH"]  # executors get the path from the archive

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._spawn("master", "--port", str(self.port), kind="master.Master")
        self._wait("master", "Starting Spark master")
        for name in ("worker0", "worker1"):
            work = self.folder / name
            self._spawn(
                name, "--cores", "1", "--memory", "600m", "--work-dir", str(work), self.url, kind="worker.Worker"
            )
        for name in ("worker0", "worker1"):
            self._wait(name, "Successfully registered with master")

    def _spawn(self, name: str, *words: str, kind: str) -> None:
        with open(self.folder / f"{name}.log", "wb") as output:
            self.processes.append(
                subprocess.Popen(
                    [BIN / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--webui-port",
                     "0", *words],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment, cwd=self.folder,
                )
            )  # fmt: skip

    def _wait(self, name: str, line: str) -> None:
        path = self.folder / f"{name}.log"
        poll(lambda: line in path.read_text(), f"{line!r} in the log of {name}", PATIENCE)

    def executors(self) -> list[psutil.Process]:
        children = (child for each in self.processes for child in psutil.Process(each.pid).children(recursive=True))
        return [child for child in children if _is_executor(child)]

    def submit(self, program: Path, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [BIN / "spark-submit", "--master", self.url, "--driver-memory", "512m", "--executor-memory", "512m",
             "--archives", f"{self.archive()}#sluice", "--conf", "spark.executorEnv.PYTHONPATH=./sluice",
             "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1",
             "--conf", "spark.driver.host=127.0.0.1", program, *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=(self.folder / "driver.log").open("wb"),
            env={**self.environment, "PYTHONPATH": str(ROOT)}, cwd=self.folder, text=True,
        )  # fmt: skip

    def archive(self) -> Path:
        """Return the archive of this tree with the contents that docs/user/pipeline-cluster.md names."""
        path = self.folder / "sluice.tgz"
        with tarfile.open(path, "w:gz") as archive:
            for name in ("sluice/__init__.py", "sluice/router", "sluice/pipeline", "pyspark_amqp.py"):
                path_in_tree = (ROOT / name).resolve()  # packages are symbolic links
                archive.add(path_in_tree, name, filter=lambda info: None if "__pycache__" in info.name else info)
        return path

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(30)


def _is_executor(process: psutil.Process) -> bool:
    try:
        return EXECUTOR in process.cmdline()
    except psutil.NoSuchProcess:  # the shell that started the executor has exited
        return False


@pytest.fixture
def cluster(java_runs: None, tmp_path: Path) -> Iterator[SparkCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = SparkCluster(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def land_segments(landing: Landing, segments: int) -> list[bytes]:
    for number in range(segments):
        land(landing, LandingLog("one", "a"), number, numbered(10 * number, 10))
    return [str(n).encode() for n in range(10 * segments)]


def bodies(table: Path) -> list[Any]:
    """Return the bodies in the table according to Spark's log; a killed executor leaves other files behind."""
    log = [line for path in (table / "_spark_metadata").glob("[0-9]*") for line in path.read_text().splitlines()[1:]]
    names = sorted({json.loads(line)["path"].removeprefix("file://") for line in log})
    return sorted(ds.dataset(names).to_table(columns=["body"]).column("body").to_pylist(), key=int)


@pytest.mark.timeout(400)
def test_program_on_two_workers_writes_all_messages(cluster: SparkCluster, landing: Landing, tmp_path: Path):
    expected = land_segments(landing, 3)
    ran = cluster.submit(
        ROOT / "tests" / "pipeline" / "cluster_query.py", landing.url, tmp_path / "checkpoint", tmp_path / "table"
    )
    output, _ = ran.communicate(timeout=200)
    assert ran.returncode == 0, (cluster.folder / "driver.log").read_text()[-3000:]
    assert bodies(tmp_path / "table") == expected
    places = output.strip().splitlines()[-1].split()[1:]
    assert places, output
    assert all(str(cluster.folder) in place and "/sluice/pipeline/" in place for place in places), "from the archive"


@pytest.mark.timeout(400)
def test_killed_executor_loses_and_repeats_nothing(cluster: SparkCluster, landing: Landing, tmp_path: Path):
    expected = land_segments(landing, 20)
    table = tmp_path / "table"
    ran = cluster.submit(ROOT / "tests" / "pipeline" / "cluster_query.py", landing.url, tmp_path / "checkpoint", table)
    poll(lambda: list(table.glob("*.parquet")), "a first batch", 120)
    cluster.executors()[0].kill()
    ran.communicate(timeout=250)
    assert ran.returncode == 0, (cluster.folder / "driver.log").read_text()[-3000:]
    assert bodies(table) == expected
