"""Throttling of senders by the router itself, in the answer of EXPLAIN."""

from __future__ import annotations

import pytest

from sluice.router.cgroup import CgroupLimit
from sluice.router.config.policy_entities import SharedLimits
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.router.testing.interworker import set_worker
from sluice.supervisor.history.processor_limit import ProcessorLimit
from sluice.supervisor.management.throttling import SECOND, used_up
from sluice.supervisor.policy.shared_usage import LimitedUsage, SharedUsage
from tests.unit.supervisor.management.managed_router import ManagedRouter

NOW = 10**15  # ns
MIB = 1 << 20
QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})


def findings(router: ManagedRouter, address: str) -> list[str]:
    found: list[str] = router.ask("EXPLAIN", address=address).body["findings"]
    return found


@pytest.mark.parametrize(
    ("limits", "counters", "expected"),
    [
        ({"messages_per_second": 10}, {"messages_until": NOW}, []),
        ({"messages_per_second": 10}, {"messages_until": NOW + SECOND * 9 // 10}, []),
        (
            {"messages_per_second": 10},
            {"messages_until": NOW + SECOND * 9 // 10 + 1},
            ["maxMessagesPerSecond (10)"],
        ),
        ({"messages_per_second": 1}, {"messages_until": NOW}, []),
        ({"messages_per_second": 1}, {"messages_until": NOW + 1}, ["maxMessagesPerSecond (1)"]),
        ({"octets_per_second": 1000}, {"octets_until": NOW + SECOND}, ["maxOctetsPerSecond (1000)"]),
        ({}, {"messages_until": NOW + 9 * SECOND, "octets_until": NOW + 9 * SECOND, "buffered": 9}, []),
        ({"buffered_octets": 100}, {"buffered": 99}, []),
        ({"buffered_octets": 100}, {"buffered": 100}, ["maxBufferedOctets (100)"]),
    ],
)
def test_used_up_limits_are_named(limits: dict[str, int], counters: dict[str, int], expected: list[str]) -> None:
    bound = LimitedUsage(SharedUsage(), SharedLimits(**limits))
    assert used_up(bound, {"messages_until": 0, "octets_until": 0, "buffered": 0, **counters}, NOW) == expected


def test_worker_near_its_memory_limit_is_named() -> None:
    router = ManagedRouter()
    router.link(router.connection(), "in", "q", credit=1)
    router.link(router.connection(worker=1), "out", "q", credit=1)
    limit = router.configuration.router.buffered_megabytes
    set_worker(router.region, 1, generation=1, buffered=limit * MIB)
    assert not any("Worker" in each for each in findings(router, "q")), "no sender is at worker 1"
    set_worker(router.region, 0, generation=1, buffered=limit * MIB * 3 // 4 - 1)
    assert not any("Worker" in each for each in findings(router, "q"))
    set_worker(router.region, 0, generation=1, buffered=limit * MIB * 3 // 4)
    assert findings(router, "q")[-1] == (
        f"Worker 0 holds {limit * 3 // 4} MiB of messages that receivers have not taken, of at most {limit}: "
        "near this limit 1 sender to this address waits for credit"
    )


def test_control_group_that_is_stopped_is_named() -> None:
    router = ManagedRouter()
    router.link(router.connection(), "in", "q", credit=1)
    router.core.history.limit = ProcessorLimit(CgroupLimit(0.5, "/cpu.max"), ProcessLog(QUIET))  # type: ignore[misc]
    router.core.history.limit.share = 0.62
    assert findings(router, "q")[-1] == (
        "The control group may use 0.5 cores (/cpu.max) and was stopped in 62% of its periods: "
        "1 sender to this address waits meanwhile"
    )
    router.core.history.limit.share = 0.05
    assert not any("control group" in each for each in findings(router, "q"))


def test_busy_worker_is_named_with_the_senders_that_it_has() -> None:
    router = ManagedRouter()
    here = router.connection()
    for connection in (here, here, router.connection(), router.connection(worker=1)):
        router.link(connection, "in", "q", credit=1)
    router.core.history.loads = {0: 0.97, 1: 0.8}
    assert findings(router, "q")[-1] == (
        "Worker 0 has used 97% of its core in the last seconds: 2 senders to this address wait for their turn"
    )
    assert not any("Worker" in each for each in findings(router, "other"))
