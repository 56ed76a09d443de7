"""Bystanders detect disturbances."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.bystanders.bystanders import CONTAINER, LATE_ALONE, LATE_BESIDE, TENANT
from tests.system.bystanders.harness import BystanderHarness, with_bystanders
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, listener, poll

WORKER_COUNTS = (1, 3)


@pytest.fixture
def attended_router(start: Start, workers: int) -> RouterProcess:
    return start(with_bystanders([listener()], neighbour="inter-router"), workers)


@pytest.fixture
def harness(attended_router: RouterProcess, tmp_path: Path) -> Iterator[BystanderHarness]:
    harness = BystanderHarness(attended_router, tmp_path)
    yield harness
    harness.stop()


def rows(management: Management, kind: str) -> list[dict[str, object]]:
    return [row for row in management.query(kind) if CONTAINER in str(row.get("container") or row.get("owningAddr"))]


def test_undisturbed_bystanders_pass_checks(harness: BystanderHarness) -> None:
    harness.check()
    harness.check()


def test_closed_connection_is_noticed(harness: BystanderHarness, attended_router: RouterProcess) -> None:
    with AmqpPeer.opened(attended_router.port) as own:
        management = Management(own)
        client = next(row for row in rows(management, "connection") if row["role"] == "normal")
        management.update("connection", str(client["identity"]), adminStatus="deleted")

        def there() -> set[object]:
            return {row["identity"] for row in rows(management, "connection")}

        poll(lambda: client["identity"] not in there(), "the connection is gone")
        with pytest.raises(AssertionError, match="was ended|has ended"):
            harness.check()
    harness.start()
    harness.check()


def test_stolen_secret_message_is_noticed(harness: BystanderHarness, attended_router: RouterProcess) -> None:
    with AmqpPeer.opened(attended_router.port) as stranger:
        management = Management(AmqpPeer.opened(attended_router.port))
        keys = {str(row["owningAddr"]) for row in rows(management, "router.link")}
        (key,) = (key for key in keys if TENANT in key)
        receiver = stranger.receiver(key.partition(TENANT)[1] + key.partition(TENANT)[2], 100)
        receiver.next()
        with pytest.raises(AssertionError, match="was expected|has not arrived|no outcome|seen by others"):
            harness.check()


def test_stopped_worker_is_noticed(harness: BystanderHarness, attended_router: RouterProcess) -> None:
    harness.check()
    victim = attended_router.worker_pids()[0]
    os.kill(victim, signal.SIGSTOP)
    continue_worker = threading.Timer(LATE_ALONE + LATE_BESIDE, os.kill, (victim, signal.SIGCONT))
    continue_worker.start()
    with pytest.raises(AssertionError, match=r"after \d\.\d s|took \d\.\d s"):
        harness.check()
    continue_worker.join()


def test_excessive_memory_is_noticed(attended_router: RouterProcess, tmp_path: Path) -> None:
    harness = BystanderHarness(attended_router, tmp_path, memory_most=1 << 20)
    with pytest.raises(AssertionError, match="MiB of memory"):
        harness.check()


def test_secret_in_log_is_noticed(harness: BystanderHarness, attended_router: RouterProcess) -> None:
    secret = harness.secret.decode()
    with AmqpPeer.opened(attended_router.port, container_id=f"who knows {secret}"):
        poll(lambda: secret in attended_router.log, "the log has it")
        with pytest.raises(AssertionError, match="seen by others"):
            harness.check()
