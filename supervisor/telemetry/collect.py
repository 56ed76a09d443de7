"""Collection of the data of /metrics in slices, between which other events are handled."""

import heapq
from array import array
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import psutil
from msgspec import Struct, field

from sluice.router.addressing.address import MOBILE
from sluice.router.ring.region import Region
from sluice.router.stats.sums import LINK_SUMS, AddressCounters, add_links
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.telemetry.linked import SLICE, linked
from sluice.supervisor.telemetry.other_addresses import OtherAddresses
from sluice.supervisor.telemetry.usage import Usage, UsageRow, UsageSums

SHOWN_ADDRESSES: Final = 100  # addresses with series of their own: those with the most deliveries
ADDRESSES_SLICE: Final = 1 << 14  # address counters of one worker read without a pause
NO_ADDRESS: Final = 0  # address ids start at 1
KIND_ENDPOINT: Final = "endpoint"  # value of the label `kind`, at present the same for all links


class WorkerRow(Struct):
    """Worker: the supervisor's object, its counters in shared memory, and usage of its process (0 without
    a process).
    """

    worker: WorkerProcess
    counters: dict[str, Any]
    cpu_seconds: float = 0.0
    resident: int = 0


class AddressRow(Struct):
    """Address with series of its own, or the sum of all others (`record` is None). `counters`: as ADDRESS_SUMS."""

    record: AddressRecord | None
    counters: list[int]
    consumers: int
    producers: int
    undelivered: int


class MetricsSnapshot(Struct):
    """Data of a metrics page, collected within milliseconds."""

    workers: list[WorkerRow] = field(default_factory=list)
    # producer, consumer, octets used, octets written
    rings: list[tuple[int, int, int, int]] = field(default_factory=list)
    links: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)  # LINK_SUMS by kind, role and direction
    connections: dict[str, int] = field(default_factory=dict)  # by name of the listener
    addresses: list[AddressRow] = field(default_factory=list)  # the last row has the sum of all other addresses
    address_count: int = 0
    stalls: Sequence[int] = ()  # stalled links by StallReason
    users: list[tuple[str, UsageRow]] = field(default_factory=list)
    vhosts: list[tuple[str, UsageRow]] = field(default_factory=list)


