"""Placement plan from telemetry: applied to a router it reduces traffic across workers, and `--undo` removes it."""

from __future__ import annotations

import json
import socket
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from pipeline import recommend
from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.router import SETTINGS, listener, poll
from tests.system.telemetry import Row, rows
from tests.system.tools import command, environment

WORKERS = 3
PAIRS = 6
COUNT = 20


def _connect_from(number: int, port: int) -> AmqpPeer:
    peer = AmqpPeer(socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.1.{number + 1}", 0)))
    peer.open()
    return peer


def send_through_pairs(port: int, shift: int) -> list[AmqpPeer]:
    """Send through pairs of clients, each with an address of its own; return their connections.

    `shift` connections are opened first, which moves the choice of workers where no placement decides.
    """
    others = [_connect_from(200 + number, port) for number in range(shift)]
    peers = [_connect_from(number, port) for number in range(2 * PAIRS)]
    for number in range(PAIRS):
        receiver = peers[2 * number].receiver(f"balanced/pair{number}", COUNT)
        sender = peers[2 * number + 1].sender(f"balanced/pair{number}")
        for _ in range(COUNT):
            sender.send(message.message("x"), settled=True)
            receiver.next()
    return others + peers


def router_sections(path: Path) -> list[tuple[str, dict[str, object]]]:
    telemetry = {"path": path, "interval": 1, "fileSeconds": 1}
    return [listener("amqp"), *SETTINGS, ("telemetry", telemetry)]


def flows_of(path: Path) -> list[recommend.TrafficFlow]:
    """Return the flows of telemetry by host, as the Spark jobs compute them."""
    hosts = {row["connection_id"]: ("amqp", row["peer"].rpartition(":")[0]) for row in rows(path, "dim_connection")}
    return [
        recommend.TrafficFlow(
            hosts.get(row["connection_in"]), hosts.get(row["connection_out"]), row["worker_in"], row["worker_out"],
            row["deliveries"],
        )
        for row in rows(path, "fact_flow")
    ]  # fmt: skip


def share_across_workers(found: list[Row]) -> float:
    across = sum(row["deliveries"] for row in found if row["worker_in"] != row["worker_out"])
    return float(across / sum(row["deliveries"] for row in found))


def apply_plan(plan: Path, port: int, *words: str) -> str:
    """Run `sluice pipeline apply` and return its output."""
    words = (*command("pipeline"), "apply", str(plan), *words, "-b", f"127.0.0.1:{port}")
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_plan(path: Path, flows: list[recommend.TrafficFlow]) -> list[dict[str, object]]:
    now = datetime.now(timezone.utc)  # noqa: UP017
    rules = recommend.placement_plan("QDR", flows, WORKERS)
    path.write_text(json.dumps(recommend.make_plan(rules, [], now - timedelta(hours=1), now, now)))
    return rules


@pytest.mark.long
def test_placement_plan_applied_reduces_traffic_across_workers(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    before, after, plan = tmp_path / "before", tmp_path / "after", tmp_path / "plan.json"
    first = start(router_sections(before), WORKERS)
    peers = send_through_pairs(first.ports["amqp"], 1)
    poll(lambda: sum(row["deliveries"] for row in rows(before, "fact_flow")) >= PAIRS * COUNT, "all flows")
    first.stop()
    assert share_across_workers(rows(before, "fact_flow")) >= 0.5
    assert write_plan(plan, flows_of(before))

    second = start(router_sections(after), WORKERS)
    port = second.ports["amqp"]
    assert apply_plan(plan, port, "--dry-run").count("+ placement") >= 2 * PAIRS
    management = Management(AmqpPeer.opened(port))
    assert management.query("placement") == []
    apply_plan(plan, port, "--yes")
    made = len(management.query("placement"))
    assert made >= 2 * PAIRS
    assert "nothing to change" in apply_plan(plan, port, "--yes")
    peers += send_through_pairs(port, 1)
    assert apply_plan(plan, port, "--yes", "--undo").count("- placement") == made
    assert management.query("placement") == []
    second.stop()
    # All connections stayed open until here.
    assert len(peers) == 2 * (2 * PAIRS + 1)
    own = [row for row in rows(after, "fact_flow") if (row["address"] or "").startswith("balanced/pair")]
    assert share_across_workers(own) <= share_across_workers(rows(before, "fact_flow")) / 2
