"""Findings of EXPLAIN about throttling by the router itself: senders of an address that it slows down.

A link on which something moves is not stalled, however slow it is (supervisor/management/stalls.py). So a limit that
lets some messages pass in each second is found here, from the present state of the limits.
"""

import time
from collections.abc import Iterator
from typing import Final

from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.policy.shared_usage import LimitedUsage

MIB: Final = 1 << 20
SECOND: Final = 1_000_000_000  # ns
# Share of its limit from which on a worker that has reached the limit gives no credit (router/amqp/memory.pyx).
CROWDED: Final = 0.75
# Share of a core from which on connections of a worker wait for their slices.
BUSY: Final = 0.9
# Share of the periods in which the kernel stops the control group from which on latency suffers.
STOPPED: Final = 0.1
_NAMED: Final = 5  # quotas named in findings


class ThrottledSenders:
    """Connections that send to an address, by worker and by the quotas that they share. Owner: one EXPLAIN."""

    def __init__(self, context: AgentContext) -> None:
        self._context: Final = context
        self._seen: Final[set[int]] = set()  # numbers of connections
        self._by_worker: Final[dict[int, int]] = {}  # connections by worker
        self._by_quota: Final[dict[int, tuple[LimitedUsage, str, int]]] = {}  # with owner and connections, by slot

    def add(self, link: RegisteredLink) -> None:
        """Add the connection of a link. Links on which the router sends are ignored."""
        connection = link.connection
        if link.consumer or connection.number in self._seen:
            return
        self._seen.add(connection.number)
        self._by_worker[link.worker] = self._by_worker.get(link.worker, 0) + 1
        for owner, bound in self._context.core.policy.bounds_of(connection.number):
            if bound.scope is not None:
                slot = bound.scope[0]
                count = self._by_quota[slot][2] if slot in self._by_quota else 0
                self._by_quota[slot] = bound, owner, count + 1

    def findings(self) -> list[str]:
        """Return a sentence for each limit that slows these senders down."""
        return [*self._quotas(), *self._workers(), *self._processors()]

    def _quotas(self) -> Iterator[str]:
        now = time.monotonic_ns()
        named = 0
        for slot, (bound, owner, count) in self._by_quota.items():
            used = used_up(bound, self._context.region.quota_counters(slot), now)
            if not used:
                continue
            if named == _NAMED:
                yield "… and other quotas"
                return
            named += 1
            yield f"{owner} has used up {' and '.join(used)}: {_senders(count)} for credit"

    def _workers(self) -> Iterator[str]:
        core, limit = self._context.core, self._context.changes.configuration.router.buffered_megabytes
        for worker, count in sorted(self._by_worker.items()):
            held = self._context.region.worker_counters(worker)["buffered"] / MIB
            if held >= CROWDED * limit:
                text = f"Worker {worker} holds {held:.0f} MiB of messages that receivers have not taken"
                yield f"{text}, of at most {limit}: near this limit {_senders(count)} for credit"
            load = core.history.loads.get(worker, 0.0)
            if load >= BUSY:
                text = f"Worker {worker} has used {load:.0%} of its core in the last seconds"
                yield f"{text}: {_senders(count)} for their turn"

    def _processors(self) -> Iterator[str]:
        limit = self._context.core.history.limit
        if self._by_worker and limit.share >= STOPPED:
            yield f"{limit.text}: {_senders(sum(self._by_worker.values()))} meanwhile"


def used_up(bound: LimitedUsage, counters: dict[str, int], now: int) -> list[str]:
    """Return the attributes of the limits that let no message pass at present, with their values.

    counters: of the quota. now: CLOCK_MONOTONIC in ns. A rate has a burst of a second (router/policy/quota.pyx).
    """
    limits = bound.limits
    found = []
    for name, rate, until in (
        ("maxMessagesPerSecond", limits.messages_per_second, counters["messages_until"]),
        ("maxOctetsPerSecond", limits.octets_per_second, counters["octets_until"]),
    ):
        if rate and until + SECOND // rate > now + max(SECOND, SECOND // rate):
            found.append(f"{name} ({rate})")
    if limits.buffered_octets and counters["buffered"] >= limits.buffered_octets:
        found.append(f"maxBufferedOctets ({limits.buffered_octets})")
    return found


def _senders(count: int) -> str:
    return "1 sender to this address waits" if count == 1 else f"{count} senders to this address wait"
