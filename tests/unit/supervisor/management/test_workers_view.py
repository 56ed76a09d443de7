"""Operation GET-WORKERS: state of each worker."""

import os

from sluice.router.ring.layout import DROP_NAMES
from sluice.router.testing.interworker import RingEnd, set_worker
from sluice.supervisor.management.workers_view import process, rings


def test_get_workers_describes_workers(router):
    one, two = router.ask("GET-WORKERS").body
    assert (one["worker"], two["worker"], one["generation"]) == (0, 1, 1)
    assert [ring["to"] for ring in one["rings"]] == [1]
    assert one["rings"][0]["sizeOctets"] == 4096
    assert set(one["dropped"]) == set(DROP_NAMES)
    assert (one["latencyP50Seconds"], sum(one["latencyHistogram"])) == (None, 0)


def test_worker_that_never_woke_has_no_time_of_wake(router):
    set_worker(router.region, 0, heartbeat=1, sleeping=1)
    one, two = router.ask("GET-WORKERS").body
    assert one["secondsSinceWake"] > 0
    assert (one["sleeping"], two["secondsSinceWake"], two["sleeping"]) == (True, None, False)


def test_waiting_octets_are_shown_for_producer_of_ring(router):
    assert RingEnd(router.region, 0, 1).write(bytes(100))
    (outgoing,), (other,) = rings(router.region, 0), rings(router.region, 1)
    assert (outgoing["to"], outgoing["usedOctets"] >= 100) == (1, True)
    assert (other["to"], other["usedOctets"]) == (0, 0)


def test_worker_without_process_has_no_time_and_memory():
    assert process(0) == (None, None)
    cpu, resident = process(os.getpid())
    assert cpu
    assert resident
