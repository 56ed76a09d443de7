"""The worked example of docs/user/telemetry.md: a router, clients, a report."""

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
    telemetry = tmp_path / "telemetry"
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
    finally:
        router.stop()  # the last rows are written at the stop
    (words,) = commands()
    words = [str(telemetry) if word == "/var/lib/sluice/telemetry" else word for word in words]
    program = [str(ROOT / ".venv" / "bin" / "sluice"), *words[1:]]
    done = subprocess.run(
        program, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert f'<td data-head="Address">balanced/orders</td><td class=n data-head="Deliveries">{COUNT}</td>' in page
