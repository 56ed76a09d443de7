"""Conversion of a snapshot into the samples of the catalogue."""

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from sluice.router.cgroup import CgroupThrottling
from sluice.router.config.entities import RouterConfig
from sluice.router.config.policy_entities import SharedLimits
from sluice.router.ring.layout import DROP_NAMES
from sluice.router.ring.region import Region
from sluice.router.stalls.reason import StallReason
from sluice.router.stats.sums import ADDRESS_SUMS, TRAFFIC_SUMS
from sluice.supervisor.addresses.taps import MISSED, tap_totals
from sluice.supervisor.auth import failures
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.management.memory import pools
from sluice.supervisor.policy.denials import ROUTER_CONNECTIONS
from sluice.supervisor.policy.shared_usage import VHOST
from sluice.supervisor.telemetry.broker_metrics import add_brokers
from sluice.supervisor.telemetry.catalogue import ALIASES, DEFINITIONS, LINKS
from sluice.supervisor.telemetry.collect import AddressRow, MetricsSnapshot, WorkerRow
from sluice.supervisor.telemetry.health import Health
from sluice.supervisor.telemetry.page import DispatchMetric, Families, Family
from sluice.supervisor.telemetry.usage import DIRECTIONS as DIRECTION_LABELS
from sluice.supervisor.telemetry.usage import UsageRow
from sluice.supervisor.web.http_counts import HttpCounts

# Limit of taps with series.
MOST_TAPS: Final = 1000
# Limit of vhosts and groups with series.
MOST_SHARES: Final = 1000
# Management attributes by metric of vhosts and groups.
_SHARED: Final = {
    "connections": "connections",
    "links": "links",
    "addresses": "addresses",
    "buffered_octets": "bufferedOctets",
    "messages_total": "messages",
    "octets_total": "octets",
    "credit_held_back_total": "creditHeldBack",
}

# Directions and ends of deliveries: labels by field of a worker's slot.
DIRECTIONS: Final = {
    "ingress": "ingress",
    "egress": "egress",
    "transit": "transit",
    "to_container": "to_container",
    "from_container": "from_container",
}
ENDS: Final = {
    "ended_accepted": "accepted",
    "ended_rejected": "rejected",
    "ended_released": "released",
    "ended_modified": "modified",
    "settled_no_state": "none",
    "presettled": "presettled",
}
# Reasons of DROP_NAMES for incoming deliveries that have none of these ends.
DROPPED: Final = ("producerLost", "unfinished")
# Reasons of DROP_NAMES for discarded presettled deliveries, or copies of one.
PRESETTLED: Final = tuple(name for name in DROP_NAMES if name not in DROPPED)
# Fields of the router's totals in the order of 1.19's metrics, from qdr_presettled_deliveries_total on.
_ALIAS_FIELDS: Final = (
    *("presettled", "dropped_presettled", "accepted", "released", "rejected", "modified"),
    *("ingress", "egress", "transit", "ingress_container", "egress_container", "delayed_1s", "delayed_10s"),
)
# labels of the sum of all addresses without series of their own; a real address has a phase
OTHER: Final = ("other", "")
_STAT_BLOCK: Final = 512  # octets per unit of st_blocks
_MICROSECONDS: Final = 1_000_000  # of a second
_REDIRECTED: Final = ADDRESS_SUMS.index("redirected")


