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
from tests.system.bystanders.site import BystanderSite, with_bystanders
from tests.system.fixtures import Start
from tests.system.router import Router, listener, poll

WORKER_COUNTS = (1, 3)


@pytest.fixture
def attended(start: Start, workers: int) -> Router:
    return start(with_bystanders([listener()], neighbour="inter-router"), workers)


@pytest.fixture
def beside(attended: Router, tmp_path: Path) -> Iterator[BystanderSite]:
    beside = BystanderSite(attended, tmp_path)
    yield beside
    beside.stop()


def rows(management: Management, kind: str) -> list[dict[str, object]]:
    return [row for row in management.query(kind) if CONTAINER in str(row.get("container") or row.get("owningAddr"))]


def test_nothing_happens(beside: BystanderSite) -> None:
    beside.check()
    beside.check()


def test_a_connection_is_closed(beside: BystanderSite, attended: Router) -> None:
    with AmqpPeer.opened(attended.port) as own:
        management = Management(own)
        client = next(row for row in rows(management, "connection") if row["role"] == "normal")
        management.update("connection", str(client["identity"]), adminStatus="deleted")

        def there() -> set[object]:
            return {row["identity"] for row in rows(management, "connection")}

        poll(lambda: client["identity"] not in there(), "the connection is gone")
        with pytest.raises(AssertionError, match="was ended|has ended"):
            beside.check()
    beside.begin()
    beside.check()


def test_a_stranger_takes_a_secret_message(beside: BystanderSite, attended: Router) -> None:
    with AmqpPeer.opened(attended.port) as stranger:
        management = Management(AmqpPeer.opened(attended.port))
        keys = {str(row["owningAddr"]) for row in rows(management, "router.link")}
        (key,) = (key for key in keys if TENANT in key)
        receiver = stranger.receiver(key.partition(TENANT)[1] + key.partition(TENANT)[2], 100)
        receiver.next()
        with pytest.raises(AssertionError, match="was expected|has not arrived|no outcome|seen by others"):
            beside.check()


def test_a_worker_stands_still(beside: BystanderSite, attended: Router) -> None:
    beside.check()
    victim = attended.worker_pids()[0]
    os.kill(victim, signal.SIGSTOP)
    goes_on = threading.Timer(LATE_ALONE + LATE_BESIDE, os.kill, (victim, signal.SIGCONT))
    goes_on.start()
    with pytest.raises(AssertionError, match=r"after \d\.\d s|took \d\.\d s"):
        beside.check()
    goes_on.join()


def test_a_worker_has_too_much_memory(attended: Router, tmp_path: Path) -> None:
    beside = BystanderSite(attended, tmp_path, memory_most=1 << 20)
    with pytest.raises(AssertionError, match="MiB of memory"):
        beside.check()


def test_a_secret_in_the_log(beside: BystanderSite, attended: Router) -> None:
    secret = beside.secret.decode()
    with AmqpPeer.opened(attended.port, container_id=f"who knows {secret}"):
        poll(lambda: secret in attended.log, "the log has it")
        with pytest.raises(AssertionError, match="seen by others"):
            beside.check()
