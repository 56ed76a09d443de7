"""amqpload against Qpid Proton, an independent implementation of AMQP."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loadtests.conftest import amqpload

pytest.importorskip("proton")
BROKER = Path(__file__).with_name("proton_broker.py")


@pytest.fixture
def broker() -> Iterator[tuple[int, int]]:
    """Yield port and process id of a Proton broker."""
    process = subprocess.Popen([sys.executable, str(BROKER)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the broker ended with status {process.wait()}"
    yield int(line.rpartition(":")[2]), process.pid
    process.terminate()
    process.communicate()


@pytest.mark.parametrize(
    "options",
    [
        {"count": 500},
        {"count": 500, "presettled": True},
        {"count": 10, "size": 200_000, "max_frame": 4_096, "session_window": 10},
        {"count": 100, "pairs": 4, "distinct": True},
        {"count": 200, "first_id": 2**32 - 20},
        {"count": 60, "senders": 3, "receivers": 2},
    ],
    ids=["unsettled", "presettled", "large", "pairs", "wrapping", "shared"],
)
def test_messages_pass_through_proton(broker: tuple[int, int], options: dict[str, object]) -> None:
    port, pid = broker
    run = amqpload(port=port, pid=pid, **options)
    assert run.status == 0, run.complaints
    senders = options.get("pairs", options.get("senders", 1))
    assert isinstance(senders, int)
    assert isinstance(options["count"], int)
    wanted = options["count"] * senders
    assert run.report["sent"] == run.report["received"] == wanted
    assert run.report["accepted"] == (0 if options.get("presettled") else wanted)
    assert run.report["router_cpu"]["us_per_delivery"] > 0
    assert run.report["router_memory_kib"]["rss_peak"] > 1024


def test_multicast_copies_are_counted(broker: tuple[int, int]) -> None:
    port, _ = broker
    run = amqpload(port=port, address="multicast/a", receivers=5, multicast=True, presettled=True, count=100)
    assert run.status == 0, run.complaints
    assert (run.report["sent"], run.report["received"]) == (100, 500)


def test_missing_multicast_copies_are_lost(broker: tuple[int, int]) -> None:
    """A queue gives each message to one of two receivers, so half of the copies are missing."""
    port, _ = broker
    run = amqpload(port=port, address="queue", receivers=2, multicast=True, presettled=True, count=100, stall_seconds=1)
    assert (run.status, run.report["received"], run.report["lost"]) == (1, 100, 100)


def test_idle_connections_are_opened_and_counted(broker: tuple[int, int]) -> None:
    port, pid = broker
    # Proton's backlog is 10.
    run = amqpload(port=port, pid=pid, idle=200, opening=4, address="idle")
    assert run.status == 0, run.complaints
    assert (run.report["connections"], run.report["closed"]) == (200, 0)
    assert run.report["per_second"] > 0
    assert run.report["kib_per_connection"] > 1  # Proton needs more; a failed measurement would be 0


def test_placement_finds_process_of_broker(broker: tuple[int, int]) -> None:
    port, pid = broker
    run = amqpload(port=port, pid=pid, place="together", count=10)
    assert run.status == 0, run.complaints
    assert run.report["sender_pid"] == run.report["receiver_pid"] == pid


def test_impossible_placement_is_a_fault(broker: tuple[int, int]) -> None:
    port, pid = broker
    run = amqpload(port=port, pid=pid, place="apart", count=10)
    assert run.status == 1
    assert "none was placed as wanted" in run.complaints