def drop_label(name: str) -> str:
    """Return a reason of DROP_NAMES as a label: noDestination becomes no_destination."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


# Spans, log records and data points for a collector of OpenTelemetry, by signal and result.
ExportCounts = Mapping[tuple[str, str], int]


class MetricsBuilder:
    """Builder of the metric families of a page. Owner: the pages."""

    def __init__(
        self, router: RouterConfig, version: str, core: RouterCore, region: Region, health: Health,
        counts: Callable[[], HttpCounts], rows_lost: Callable[[], int], exports: Callable[[], ExportCounts],
    ) -> None:  # fmt: skip
        """rows_lost: return the number of rows of telemetry that were lost."""
        self._router = router
        self._version = version
        self._core = core
        self._region = region
        self._health = health
        self._counts = counts
        self._rows_lost = rows_lost
        self._exports = exports
        self._process = ProcessCollector(registry=None)

    def build(self, snapshot: MetricsSnapshot) -> Iterator[Metric | DispatchMetric]:
        """Yield all families of a page, those of 1.19 first.

        They are built step by step, so that other events are handled in between.
        """
        totals = self._region.router_totals()
        for part in (
            lambda families: self._aliases(families, snapshot, totals),
            self._router_facts,
            lambda families: self._workers(families, snapshot),
            lambda families: self._rings_used(families, snapshot),
            lambda families: self._rings_written(families, snapshot),
            lambda families: self._deliveries(families, snapshot, totals),
            lambda families: self._links(families, snapshot),
            lambda families: _add_stalls(families, snapshot),
            lambda families: self._addresses(families, snapshot),
            self._taps,
            lambda families: self._listeners(families, snapshot),
            lambda families: add_brokers(families, self._core, self._health.connectors()),
            lambda families: _add_usage(families, "sluice_user", snapshot.users),
            lambda families: _add_usage(families, "sluice_vhost_client", snapshot.vhosts),
            self._logins,
            self._policy,
            self._audit,
            self._telemetry,
            lambda families: self._table(families, snapshot),
            self._network,
            self._edge,
            self._memory,
            self._http,
        ):
            families = Families()
            part(families)
            yield from families.metrics
        yield from self._process.collect()

    def _aliases(self, families: Families, snapshot: MetricsSnapshot, totals: dict[str, Any]) -> None:
        values: list[int] = [len(self._core.connections.opened), len(self._core.links), snapshot.address_count]
        routers = self._core.routers
        values += [0 if routers is None else routers.count, len(self._core.link_routes), len(self._core.auto_links)]
        values += [totals[name] for name in _ALIAS_FIELDS]
        values += [totals["stuck"], totals["blocked"], totals["redirected"]]
        for definition, value in zip(ALIASES, values, strict=True):
            families.whole(definition, value)

    def _router_facts(self, families: Families) -> None:
        build = families.open(DEFINITIONS["sluice_build_info"])
        build.add((self._version, platform.python_version()), 1)
        families.open(DEFINITIONS["sluice_router_info"]).add((self._router.id, self._router.mode), 1)
        families.single(DEFINITIONS["sluice_ready"], self._health.ready)
        reloads = families.open(DEFINITIONS["sluice_reloads_total"])
        for outcome, count in self._core.audit.trail.reloads.items():
            reloads.add((outcome,), count)
        throttling = self._core.history.limit.counts or CgroupThrottling(0, 0)
        families.single(DEFINITIONS["sluice_cpu_periods_total"], throttling.periods)
        families.single(DEFINITIONS["sluice_cpu_throttled_periods_total"], throttling.throttled)
        spans = families.open(DEFINITIONS["sluice_trace_spans_total"])
        for result, count in self._core.delivery_traces.counts().items():
            spans.add((result,), count)
        records = families.open(DEFINITIONS["sluice_otlp_records_total"])
        for labels, count in self._exports().items():
            records.add(labels, count)

    def _workers(self, families: Families, snapshot: MetricsSnapshot) -> None:
        journal = self._core.journal
        names: tuple[tuple[str, Callable[[WorkerRow], Any]], ...] = (
            ("sluice_worker_up", lambda row: row.worker.serves),
            ("sluice_worker_silent_seconds", lambda row: row.worker.silent),
            ("sluice_worker_restarts_total", lambda row: row.worker.generation - 1),
            ("sluice_worker_cpu_seconds_total", lambda row: row.cpu_seconds),
            ("sluice_worker_resident_memory_bytes", lambda row: row.resident),
            ("sluice_worker_connections", lambda row: row.counters["connections"]),
            ("sluice_worker_links", lambda row: row.counters["links"]),
            ("sluice_worker_buffered_bytes", lambda row: row.counters["buffered"]),
            ("sluice_worker_buffered_limit_bytes", lambda row: self._router.buffered_megabytes << 20),
            ("sluice_worker_windows_shut", lambda row: row.counters["windows_shut"]),
            ("sluice_worker_given_up_total", lambda row: row.counters["given_up"]),
            ("sluice_worker_wakes_total", lambda row: row.counters["wakes"]),
            ("sluice_worker_signals_total", lambda row: row.counters["signals"]),
            ("sluice_worker_shared_wakes_total", lambda row: row.counters["shared_wakes"]),
            ("sluice_worker_failed_checks_total", lambda row: row.counters["checks_failed"]),
        )
        for name, value in names:
            family = families.open(DEFINITIONS[name])
            for row in snapshot.workers:
                family.add((row.worker.index,), value(row))
        lag = families.open(DEFINITIONS["sluice_worker_table_lag_epochs"])
        for row in snapshot.workers:
            if row.worker.live:
                lag.add((row.worker.index,), max(0, journal.epoch - journal.acknowledged(row.worker.index)))

    def _rings_used(self, families: Families, snapshot: MetricsSnapshot) -> None:
        used = families.open(DEFINITIONS["sluice_ring_used_bytes"])
        for producer, consumer, octets, _ in snapshot.rings:
            used.add((producer, consumer), octets)
        families.single(DEFINITIONS["sluice_ring_size_bytes"], self._region.ring_octets)

    def _rings_written(self, families: Families, snapshot: MetricsSnapshot) -> None:
        written = families.open(DEFINITIONS["sluice_ring_written_bytes_total"])
        for producer, consumer, _, octets in snapshot.rings:
            written.add((producer, consumer), octets)

    def _deliveries(self, families: Families, snapshot: MetricsSnapshot, totals: dict[str, Any]) -> None:
        for name, fields in (("sluice_deliveries_total", DIRECTIONS), ("sluice_deliveries_ended_total", ENDS)):
            family = families.open(DEFINITIONS[name])
            for row in snapshot.workers:
                for field, text in fields.items():
                    family.add((row.worker.index, text), row.counters[field])
        both = (("sluice_deliveries_dropped_total", DROPPED), ("sluice_presettled_dropped_total", PRESETTLED))
        for name, reasons in both:
            dropped = families.open(DEFINITIONS[name])
            for row in snapshot.workers:
                for reason in reasons:
                    count = row.counters["dropped"][DROP_NAMES.index(reason)]
                    dropped.add((row.worker.index, drop_label(reason)), count)
        redirected = families.open(DEFINITIONS["sluice_deliveries_redirected_total"])
        for row in snapshot.workers:
            redirected.add((row.worker.index,), row.counters["redirected"])
        counts: list[int] = totals["latency"]
        seconds: float = totals["latency_sum"] / _MICROSECONDS
        families.open(DEFINITIONS["sluice_delivery_seconds"]).histogram(bounds(len(counts)), counts, seconds)

    def _links(self, families: Families, snapshot: MetricsSnapshot) -> None:
        for number, definition in enumerate(LINKS):
            family = families.open(definition)
            for group, sums in snapshot.links.items():
                family.add(group, sums[number])

    def _addresses(self, families: Families, snapshot: MetricsSnapshot) -> None:
        rows = [(_labels(row), row) for row in snapshot.addresses]
        deliveries = families.open(DEFINITIONS["sluice_address_deliveries_total"])
        for labels, row in rows:
            for number, direction in enumerate(ADDRESS_SUMS[:_REDIRECTED]):
                deliveries.add((*labels, direction), row.counters[number])
        values: Iterable[tuple[str, Callable[[AddressRow], int]]] = (
            ("sluice_address_redirected_total", lambda row: row.counters[_REDIRECTED]),
            ("sluice_address_consumers", lambda row: row.consumers),
            ("sluice_address_producers", lambda row: row.producers),
            ("sluice_address_undelivered_deliveries", lambda row: row.undelivered),
        )
        for name, value in values:
            family = families.open(DEFINITIONS[name])
            for labels, row in rows:
                family.add(labels, value(row))
        families.single(DEFINITIONS["sluice_addresses_shown"], len(rows) - 1)

    def _taps(self, families: Families) -> None:
        missed = {reason: drop_label(reason) for reason in MISSED}
        shown = [
            (name, tap_totals(self._region.address_totals(number)))
            for name, number in islice(self._core.taps.slots(), MOST_TAPS)
        ]
        for counter in ("selected", "accepted", "rejected"):
            family = families.open(DEFINITIONS[f"sluice_tap_{counter}_total"])
            for name, counted in shown:
                family.add((name,), counted[counter])
        family = families.open(DEFINITIONS["sluice_tap_missed_total"])
        for name, counted in shown:
            for reason, label in missed.items():
                family.add((name, label), counted[reason])
        family = families.open(DEFINITIONS["sluice_tap_address_missed_total"])
        for name, _ in shown:
            by_address, elsewhere = self._core.taps.missed(name)
            # An address may be called `other`, and has one series with the rest.
            rest = elsewhere + by_address.get(OTHER[0], 0)
            for address, count in by_address.items():
                if address != OTHER[0]:
                    family.add((name, address), count)
            if rest:
                family.add((name, OTHER[0]), rest)

    def _listeners(self, families: Families, snapshot: MetricsSnapshot) -> None:
        states = self._health.listeners()
        up = families.open(DEFINITIONS["sluice_listener_up"])
        for state in states:
            up.add((state.name, state.role, "yes" if state.http else "no"), state.up)
        open_ones = families.open(DEFINITIONS["sluice_listener_connections"])
        for state in states:
            if not state.http:
                open_ones.add((state.name, state.role), snapshot.connections.get(state.name, 0))
        families.single(DEFINITIONS["sluice_connections_accepted_total"], self._core.connections.accepted)
        families.single(DEFINITIONS["sluice_accept_pauses_total"], self._core.connections.accept_pauses)
        families.single(DEFINITIONS["sluice_connections"], self._core.connections.count)
        limit = self._core.policy.vhosts.policy.max_connections
        families.single(DEFINITIONS["sluice_connections_limit"], limit)
        expiry = families.open(DEFINITIONS["sluice_tls_certificate_expiry_timestamp_seconds"])
        for name, held in self._core.tls.held.items():
            if held.material.expires is not None:
                expiry.add((name,), held.material.expires)
        current = families.open(DEFINITIONS["sluice_tls_profile_current"])
        for name, held in self._core.tls.held.items():
            current.add((name,), held.problem is None)

    def _logins(self, families: Families) -> None:
        logins = self._core.authentication.failed
        failed = families.open(DEFINITIONS["sluice_logins_failed_total"])
        for way, count in logins.by_method.items():
            failed.add(way, count)
        by_host = families.open(DEFINITIONS["sluice_logins_failed_by_host_total"])
        for host, count in logins.by_host.items():
            by_host.add((host,), count)
        by_host.add((failures.OTHER,), logins.by_other_hosts)

    def _policy(self, families: Families) -> None:
        denied = families.open(DEFINITIONS["sluice_policy_denied_total"])
        denied.add(("", "", ROUTER_CONNECTIONS), self._core.connections.denied)
        for kind, count in self._core.policy.denials.counts.items():
            denied.add(kind, count)
        families.single(DEFINITIONS["sluice_policy_unknown_vhost_total"], self._core.policy.unknown_vhosts_denied)
        shown = {name: families.open(DEFINITIONS[f"sluice_vhost_{name}"]) for name in _SHARED}
        limits = families.open(DEFINITIONS["sluice_vhost_limit"])
        for (vhost, group), (share, configured) in islice(self._core.policy.limited(), MOST_SHARES):
            numbers = share.shown()
            for name, family in shown.items():
                if (number := numbers[_SHARED[name]]) is not None:
                    family.add((vhost, group), number)
            for attribute, limit in configured.by_attribute():
                limits.add((vhost, group, attribute), limit)
        self._add_vhosts(shown["connections"], limits)

    def _add_vhosts(self, connections: Family, limits: Family) -> None:
        """Add the limit of connections of each vhost. Vhosts with shared limits have their connections already."""
        policy = self._core.policy
        if not policy.vhosts.policy.vhosts_enabled:
            return
        for vhost in islice(policy.vhosts, MOST_SHARES):
            limits.add((vhost.name, VHOST, "maxConnections"), vhost.config.max_connections)
            if vhost.config.shared == SharedLimits():
                connections.add((vhost.name, VHOST), policy.stats()[vhost.name].connections)

    def _audit(self, families: Families) -> None:
        families.single(DEFINITIONS["sluice_audit_lines_total"], self._core.audit.lines)
        families.single(DEFINITIONS["sluice_audit_dropped_total"], self._core.audit.dropped)

    def _telemetry(self, families: Families) -> None:
        families.single(DEFINITIONS["sluice_telemetry_rows_lost_total"], self._rows_lost())

    def _table(self, families: Families, snapshot: MetricsSnapshot) -> None:
        journal = self._core.journal
        families.single(DEFINITIONS["sluice_table_epochs_total"], journal.epoch)
        families.single(DEFINITIONS["sluice_table_lag_epochs"], journal.epoch - journal.settled)
        families.single(DEFINITIONS["sluice_table_lag_seconds"], self._health.lag_seconds())
        families.single(DEFINITIONS["sluice_table_addresses"], snapshot.address_count)
        families.single(DEFINITIONS["sluice_table_addresses_limit"], self._core.counter_slots.limit - 1)

    def _network(self, families: Families) -> None:
        routers = self._core.routers
        families.single(DEFINITIONS["sluice_network_routers"], 0 if routers is None else routers.count)
        reachable = 0 if routers is None else routers.reachable
        families.single(DEFINITIONS["sluice_network_routers_reachable"], reachable)
        changes = 0 if routers is None else routers.path_changes
        families.single(DEFINITIONS["sluice_network_path_changes_total"], changes)
        messages = families.open(DEFINITIONS["sluice_network_messages_total"])
        if routers is not None:
            messages.add(("received",), routers.messages_received)
            messages.add(("sent",), routers.messages_sent)

    def _edge(self, families: Families) -> None:
        uplink, edges = self._core.uplink, self._core.edges
        uplinks = families.open(DEFINITIONS["sluice_edge_uplinks"])
        changes = families.open(DEFINITIONS["sluice_edge_uplink_changes_total"])
        users = families.open(DEFINITIONS["sluice_edge_addresses"])
        if uplink is not None:
            for state, count in uplink.states().items():
                uplinks.add((state,), count)
            changes.add(("activated",), uplink.activated)
            changes.add(("lost",), uplink.lost)
            consumers, producers = uplink.announced()
            users.add(("consumers",), consumers)
            users.add(("producers",), producers)
        waiting, unanswered = (0, 0) if uplink is None else (len(uplink.lookups), uplink.lookups.unanswered)
        families.single(DEFINITIONS["sluice_edge_lookups_waiting"], waiting)
        families.single(DEFINITIONS["sluice_edge_lookups_unanswered_total"], unanswered)
        names = ("connections", "addresses", "heartbeats_missed_total")
        per_edge = [families.open(DEFINITIONS[f"sluice_edge_router_{name}"]) for name in names]
        for name, row in ({} if edges is None else edges.rows()).items():
            for family, value in zip(per_edge, row, strict=True):
                family.add((name,), value)
        connections = families.open(DEFINITIONS["sluice_edge_peer_connections"])
        addresses = families.open(DEFINITIONS["sluice_edge_peer_addresses"])
        peers = self._core.peers
        for name, (count, here, there) in ({} if peers is None else peers.rows()).items():
            connections.add((name,), count)
            addresses.add((name, "here"), here)
            addresses.add((name, "there"), there)

    def _memory(self, families: Families) -> None:
        region = self._region
        held = families.open(DEFINITIONS["sluice_pool_held_bytes"])
        taken = families.open(DEFINITIONS["sluice_pool_taken_bytes"])
        for name, pool in pools(region, self._core.counter_slots.used).items():
            held.add((name,), pool["heldByThreads"] * pool["typeSize"])
            taken.add((name,), pool["totalAllocFromHeap"] * pool["typeSize"])
        families.single(DEFINITIONS["sluice_worker_links_limit"], region.links_per_worker)
        families.single(DEFINITIONS["sluice_region_size_bytes"], region.size)
        resident = os.fstat(region.fd).st_blocks * _STAT_BLOCK
        families.single(DEFINITIONS["sluice_region_resident_bytes"], resident)

    def _http(self, families: Families) -> None:
        counts = self._counts()
        requests = families.open(DEFINITIONS["sluice_http_requests_total"])
        for (page, status), number in sorted(counts.requests.items()):
            requests.add((page, status), number)
        refused = families.open(DEFINITIONS["sluice_http_refused_total"])
        for reason, number in sorted(counts.refused.items()):
            refused.add((reason,), number)
        families.single(DEFINITIONS["sluice_http_connections"], counts.connections)
        families.single(DEFINITIONS["sluice_scrape_seconds"], counts.scrape_seconds)


def _add_stalls(families: Families, snapshot: MetricsSnapshot) -> None:
    stalled = families.open(DEFINITIONS["sluice_links_stalled"])
    for reason in StallReason:
        stalled.add((reason.name.lower(),), snapshot.stalls[reason])


def _add_usage(families: Families, prefix: str, rows: Sequence[tuple[str, UsageRow]]) -> None:
    """Add the metrics of users or of vhosts."""
    connections = families.open(DEFINITIONS[f"{prefix}_connections"])
    for name, row in rows:
        connections.add((name,), row.connections)
    links = families.open(DEFINITIONS[f"{prefix}_links"])
    for name, row in rows:
        for direction, count in zip(DIRECTION_LABELS, row.links, strict=True):
            links.add((name, direction), count)
    for number, counted in enumerate(TRAFFIC_SUMS):
        family = families.open(DEFINITIONS[f"{prefix}_{counted}_total"])
        for name, row in rows:
            for place, direction in enumerate(DIRECTION_LABELS):
                family.add((name, direction), row.traffic[place * len(TRAFFIC_SUMS) + number])
    refused = DEFINITIONS.get(f"{prefix}_refused_total")
    if refused is not None:
        family = families.open(refused)
        for name, row in rows:
            family.add((name,), row.refused)


def bounds(buckets: int) -> list[float]:
    """Return the upper bounds of latency buckets in seconds: powers of two of a microsecond, the last one infinite."""
    return [(1 << number) / _MICROSECONDS for number in range(buckets - 1)] + [float("inf")]


def _labels(row: AddressRow) -> tuple[str, str]:
    """Return the labels `address` and `phase` of a mobile address, from its key."""
    return OTHER if row.record is None else (row.record.key[2:], row.record.key[1])
