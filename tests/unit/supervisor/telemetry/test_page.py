"""Metrics page as Prometheus' own parser reads it: names, types, labels, values, bounded size."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from sluice.router.ring.layout import DROP_NAMES
from sluice.router.stalls.reason import StallReason
from sluice.router.testing.interworker import claim_link, set_worker
from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.policy.denials import DenialKind
from sluice.supervisor.telemetry.catalogue import ALIASES, DEFINITIONS, GROUPS, Definition
from sluice.supervisor.telemetry.collect import SHOWN_ADDRESSES
from sluice.supervisor.telemetry.families import bounds
from sluice.supervisor.telemetry.linked import SLICE
from sluice.supervisor.telemetry.page import MAX_LABEL, Families, label
from tests.unit.supervisor.telemetry.metrics_router import MetricsRouter, value

MANUAL = Path(__file__).resolve().parents[4] / "docs" / "user" / "metrics-list.md"


def test_metrics_page_matches_catalogue(router: MetricsRouter) -> None:
    """Names, types and texts are equal, and each sample has exactly the labels of its definition."""
    client = router.client()
    router.link(client, "in", "a")
    router.link(client, "out", "a")
    text = router.text()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert types == {name: definition.kind for name, definition in DEFINITIONS.items()}
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    assert helps == {name: definition.about for name, definition in DEFINITIONS.items()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            known = DEFINITIONS.get(sample.name) or DEFINITIONS[family.name]
            assert set(sample.labels) - {"le"} == set(known.labels), sample


def test_connections_have_limit_and_reloads_are_counted(router: MetricsRouter) -> None:
    router.client()
    router.core.audit.trail.reloads["failure"] += 2
    page = router.page()
    assert (value(page, "sluice_connections"), value(page, "sluice_connections_limit")) == (1, 65535)
    assert value(page, "sluice_reloads_total", outcome="failure") == 2
    assert value(page, "sluice_reloads_total", outcome="success") == 0


def test_policy_refusals_are_counted(router: MetricsRouter) -> None:
    router.core.connections.denied += 2
    router.core.policy.denials.add(DenialKind("v", "g", "target"), count=3)
    page = router.page()
    assert value(page, "sluice_policy_denied_total", vhost="v", group="g", reason="target") == 3
    assert value(page, "sluice_policy_denied_total", vhost="", group="", reason="router_connections") == 2


def test_failed_logins_are_counted(router: MetricsRouter) -> None:
    logins = router.core.authentication.failed
    for _ in range(2):
        logins.add("main", "PLAIN", "10.0.0.1")
    logins.add("main", None, "10.0.0.2")
    logins.by_other_hosts = 4
    page = router.page()
    assert value(page, "sluice_logins_failed_total", listener="main", mechanism="PLAIN") == 2
    assert value(page, "sluice_logins_failed_total", listener="main", mechanism="none") == 1
    assert value(page, "sluice_logins_failed_by_host_total", host="10.0.0.1") == 2
    assert value(page, "sluice_logins_failed_by_host_total", host="other") == 4


def test_dispatch_metrics_come_first(router: MetricsRouter) -> None:
    types = re.findall(r"^# TYPE (\S+)", router.text(), re.MULTILINE)
    assert types[: len(ALIASES)] == [definition.name for definition in ALIASES]


def test_metric_names_follow_conventions() -> None:
    """Names follow https://prometheus.io/docs/practices/naming/, except for those of Dispatch."""
    for name, definition in DEFINITIONS.items():
        if not name.startswith("qdr_"):
            assert name.endswith("_total") == (definition.kind == "counter"), name
            assert re.fullmatch(r"(sluice|process)_[a-z_]+", name), name
            assert definition.about.endswith("."), name


