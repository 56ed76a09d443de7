"""The worked example of docs/user/telemetry.md: a router, clients, a report, a plan."""

import json
import re
import subprocess

import pytest

pytest.importorskip("pyspark")

from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.pipeline.java import environment
from tests.system.router import ROOT, SETTINGS, RouterProcess, listener

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "user" / "telemetry.md"
COUNT = 300


def commands():
    """Return the commands of the example in order."""
    text = PAGE.read_text().partition("### The report of a day")[2]
    return [line.split() for line in re.findall(r"^    (sluice pipeline .*)$", text, re.MULTILINE)]


@pytest.mark.timeout(400)
def test_report_example_runs_as_written(java_runs, tmp_path):
    telemetry, router = tmp_path / "telemetry", None
    section = ("telemetry", {"path": telemetry, "interval": 1, "fileSeconds": 1})
    folder = tmp_path / "router"
    folder.mkdir()
    router = RouterProcess(folder, [listener("amqp"), *SETTINGS, section], 2)
    router.start()
    try:
        receiver = AmqpPeer.opened(router.ports["amqp"]).receiver("balanced/orders", COUNT)
        sender = AmqpPeer.opened(router.ports["amqp"]).sender("balanced/orders")
        for _ in range(COUNT):
            number = sender.send(message.message("x"))
            receiver.next().settle()
            assert sender.outcome(number).name == "accepted"
        outputs = []
        for words in commands():
            words = [str(telemetry) if word == "/var/lib/sluice/telemetry" else word for word in words]
            if "apply" in words:
                words += ["-b", f"127.0.0.1:{router.ports['amqp']}"]
            program = [str(ROOT / ".venv" / "bin" / "sluice"), *words[1:]]
            if "report" in words:
                router.stop()  # the last rows are written at the stop
            done = subprocess.run(
                program, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, done.stderr
            outputs.append(done.stdout)
            if "recommend" in words:
                router.start()
    finally:
        if router.alive:
            router.stop()
    page = (tmp_path / "report.html").read_text()
    assert f'<td data-head="Address">balanced/orders</td><td class=n data-head="Deliveries">{COUNT}</td>' in page
    plan = json.loads((tmp_path / "plan.json").read_text())
    # Sender and receiver are on one host, so no better placement exists.
    assert plan["rules"] == plan["inverse"] == []
    assert len(outputs) == 5
    assert "no placements for router QDR" in outputs[-1]