class MetricsCollector:
    """Collector of snapshots, one at a time. Owner: the pages."""

    def __init__(
        self,
        core: RouterCore,
        region: Region,
        counters: AddressCounters,
        usage: Usage,
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        """pause: awaited between slices."""
        self._core = core
        self._region = region
        self._counters = counters
        self._usage = usage
        self._pause = pause
        self._others = OtherAddresses()
        self._processes: dict[int, psutil.Process] = {}

    async def collect(self) -> MetricsSnapshot:
        """Return a snapshot of the present state."""
        snapshot = MetricsSnapshot()
        undelivered = array("Q", bytes(8 * self._core.counter_slots.end))
        await self._add_links(snapshot, undelivered)
        await self._add_addresses(snapshot, undelivered)
        await self._add_workers(snapshot)
        await self._add_rings(snapshot)
        return snapshot

    async def _add_workers(self, snapshot: MetricsSnapshot) -> None:
        for worker in list(self._core.workers.values()):
            row = WorkerRow(worker, self._region.worker_counters(worker.index))
            process = self._process(worker)
            if process is not None:
                try:
                    times = process.cpu_times()
                    row.cpu_seconds = times.user + times.system
                    row.resident = process.memory_info().rss
                except psutil.Error:  # just exited, as its pidfd will report
                    del self._processes[worker.index]
            snapshot.workers.append(row)
            await self._pause()

    def _process(self, worker: WorkerProcess) -> psutil.Process | None:
        if worker.pidfd is None:
            return None
        known = self._processes.get(worker.index)
        if known is None or known.pid != worker.pid:
            try:
                known = self._processes[worker.index] = psutil.Process(worker.pid)
            except psutil.Error:
                return None
        return known

    async def _add_rings(self, snapshot: MetricsSnapshot) -> None:
        for producer in range(self._region.workers):
            for consumer in range(self._region.workers):
                if consumer != producer:
                    state = self._region.ring_state(producer, consumer)
                    snapshot.rings.append((producer, consumer, state["used"], state["head"]))
            await self._pause()

    async def _add_links(self, snapshot: MetricsSnapshot, undelivered: "array[int]") -> None:
        sums = _LinkSums(self._region, undelivered)
        usage = UsageSums(self._usage, self._region)
        counted = None  # connection that has been counted; one with many links comes several times
        async for worker, found in linked(self._core, self._pause):
            for connection, links in found:
                origin = connection.origin
                if connection is not counted:
                    counted = connection
                    snapshot.connections[origin.name] = snapshot.connections.get(origin.name, 0) + 1
                sums.take(origin.role, links)
                usage.take(connection, links)
            sums.add(worker)
            usage.add(worker)
        snapshot.links = sums.by_group()
        usage.finish()
        snapshot.stalls = usage.stalls
        snapshot.users, snapshot.vhosts = list(self._usage.users.rows()), list(self._usage.vhosts.rows())

    async def _add_addresses(self, snapshot: MetricsSnapshot, undelivered: "array[int]") -> None:
        table = self._core.table
        ids = len(undelivered)
        # read first, so that addresses removed in the meantime are not counted twice
        sums = array("Q", self._counters.removed_totals())
        traffic = array("Q", bytes(8 * ids))
        step = max(1, ADDRESSES_SLICE // self._region.workers)
        for start in range(0, ids, step):
            self._counters.add(start, min(start + step, ids), sums, traffic)
            await self._pause()
        for _, number in self._core.taps.slots():  # counters of taps are none of addresses
            if number < ids:
                for place, count in enumerate(self._counters.of(number)):
                    sums[place] -= min(count, sums[place])  # counted since the sums were read
        present = bytearray(ids)
        shown: list[AddressRecord] = []
        rest = AddressRow(None, [], 0, 0, sum(undelivered) - undelivered[NO_ADDRESS])
        records = list(table.records.values())
        for start in range(0, len(records), SLICE):
            named = []
            for record in records[start : start + SLICE]:
                if record.id >= ids:  # created after the start of this page
                    continue
                present[record.id] = 1
                rest.consumers += len(record.consumers or ())
                rest.producers += record.producers
                if record.key.startswith(MOBILE):
                    named.append(record)
            if len(shown) == SHOWN_ADDRESSES:
                least = traffic[shown[-1].id]
                named = [record for record in named if traffic[record.id] > least]
            # Stable sort: of two addresses with equal traffic the older one gets the series.
            shown = heapq.nlargest(SHOWN_ADDRESSES, shown + named, key=lambda record: traffic[record.id])
            await self._pause()
        snapshot.address_count = len(table.records)
        # No pause from here on.
        rows = {
            record: AddressRow(
                record,
                self._counters.of(record.id),
                len(record.consumers or ()),
                record.producers,
                undelivered[record.id],
            )
            for record in shown
            if table.records.get(record.key) is record
        }
        rest.counters = self._others.update(sums, {record: row.counters for record, row in rows.items()}, present)
        for row in rows.values():
            rest.consumers = max(0, rest.consumers - row.consumers)
            rest.producers = max(0, rest.producers - row.producers)
            rest.undelivered -= row.undelivered
        snapshot.addresses = [*rows.values(), rest]


class _LinkSums:
    """Sums of link counters by group. Owner: one page."""

    def __init__(self, region: Region, undelivered: "array[int]") -> None:
        """undelivered: by address id; grows by the undelivered deliveries of consumers' links."""
        self._region = region
        self._undelivered = undelivered
        self._groups: dict[tuple[str, str, str], int] = {}
        self._sums = array("Q")
        self._slots, self._numbers, self._addresses = array("I"), array("I"), array("I")

    def take(self, role: str, links: Collection[RegisteredLink]) -> None:
        """Collect links of one connection. `add` counts them."""
        incoming, outgoing = self._group((KIND_ENDPOINT, role, "in")), self._group((KIND_ENDPOINT, role, "out"))
        ids = len(self._undelivered)
        for link in links:
            record = link.record
            waits = link.consumer and record is not None and record.id < ids
            self._slots.append(link.slot)
            self._numbers.append(outgoing if link.consumer else incoming)
            self._addresses.append(record.id if waits and record is not None else NO_ADDRESS)

    def _group(self, labels: tuple[str, str, str]) -> int:
        number = self._groups.get(labels)
        if number is None:
            number = self._groups[labels] = len(self._groups)
            self._sums.extend([0] * len(LINK_SUMS))
        return number

    def add(self, worker: int) -> None:
        """Count the collected links, which must all belong to this worker."""
        add_links(self._region, worker, self._slots, self._numbers, self._addresses, self._sums, self._undelivered)
        self._slots, self._numbers, self._addresses = array("I"), array("I"), array("I")

    def by_group(self) -> dict[tuple[str, str, str], list[int]]:
        """Return LINK_SUMS by kind, role and direction."""
        size = len(LINK_SUMS)
        return {labels: list(self._sums[at * size : (at + 1) * size]) for labels, at in self._groups.items()}
