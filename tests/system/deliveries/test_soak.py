"""Random, seeded traffic of seventeen connections: nothing stalls, is lost, is changed or is settled twice."""

from __future__ import annotations

import os
import threading

import pytest

from tests.system.counters import Counters
from tests.system.deliveries.traffic import Actor, ReceiverActor, SenderActor, TrafficRecord
from tests.system.deliveries.traffic_checks import check
from tests.system.fixtures import Start
from tests.system.router import SETTINGS, RouterProcess, listener, poll

WORKER_COUNTS = (1, 3)
#: Seed of the traffic; SLUICE_SOAK_SEED=7 makes another run of the same kind.
SEED = int(os.environ.get("SLUICE_SOAK_SEED", "1"))
#: Duration of the traffic in seconds; SLUICE_SOAK_SECONDS overrides it.
SECONDS = float(os.environ.get("SLUICE_SOAK_SECONDS", "12"))
#: Seconds after which unfinished traffic counts as stalled.
FINISH_TIMEOUT = 30.0
#: Octets by which the supervisor and each worker may grow in the first run, and in the second run. Memory is compared
#: after idle workers have returned their spare memory to the operating system.
FIRST_GROWTH = (8 << 20, 4 << 20)
GROWTH = (6 << 20, 2 << 20)
#: Seconds until an idle worker has returned its spare memory.
RETURN_TIMEOUT = 30.0
#: Addresses whose consumers attach and detach at random, and addresses whose consumers stay and always grant credit.
WILD = ["balanced/w0", "balanced/w1", "closest/w0", "multicast/w0"]
CALM = ("balanced/calm0", "balanced/calm1", "closest/calm0")
MULTICAST = "multicast"
#: Marks of log lines that fail the test.
FAULTS = ("(critical)", "Traceback", "(error)")


def actors(router: RouterProcess, record: TrafficRecord, seed: int) -> tuple[list[SenderActor], list[ReceiverActor]]:
    """Return eight senders and nine receivers, with a connection each."""
    port = router.port
    receivers = [ReceiverActor(f"R{n}", port, seed * 100 + n, record, WILD[n % 4 :], False) for n in range(6)]
    receivers += [ReceiverActor(f"C{n}", port, seed * 100 + 20 + n, record, list(CALM), True) for n in range(3)]
    senders = [SenderActor(f"S{n}", port, seed * 100 + 40 + n, record, [*WILD, None], WILD, False) for n in range(5)]
    senders += [SenderActor(f"T{n}", port, seed * 100 + 60 + n, record, [*CALM], list(CALM), True) for n in range(3)]
    return senders, receivers


def run(router: RouterProcess, seconds: float, seed: int) -> TrafficRecord:
    """Run traffic for `seconds`, then wait until all deliveries are finished and all actors have left."""
    record = TrafficRecord()
    senders, receivers = actors(router, record, seed)
    everybody: list[Actor] = [*senders, *receivers]
    for actor in everybody:
        actor.start()
    threading.Event().wait(seconds)
    for actor in everybody:
        actor.finishing.set()

    def finished() -> bool:
        return bool(record.faults) or not sum(sender.waiting for sender in senders)

    try:
        poll(finished, "all outcomes come", FINISH_TIMEOUT)
        with Counters(router) as counters:
            counters.wait_gauges("what is queued is delivered")
    except AssertionError as error:
        record.faults.append(f"stalled: {error}")
    for actor in everybody:
        actor.leaving.set()
    for actor in everybody:
        actor.join(FINISH_TIMEOUT)
        if actor.is_alive():
            record.faults.append(f"{actor.name} does not end")
    return record


def wait_memory(router: RouterProcess, most: int) -> int:
    """Wait until the router's memory is at most `most` octets, and return it."""
    found = 0

    def fell() -> bool:
        nonlocal found
        found = router.memory()
        return found <= most

    poll(fell, f"at most {most} octets of memory", RETURN_TIMEOUT)
    return found


@pytest.mark.long
@pytest.mark.timeout(120 + 2 * SECONDS)
def test_soak_traffic_leaves_no_fault_and_no_memory(start: Start, workers: int) -> None:
    router = start([listener(), *SETTINGS], workers)
    with Counters(router) as counters:
        at_start = router.memory()
        check(run(router, SECONDS / 4, SEED + 1000), CALM, MULTICAST)
        counters.wait_gauges("after the first run", connections=0, links=0)
        memory = wait_memory(router, at_start + FIRST_GROWTH[0] + workers * FIRST_GROWTH[1])
        before = counters.totals()
        record = run(router, SECONDS, SEED)
        check(record, CALM, MULTICAST)
        assert len(record.sent) > 1000, "hardly any traffic"
        counters.wait_gauges("after the run", connections=0, links=0)
        counters.wait_balance(before)
        assert counters.totals()["checks_failed"] == 0
    wait_memory(router, memory + GROWTH[0] + workers * GROWTH[1])
    faults = [line for line in router.lines if any(mark in line for mark in FAULTS)]
    assert not faults, faults[:3]