def test_manual_lists_all_metrics() -> None:
    """Each group of the catalogue has its table in the manual, row by row."""
    manual = MANUAL.read_text("utf-8")
    for title, group in GROUPS:
        section = manual.split(f"\n## {title}\n", 1)[1].split("\n#", 1)[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert rows == [manual_row(definition) for definition in group], title


def manual_row(definition: Definition) -> str:
    labels = ", ".join(f"`{name}`" for name in definition.labels)
    return f"| `{definition.name}` | {definition.kind} | {labels} | {definition.about} |"


def test_worker_counters_are_shown(router: MetricsRouter) -> None:
    dropped = list(range(1, 1 + len(DROP_NAMES))) + [0] * (8 - len(DROP_NAMES))
    ends = {"accepted": 6, "ended_accepted": 5, "presettled": 2, "settled_no_state": 1}
    set_worker(router.region, 0, ingress=8, dropped=dropped, **ends)
    waiting = {"stuck": 6, "blocked": 2, "buffered": 512}
    set_worker(router.region, 1, accepted=7, ended_accepted=7, redirected=3, delayed_1s=4, checks_failed=1, **waiting)
    page = router.page()
    assert value(page, "qdr_accepted_deliveries_total") == 13
    assert value(page, "qdr_presettled_deliveries_total") == 2
    assert value(page, "qdr_deliveries_redirected_to_fallback_total") == 3
    assert value(page, "qdr_deliveries_delayed_1sec_total") == 4
    assert value(page, "qdr_deliveries_stuck_total") == 6
    assert value(page, "qdr_links_blocked_total") == 2
    ended = "sluice_deliveries_ended_total"
    assert value(page, ended, worker="0", outcome="accepted") == 5
    assert value(page, ended, worker="1", outcome="accepted") == 7
    assert value(page, ended, worker="0", outcome="none") == 1
    assert value(page, "sluice_deliveries_dropped_total", worker="0", reason="producer_lost") == 4
    assert value(page, "sluice_deliveries_dropped_total", worker="0", reason="unfinished") == 7
    assert value(page, "sluice_presettled_dropped_total", worker="0", reason="no_destination") == 1
    assert value(page, "sluice_presettled_dropped_total", worker="0", reason="worker_lost") == 5
    assert value(page, "sluice_worker_failed_checks_total", worker="1") == 1
    assert value(page, "sluice_worker_buffered_bytes", worker="1") == 512


def test_address_pool_counts_slots_ever_used(router: MetricsRouter) -> None:
    """Each used slot has 64 octets in each of the two workers. Slot numbers begin at 1."""
    client = router.client()
    link = router.link(client, "out", "orders")
    router.link(client, "out", "payments")
    used = router.record("payments").id
    router.detach(client, link)
    page = router.page()
    for name in ("sluice_pool_held_bytes", "sluice_pool_taken_bytes"):
        assert value(page, name, pool="qdr_address_t") == used * 2 * 64


def test_latency_histogram_sums_workers_in_seconds(router: MetricsRouter) -> None:
    latency = [0] * 32
    latency[0], latency[10], latency[31] = 1, 2, 4
    set_worker(router.region, 0, latency=latency, latency_sum=1_500_000)
    set_worker(router.region, 1, latency=latency, latency_sum=250_000)
    page = router.page()
    name = "sluice_delivery_seconds"
    assert value(page, f"{name}_bucket", le="1e-06") == 2
    assert value(page, f"{name}_bucket", le="0.000512") == 2
    assert value(page, f"{name}_bucket", le="0.001024") == 6
    assert value(page, f"{name}_bucket", le=str(bounds(32)[30])) == 6
    assert value(page, f"{name}_bucket", le="+Inf") == 14
    assert value(page, f"{name}_count") == 14
    assert value(page, f"{name}_sum") == 1.75


def test_links_are_counted_by_direction_and_address(router: MetricsRouter) -> None:
    client = router.client(1)
    router.link(client, "in", "a", 1, credit=250, deliveries=9, finished=5, unsettled=5)
    router.link(client, "out", "a", 1, credit=0, undelivered=7, blocked=1, stuck=5)
    router.link(client, "out", "b", 1, credit=3, undelivered=1, unsettled=2)
    page = router.page()
    labels = {"kind": "endpoint", "role": "normal"}
    assert value(page, "sluice_links", **labels, direction="in") == 1
    assert value(page, "sluice_links", **labels, direction="out") == 2
    assert value(page, "sluice_links_without_credit", **labels, direction="out") == 1
    assert value(page, "sluice_links_blocked", **labels, direction="out") == 1
    assert value(page, "sluice_links_stuck_deliveries", **labels, direction="out") == 5
    assert value(page, "sluice_links_undelivered_deliveries", **labels, direction="out") == 8
    assert value(page, "sluice_links_unsettled_deliveries", **labels, direction="in") == 4
    assert value(page, "sluice_address_undelivered_deliveries", address="a", phase="0") == 7
    assert value(page, "sluice_address_undelivered_deliveries", address="b", phase="0") == 1
    assert value(page, "sluice_address_undelivered_deliveries", address="other", phase="") == 0
    assert value(page, "sluice_address_consumers", address="a", phase="0") == 1
    assert value(page, "sluice_address_producers", address="a", phase="0") == 1
    assert value(page, "qdr_links_total") == 3


def test_hostile_addresses_are_escaped_and_cut(router: MetricsRouter) -> None:
    client = router.client()
    hostile = 'a"} 1\n# HELP evil\\ \x00\u2028\U0001f600'
    long = "x" * 60_000
    for name in (hostile, long, long + "y"):
        router.link(client, "out", name)
    page = router.page()
    shown = {dict(labels)["address"] for name, labels in page if name == "sluice_address_consumers"}
    assert hostile in shown
    cut = [name for name in shown if name.startswith("xxx")]
    assert len(cut) == 2  # of different texts
    assert all(len(name) <= MAX_LABEL for name in cut)


@given(st.text())
def test_arbitrary_text_becomes_label(text: str) -> None:
    families = Families()
    families.open(Definition("sluice_x", "gauge", "About.", ("address",))).add((text,), 1)
    (metric,) = families.metrics
    assert isinstance(metric, Metric)
    assert metric.samples[0].labels["address"] == label(text)
    assert len(label(text)) <= MAX_LABEL


@pytest.mark.parametrize(("clients", "links"), [(1, 2500), (2500, 0), (3, 1001)])
def test_links_and_connections_are_read_in_slices(router: MetricsRouter, clients: int, links: int) -> None:
    quiet = router.pauses_of_a_page()
    made = [router.client(1) for _ in range(clients)]
    for number, client in enumerate(made):
        for link in range(links):
            client.links[link] = RegisteredLink(link, "", True, number * links + link, 1, client, 1)
            claim_link(router.region, 1, number * links + link, 1, direction=2, unsettled=1)
    assert router.pauses_of_a_page() >= quiet + (clients + clients * links) // SLICE - 1
    page = router.page()
    assert value(page, "sluice_listener_connections", listener="main", role="normal") == clients
    if links:
        labels = {"kind": "endpoint", "role": "normal", "direction": "out"}
        assert value(page, "sluice_links", **labels) == clients * links
        assert value(page, "sluice_links_unsettled_deliveries", **labels) == clients * links


@pytest.mark.timeout(60)
def test_excess_addresses_leave_page_size_and_pace_bounded() -> None:
    """The series are bounded, and other events get their turn between slices."""
    router = MetricsRouter(addresses=101_000, links=110_000)
    try:
        before = len(router.text())
        client = router.client()
        worker = router.core.workers[0]
        for number in range(100_000):
            record = router.core.table.open_mobile(f"hostile/{number}", 0, router.core.settings.current.default)
            router.core.table.add_producer(record)
        router.settle()
        assert client.number in worker.connections
        router.pauses, started = 0, time.thread_time()
        text = router.text()
        spent = time.thread_time() - started
        assert text.count("\nsluice_address_consumers{") == SHOWN_ADDRESSES + 1
        assert len(text) < before + 1200 * SHOWN_ADDRESSES
        assert spent / router.pauses < 0.005
        assert "qdr_addresses_total 100002\n" in text
    finally:
        router.close()


def test_lost_telemetry_and_unknown_vhosts_are_counted(router: MetricsRouter) -> None:
    router.rows_lost = 7
    router.core.policy.unknown_vhosts_denied = 3
    page = router.page()
    assert value(page, "sluice_telemetry_rows_lost_total") == 7
    assert value(page, "sluice_policy_unknown_vhost_total") == 3


def test_stalled_links_are_counted_by_reason(router: MetricsRouter) -> None:
    """Links count as `find_stall` decides for each of them."""
    client = router.client()
    router.link(client, "in", "a", stall=StallReason.MEMORY, stall_since=1)
    router.link(client, "in", "a", stall=StallReason.MEMORY, stall_since=1)
    router.link(client, "in", "a", stall=StallReason.QUOTA | 256)  # found by one check only
    router.link(client, "out", "a", stall=StallReason.CREDIT)  # outdated: it has credit
    router.link(client, "out", "a", stall=StallReason.CREDIT, blocked_since=1)
    router.link(client, "out", "a", blocked_since=1)
    router.link(client, "in", "a", blocked_since=1)
    page = router.page()
    names = [reason.name.lower() for reason in StallReason]
    stalled = {name: value(page, "sluice_links_stalled", reason=name) for name in names}
    assert {name: count for name, count in stalled.items() if count} == {"memory": 2, "credit": 2}
