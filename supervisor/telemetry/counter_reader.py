"""Rows of telemetry from counters in shared memory: increments since the last reading. In the telemetry process.

A row belongs to the link whose generation is in the slot, so a reused slot is never confused with an earlier one. The
final counts of a link stay in its slot for a while (`Region.keep_links`), so that the rows include its last
deliveries.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil

from sluice.router.ring.region import Region
from sluice.router.stats.snapshot import LINK_COUNTERS, LinkReader, SampleReader
from sluice.router.telemetry.schema import Row

if TYPE_CHECKING:
    from sluice.router.stats.snapshot import LinkRow, SampleRow

Rows = dict[str, list[Row]]
# Counters of workers, by column of `fact_worker`.
_WORKER_COUNTERS: Final = {
    "loop_turns": "wakes",
    **{
        name: name
        for name in (
            *("ingress", "egress", "transit", "accepted", "rejected", "released", "modified"),
            *("presettled", "dropped_presettled"),
        )
    },
}
_WORKER_GAUGES: Final = ("connections", "links", "buffered")
_OUTCOMES: Final = {0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}
_NS_A_MS: Final = 1_000_000
_US: Final = 1_000_000


class KnownLink(NamedTuple):
    """Facts that the supervisor has sent about a link."""

    link_id: int
    connection_id: int
    address: str | None


UNKNOWN: Final = KnownLink(0, 0, None)


class CounterReader:
    """Counters at the last reading, and facts about links and peers. Owner: the telemetry process."""

    def __init__(self, region: Region, boot: str) -> None:
        self._region: Final = region
        self._boot: Final = boot
        self._readers = [LinkReader(region, worker) for worker in range(region.workers)]
        self._samples = [SampleReader(region, worker) for worker in range(region.workers)]
        self._workers: list[dict[str, Any]] = [{} for _ in range(region.workers)]
        self._heads: dict[tuple[int, int], int] = {}
        self._cpu: dict[int, tuple[float, float]] = {}  # user and system CPU seconds by pid
        self._looked = 0  # time of the last reading, CLOCK_MONOTONIC in ns
        self._began = time.time_ns() // 1000
        self._links: dict[tuple[int, int, int], KnownLink] = {}  # by worker, slot, generation
        # container and cost of connections to other routers, by connection number
        self._peers: dict[int, tuple[str, int]] = {}
        # Deliveries that a link took from rings but has not sent yet, as a negative number.
        self._owed: dict[tuple[int, int, int], int] = {}

    def set_link_facts(self, worker: int, slot: int, generation: int, known: KnownLink) -> None:
        """Store the facts about the link in a slot."""
        self._links[worker, slot, generation] = known

    def set_peer(self, connection: int, container: str, cost: int) -> None:
        """Store that a connection leads to another router."""
        self._peers[connection] = container, cost

    def remove_peer(self, connection: int) -> None:
        """Remove a closed connection."""
        self._peers.pop(connection, None)

    # State for a successor process

    def state(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the counters at the last reading: a part for JSON, and the link slots of each worker."""
        plain = {
            "workers": self._workers,
            "heads": [[*pair, head] for pair, head in self._heads.items()],
            "cpu": [[pid, *seconds] for pid, seconds in self._cpu.items()],
            "looked": self._looked,
            "began": self._began,
            "links": [[*place, *known] for place, known in self._links.items()],
            "peers": [[number, *peer] for number, peer in self._peers.items()],
            "samples": [reader.seen for reader in self._samples],
            "owed": [[*place, count] for place, count in self._owed.items()],
        }
        return plain, [reader.state for reader in self._readers]

    def resume(self, plain: Mapping[str, Any], slots: Sequence[bytes]) -> None:
        """Continue from the state of an earlier process. Raises ValueError, KeyError, TypeError for an unsuitable
        state.
        """
        if not len(slots) == len(plain["workers"]) == len(plain["samples"]) == self._region.workers:
            raise ValueError("the state of another region")
        readers = [LinkReader(self._region, worker, known) for worker, known in enumerate(slots)]
        samples = [SampleReader(self._region, worker, seen) for worker, seen in enumerate(plain["samples"])]
        self._heads = {(producer, consumer): head for producer, consumer, head in plain["heads"]}
        self._cpu = {pid: (user, system) for pid, user, system in plain["cpu"]}
        self._links = {(a, b, c): KnownLink(*known) for a, b, c, *known in plain["links"]}
        self._peers = {number: (container, cost) for number, container, cost in plain["peers"]}
        self._owed = {(a, b, c): count for a, b, c, count in plain["owed"]}
        self._looked, self._began = plain["looked"], plain["began"]
        self._readers, self._samples, self._workers = readers, samples, plain["workers"]

    # Reading

    def look(self) -> Rows:
        """Return the rows for all increments since the last reading."""
        now, wall = time.monotonic_ns(), time.time_ns() // 1000
        elapsed = (now - self._looked) // 1000 if self._looked else wall - self._began
        start = {"interval_start": wall - elapsed, "interval_ms": elapsed // 1000, "boot_id": self._boot}
        rows: Rows = {}
        # First, because the facts about a link are removed after its last counts have been read.
        rows["delivery_sample"] = [
            self._sample(wall - now // 1000, worker, row)
            for worker, reader in enumerate(self._samples)
            for row in reader.look()
        ]
        changed = [(worker, row) for worker, reader in enumerate(self._readers) for row in reader.look()]
        rows["fact_link"] = [self._link(start, now, worker, row) for worker, row in changed]
        rows["fact_flow"] = flows = self._flows(start, changed)
        rows["fact_internode"] = self._internode(start, rows["fact_link"], changed)
        rows["fact_worker"] = [self._worker(start, worker) for worker in range(self._region.workers)]
        rows["fact_ring"] = self._rings(start, flows)
        self._looked = now
        for worker, row in changed:
            if not row[2]:
                place = (worker, row[0], row[1])
                self._links.pop(place, None)
                self._owed.pop(place, None)
        return rows

    def _known(self, worker: int, row: "LinkRow") -> KnownLink:
        return self._links.get((worker, row[0], row[1]), UNKNOWN)

    def _link(self, start: Row, now: int, worker: int, row: "LinkRow") -> Row:
        _, _, present, incoming, _, capacity, credit, unsettled, undelivered, stuck, since, grown, _, latency, _ = row
        known = self._known(worker, row)
        without = max(0, now - max(since, self._looked)) // _NS_A_MS if present and since else 0
        return {
            **start,
            "worker": worker,
            "link_id": known.link_id,
            "connection_id": known.connection_id,
            "dir": "in" if incoming else "out",
            "address": known.address,
            **dict(zip(LINK_COUNTERS, grown, strict=True)),
            "unsettled": unsettled,
            "undelivered": undelivered,
            "credit": credit,
            "capacity": capacity,
            "stuck": stuck,
            "zero_credit_ms": without,
            "settle_hist": _histogram(latency),
        }

    def _flows(self, start: Row, changed: Sequence[tuple[int, "LinkRow"]]) -> list[Row]:
        sources = self._sources(changed)
        flows: list[Row] = []
        for worker, row in changed:
            if row[3]:
                continue
            place = (worker, row[0], row[1])
            taken, known = row[12], self._known(worker, row)
            # Deliveries that did not come from rings came from producers on the link's own worker. A link may have
            # taken more from rings than it has sent so far.
            own = row[11][0] - sum(taken) + self._owed.pop(place, 0)
            if own < 0:
                self._owed[place] = own
            for source, count in enumerate(taken):
                deliveries = max(own, 0) if source == worker else count
                if deliveries:
                    single = sources.get((source, known.address))
                    flows.append({
                        **start,
                        "worker_in": source,
                        "worker_out": worker,
                        "link_in": None if single is None else single.link_id,
                        "link_out": known.link_id,
                        "connection_in": None if single is None else single.connection_id,
                        "connection_out": known.connection_id,
                        "address": known.address,
                        "deliveries": deliveries,
                    })  # fmt: skip
        return flows

    def _sources(self, changed: Sequence[tuple[int, "LinkRow"]]) -> dict[tuple[int, str | None], KnownLink | None]:
        """Return by worker and address the only link that received deliveries for the address; None if there were
        several.
        """
        sources: dict[tuple[int, str | None], KnownLink | None] = {}
        anonymous = set()
        for worker, row in changed:
            if row[3] and row[11][0]:
                known = self._known(worker, row)
                if known.address is None:
                    anonymous.add(worker)
                sources[worker, known.address] = None if (worker, known.address) in sources else known
        return {place: None if place[0] in anonymous else known for place, known in sources.items()}

    def _internode(self, start: Row, links: Sequence[Row], changed: Sequence[tuple[int, "LinkRow"]]) -> list[Row]:
        found: dict[int, Row] = {}
        for link, (_, counted) in zip(links, changed, strict=True):
            number = link["connection_id"]
            peer = self._peers.get(number)
            if peer is None:
                continue
            row = found.setdefault(
                number,
                {
                    **start,
                    "connection_id": number,
                    "peer": peer[0],
                    "cost": peer[1],
                    "received": 0,
                    "sent": 0,
                    "octets_received": 0,
                    "octets_sent": 0,
                    "unsettled": 0,
                    "rtt_us": None,
                },
            )
            end = "received" if link["dir"] == "in" else "sent"
            row[end] += link["deliveries"]
            row["octets_" + end] += link["octets"]
            row["rtt_us"] = counted[14] or row["rtt_us"]
            row["unsettled"] += link["unsettled"]
        return list(found.values())

    def _sample(self, ahead: int, worker: int, row: "SampleRow") -> Row:
        """Return the row of a sample. ahead: µs that the time of day is ahead of the clock of the counters."""
        when, octets, slot, generation, latency, settle, kind, every = row
        known = self._links.get((worker, slot, generation), UNKNOWN)
        return {
            "boot_id": self._boot,
            "ts": when // 1000 + ahead,
            "worker": worker,
            "link_id": known.link_id,
            "connection_id": known.connection_id,
            "address": known.address,
            "octets": octets or None,
            "latency_us": latency,
            "settle_us": settle,
            "outcome": "presettled" if settle is None else _OUTCOMES.get(kind),
            "every": every,
        }

    def _worker(self, start: Row, worker: int) -> Row:
        now, before = self._region.worker_counters(worker), self._workers[worker]
        counted = {name: now[source] - before.get(source, 0) for name, source in _WORKER_COUNTERS.items()}
        latency = [a - b for a, b in zip(now["latency"], before.get("latency", [0] * len(now["latency"])), strict=True)]
        self._workers[worker] = {name: now[name] for name in (*_WORKER_COUNTERS.values(), "latency")}
        return {
            **start,
            "worker": worker,
            "pid": now["pid"],
            **self._process(now["pid"]),
            **{name: now[name] for name in _WORKER_GAUGES},
            **counted,
            "latency_hist": _histogram(latency),
        }

    def _process(self, pid: int) -> Row:
        """Return CPU time and memory of a worker's process; zeros without a process."""
        try:
            process = psutil.Process(pid)
            times, rss = process.cpu_times(), process.memory_info().rss
        except (psutil.Error, ValueError):
            return {"cpu_user_us": 0, "cpu_sys_us": 0, "rss": 0}
        user, system = self._cpu.get(pid, (0.0, 0.0))
        self._cpu[pid] = times.user, times.system
        return {
            "cpu_user_us": round((times.user - user) * _US),
            "cpu_sys_us": round((times.system - system) * _US),
            "rss": rss,
        }

    def _rings(self, start: Row, flows: Sequence[Row]) -> list[Row]:
        transfers: dict[tuple[int, int], int] = {}
        for flow in flows:
            pair = flow["worker_in"], flow["worker_out"]
            transfers[pair] = transfers.get(pair, 0) + flow["deliveries"]
        rows: list[Row] = []
        for producer in range(self._region.workers):
            for consumer in range(self._region.workers):
                if producer == consumer:
                    continue
                state = self._region.ring_state(producer, consumer)
                head, before = state["head"], self._heads.get((producer, consumer), 0)
                self._heads[producer, consumer] = head
                # A ring starts again at 0 after one of its workers has died.
                octets = head - before if head >= before else head
                if octets or state["used"]:
                    rows.append({
                        **start,
                        "worker_in": producer,
                        "worker_out": consumer,
                        "transfers": transfers.get((producer, consumer), 0),
                        "bytes": octets,
                        "used": state["used"],
                    })  # fmt: skip
        return rows


def _histogram(counts: Sequence[int]) -> dict[int, int] | None:
    return {bucket: count for bucket, count in enumerate(counts) if count} or None
