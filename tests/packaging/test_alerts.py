"""The rules of Prometheus, by promtool: they are valid, and each alert fires and keeps quiet when it should."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from scripts.packaging_tools import TOOLS
from tests.promql import PIPELINE_RULES, RULES, rules

PROMTOOL = TOOLS / "promtool" if (TOOLS / "promtool").exists() else shutil.which("promtool")
#: Time of every evaluation, in minutes of the series. All windows and waits of the rules are shorter.
MINUTES = 60
DAY = 86400

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PROMTOOL is None, reason="no promtool in build/tools or on the path: make packaging-tools"),
]


@dataclass(frozen=True)
class Case:
    """Input for an alert: series in the notation of promtool, with one sample a minute.

    labels: those of the alert, beyond alertname, alertstate, severity, job and instance.
    """

    fires: dict[str, str]
    quiet: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)


def ended(outcome: str, each_minute: float) -> dict[str, str]:
    """Return deliveries of two workers, of which one has this outcome and the other one is accepted."""
    return {
        f'sluice_deliveries_ended_total{{worker="0", outcome="{outcome}"}}': f"0+{each_minute}x60",
        'sluice_deliveries_ended_total{worker="1", outcome="accepted"}': "0+100x60",
    }


def quotas(connections: int, links: int) -> dict[str, str]:
    """Return the use of quotas of 100 each."""
    group = 'vhost="shop", group="all"'
    return {
        f"sluice_vhost_connections{{{group}}}": f"{connections}x60",
        f"sluice_vhost_links{{{group}}}": f"{links}x60",
        f'sluice_vhost_limit{{{group}, limit="maxConnections"}}': "100x60",
        f'sluice_vhost_limit{{{group}, limit="maxLinks"}}': "100x60",
    }


#: Labels of what is attached to a broker. A router leaves one of them empty, and Prometheus drops an empty label.
PLACE = 'connection="b", container="c"'


def auto_links(up: int) -> dict[str, str]:
    """Return two auto links on one connection, of which one may be down."""
    return {
        f'sluice_auto_link_up{{auto_link="{name}", address="q", direction="{name}", {PLACE}}}': f"{value}x60"
        for name, value in (("in", 1), ("out", up))
    }


ROUTE = f'link_route="r", address="q", direction="in", {PLACE}'
WORKER = {"worker": "1"}
LINKS = {"role": "normal", "direction": "out"}
PROFILE = {"profile": "main"}
EXPIRY = 'sluice_tls_certificate_expiry_timestamp_seconds{profile="main"}'
UPLINK = 'sluice_edge_uplinks{state="active"}'
CASES = {
    "SluiceRouterDown": Case({"up": "1x55 0x10"}, {"up": "1x58 0x10"}),
    "SluiceNotReady": Case({"sluice_ready": "1x55 0x10"}, {"sluice_ready": "1x58 0x10"}),
    "SluiceListenerDown": Case(
        {'sluice_listener_up{listener="main", role="normal", http="no"}': "0x60"},
        {'sluice_listener_up{listener="main", role="normal", http="no"}': "1x60"},
        {"listener": "main", "role": "normal", "http": "no"},
    ),
    "SluiceRouterRestarts": Case(
        {"process_start_time_seconds": "1x40 2x5 3x5 4x20"}, {"process_start_time_seconds": "1x40 2x5 3x40"}
    ),
    "SluiceWorkerReplaced": Case(
        {'sluice_worker_restarts_total{worker="1"}': "0x54 1x20"},
        {'sluice_worker_restarts_total{worker="1"}': "0x20 1x60"},
        WORKER,
    ),
    "SluiceWorkerBusy": Case(
        {'sluice_worker_cpu_seconds_total{worker="1"}': "0+57x60"},
        {'sluice_worker_cpu_seconds_total{worker="1"}': "0+51x60"},
        WORKER,
    ),
    "SluiceProcessorThrottled": Case(
        {"sluice_cpu_throttled_periods_total": "0+180x60", "sluice_cpu_periods_total": "0+600x60"},
        {"sluice_cpu_throttled_periods_total": "0+120x60", "sluice_cpu_periods_total": "0+600x60"},
    ),
    "SluiceInternalError": Case(
        {'sluice_worker_failed_checks_total{worker="1"}': "0x54 1x20"},
        {'sluice_worker_failed_checks_total{worker="1"}': "1x60"},
        WORKER,
    ),
    "SluiceTableLag": Case({"sluice_table_lag_seconds": "0x50 6x20"}, {"sluice_table_lag_seconds": "0x50 4x20"}),
    "SluiceWorkerMemory": Case(
        {
            'sluice_worker_buffered_bytes{worker="1"}': "81x60",
            'sluice_worker_buffered_limit_bytes{worker="1"}': "100x60",
        },
        {
            'sluice_worker_buffered_bytes{worker="1"}': "79x60",
            'sluice_worker_buffered_limit_bytes{worker="1"}': "100x60",
        },
        WORKER,
    ),
    "SluiceMemoryLimitReached": Case(
        {'sluice_worker_given_up_total{worker="1"}': "0x54 1x20"},
        {'sluice_worker_given_up_total{worker="1"}': "1x60"},
        WORKER,
    ),
    "SluiceLinksNearLimit": Case(
        {'sluice_worker_links{worker="1"}': "81x60", "sluice_worker_links_limit": "100x60"},
        {'sluice_worker_links{worker="1"}': "79x60", "sluice_worker_links_limit": "100x60"},
        WORKER,
    ),
    "SluiceAddressesNearLimit": Case(
        {"sluice_table_addresses": "81x60", "sluice_table_addresses_limit": "100x60"},
        {"sluice_table_addresses": "79x60", "sluice_table_addresses_limit": "100x60"},
    ),
    "SluiceReloadRefused": Case(
        {'sluice_reloads_total{outcome="failure"}': "0x50 1x10"},
        {'sluice_reloads_total{outcome="failure"}': "1x60", 'sluice_reloads_total{outcome="success"}': "0+1x60"},
        {"outcome": "failure"},
    ),
    "SluiceConnectionsNearLimit": Case(
        {"sluice_connections": "81x60", "sluice_connections_limit": "100x60"},
        {"sluice_connections": "79x60", "sluice_connections_limit": "100x60"},
    ),
    "SluiceFilesNearLimit": Case(
        {"process_open_fds": "50x60", "process_max_fds": "100x60", 'sluice_worker_connections{worker="1"}': "81x60"},
        {"process_open_fds": "79x60", "process_max_fds": "100x60", 'sluice_worker_connections{worker="1"}': "79x60"},
        {"worker": "1"},
    ),
    "SluiceTelemetryLost": Case(
        {"sluice_telemetry_rows_lost_total": "0x50 5x10"},
        {"sluice_telemetry_rows_lost_total": "5x60"},
    ),
    "SluiceExportLost": Case(
        {
            'sluice_otlp_records_total{signal="logs", result="unexported"}': "0+3x60",
            'sluice_otlp_records_total{signal="traces", result="unexported"}': "0x60",
            'sluice_otlp_records_total{signal="traces", result="exported"}': "0+9x60",
        },
        {
            'sluice_otlp_records_total{signal="logs", result="unexported"}': "0x50 200x20",
            'sluice_otlp_records_total{signal="logs", result="exported"}': "0+9x60",
        },
        {"signal": "logs", "result": "unexported"},
    ),
    "SluiceSpansDropped": Case(
        {'sluice_trace_spans_total{result="dropped"}': "0+60x60"},
        {
            'sluice_trace_spans_total{result="dropped"}': "7x50 900x20",
            'sluice_trace_spans_total{result="recorded"}': "0+9x60",
        },
        {"result": "dropped"},
    ),
    "SluiceQuotaNearLimit": Case(
        quotas(connections=85, links=95),
        quotas(connections=85, links=85),
        {"vhost": "shop", "group": "all", "limit": "maxLinks"},
    ),
    "SluiceSendersThrottled": Case(
        {'sluice_links_stalled{reason="memory"}': "2x60", 'sluice_links_stalled{reason="credit"}': "5x60"},
        {'sluice_links_stalled{reason="credit"}': "5x60", 'sluice_worker_windows_shut{worker="0"}': "2x4 0x56"},
        {"reason": "memory"},
    ),
    "SluiceConnectionsDelayed": Case(
        {"sluice_accept_pauses_total": "0+120x60"}, {"sluice_accept_pauses_total": "0+30x60"}
    ),
    "SluiceLinksStalled": Case(
        {'sluice_links_blocked{kind="endpoint", role="normal", direction="out"}': "1x60"},
        {'sluice_links_blocked{kind="endpoint", role="normal", direction="out"}': "1x50 0x1 1x20"},
        LINKS,
    ),
    "SluiceDeliveriesStuck": Case(
        {'sluice_links_stuck_deliveries{kind="endpoint", role="normal", direction="out"}': "7x60"},
        {'sluice_links_stuck_deliveries{kind="endpoint", role="normal", direction="out"}': "7x50 0x1 7x20"},
        LINKS,
    ),
    "SluiceRejectedShare": Case(ended("rejected", 6), ended("rejected", 4)),
    "SluiceReleasedShare": Case(ended("modified", 30), ended("released", 20)),
    "SluicePresettledDropped": Case(
        {'sluice_presettled_dropped_total{worker="0", reason="overflow"}': "0+1x60"},
        {'sluice_presettled_dropped_total{worker="0", reason="no_destination"}': "0+1x60"},
        {"reason": "overflow"},
    ),
    "SluiceConnectorDown": Case(
        {
            'sluice_connector_up{connector="b", role="route-container"}': "1x50 0x1 1x1 0x20",
            'sluice_connector_attempts_total{connector="b", role="route-container"}': "1x50 2+12x20",
        },
        {
            'sluice_connector_up{connector="b", role="route-container"}': "1x50 0x1 1x20",
            'sluice_connector_up{connector="r", role="inter-router"}': "0x60",
        },
        {"connector": "b", "role": "route-container"},
    ),
    "SluiceAutoLinksDown": Case(auto_links(0), auto_links(1), {"connection": "b", "container": "c"}),
    "SluiceLinkRoutesDown": Case(
        {f"sluice_link_route_up{{{ROUTE}}}": "0x60"},
        {f"sluice_link_route_up{{{ROUTE}}}": "1x60"},
        {"connection": "b", "container": "c"},
    ),
    "SluiceRouterUnreachable": Case(
        {"sluice_network_routers_reachable": "2x50 1x20"}, {"sluice_network_routers_reachable": "1x20 2x60"}
    ),
    "SluiceNetworkUnstable": Case(
        {"sluice_network_path_changes_total": "0+2x60"}, {"sluice_network_path_changes_total": "0+1x60"}
    ),
    "SluiceEdgeWithoutUplink": Case(
        {UPLINK: "1x50 0x20", 'sluice_router_info{id="E", mode="edge"}': "1x60"},
        {UPLINK: "0x60", 'sluice_router_info{id="A", mode="interior"}': "1x60"},
        {"state": "active"},
    ),
    "SluiceCertificateExpires": Case({EXPIRY: f"{6 * DAY}x60"}, {EXPIRY: f"{8 * DAY}x60"}, PROFILE),
    "SluiceCertificateExpiresToday": Case({EXPIRY: "60x60"}, {EXPIRY: f"{2 * DAY}x60"}, PROFILE),
    "SluiceCertificateInvalid": Case(
        {'sluice_tls_profile_current{profile="main"}': "0x60"},
        {'sluice_tls_profile_current{profile="main"}': "1x60"},
        PROFILE,
    ),
    "SluiceLoginsFail": Case(
        {'sluice_logins_failed_total{listener="main", mechanism="PLAIN"}': "0+15x60"},
        {'sluice_logins_failed_total{listener="main", mechanism="PLAIN"}': "0+10x60"},
        {"listener": "main"},
    ),
    "SluicePolicyRefusals": Case(
        {'sluice_policy_denied_total{vhost="shop", group="a", reason="target"}': "0+40x60"},
        {'sluice_policy_denied_total{vhost="shop", group="a", reason="target"}': "0+20x60"},
        {"reason": "target"},
    ),
    "SluiceAuditLinesLost": Case({"sluice_audit_dropped_total": "0x54 1x20"}, {"sluice_audit_dropped_total": "3x60"}),
}
#: Cases in which Prometheus reads no router at all.
ABSENT = "SluiceNoRouters"


ADDRESS = {"address": "orders"}
ORDERS = '{address="orders"}'
GIB = 1 << 30
LIMIT = {"sluice_lander_stage_limit_octets": f"{4 * GIB}x60"}
PIPELINE_CASES = {
    "SluiceLanderDown": Case({"up": "1x50 0x20"}, {"up": "1x57 0x20"}),
    "SluiceLanderNotAttached": Case(
        {f"sluice_lander_attached{ORDERS}": "1x50 0x20"}, {f"sluice_lander_attached{ORDERS}": "1x57 0x20"}, ADDRESS
    ),
    "SluiceLanderCannotWrite": Case(
        {f"sluice_lander_write_failing{ORDERS}": "0x50 1x20"},
        {f"sluice_lander_write_failing{ORDERS}": "1x57 0x1 1x20"},
        ADDRESS,
    ),
    "SluiceLandingHeld": Case({"sluice_lander_held": "0x50 1x20"}, {"sluice_lander_held": "1x57 0x1 1x20"}),
    "SluiceLandingBehind": Case(
        {f"sluice_lander_lag_seconds{ORDERS}": "0+60x60"}, {f"sluice_lander_lag_seconds{ORDERS}": "590x60"}, ADDRESS
    ),
    "SluiceLandingNearLimit": Case(
        {**LIMIT, f"sluice_lander_staged_octets{ORDERS}": f"{3 * GIB}x60",
         'sluice_lander_staged_octets{address="returns"}': f"{GIB // 2}x60"},
        {"sluice_lander_stage_limit_octets": "0x60", f"sluice_lander_staged_octets{ORDERS}": f"{9 * GIB}x60"},
    ),
    "SluiceLandingDiskFull": Case(
        {"sluice_lander_free_octets": f"{90 * GIB}-{GIB}x60"}, {"sluice_lander_free_octets": f"{3 * GIB}x60"}
    ),
    "SluiceMessagesNotLanded": Case(
        {f"sluice_lander_rejected_total{ORDERS}": "0+1x60"}, {f"sluice_lander_rejected_total{ORDERS}": "7x60"}, ADDRESS
    ),
}  # fmt: skip


def with_target(series: str, job: str = "sluice") -> str:
    """Return a series with the labels that Prometheus adds."""
    name, brace, labels = series.partition("{")
    return f'{name}{{job="{job}", instance="router:8888"{", " + labels if brace else "}"}'


def promtool(
    tmp_path: Path,
    alert: str,
    series: dict[str, str],
    labels: dict[str, str] | None,
    file: Path = RULES,
    job: str = "sluice",
) -> None:
    """Evaluate the rules of a file on series; expect the alert with these labels, or no such alert."""
    samples = []
    if labels is not None:
        known = {
            "alertname": alert,
            "alertstate": "firing",
            "severity": rules("alert", file)[alert]["labels"]["severity"],
        }
        text = ", ".join(f'{name}="{value}"' for name, value in {**known, **labels}.items())
        samples = [{"labels": f"ALERTS{{{text}}}", "value": 1}]
    query = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    test = {
        "interval": "1m",
        "input_series": [{"series": with_target(name, job), "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": f"{MINUTES}m", "exp_samples": samples}],
    }
    cases = tmp_path / "test.yml"
    cases.write_text(yaml.safe_dump({"rule_files": [str(file)], "evaluation_interval": "1m", "tests": [test]}))
    result = subprocess.run([str(PROMTOOL), "test", "rules", str(cases)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("file", [RULES, PIPELINE_RULES], ids=lambda file: file.name)
def test_rules_are_valid(file: Path) -> None:
    result = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_cases_cover_each_alert() -> None:
    assert {ABSENT, *CASES} == rules("alert").keys()


@pytest.mark.parametrize("alert", CASES)
def test_alert_fires_on_fault(alert: str, tmp_path: Path) -> None:
    case = CASES[alert]
    labels = {"job": "sluice", "instance": "router:8888", **case.labels}
    promtool(tmp_path, alert, case.fires, labels)
    used = re.findall(r"\$labels\.(\w+)", str(rules("alert")[alert]["annotations"]))
    assert {*used} <= {*labels}, "an annotation names a label that the alert lacks"


@pytest.mark.parametrize("alert", CASES)
def test_alert_is_quiet_below_threshold(alert: str, tmp_path: Path) -> None:
    promtool(tmp_path, alert, CASES[alert].quiet, None)


def test_alert_without_targets_fires(tmp_path: Path) -> None:
    promtool(tmp_path, ABSENT, {}, {"job": "sluice"})


def test_alert_without_targets_is_quiet_with_target(tmp_path: Path) -> None:
    promtool(tmp_path, ABSENT, {"up": "0x60"}, None)


def test_cases_cover_each_alert_of_the_pipeline() -> None:
    assert PIPELINE_CASES.keys() == rules("alert", PIPELINE_RULES).keys()


@pytest.mark.parametrize("alert", PIPELINE_CASES)
def test_pipeline_alert_fires_on_fault_only(alert: str, tmp_path: Path) -> None:
    case, job = PIPELINE_CASES[alert], "sluice-landers"
    labels = {"job": job, "instance": "router:8888", **case.labels}
    promtool(tmp_path, alert, case.fires, labels, PIPELINE_RULES, job)
    promtool(tmp_path, alert, case.quiet, None, PIPELINE_RULES, job)
    used = re.findall(r"\$labels\.(\w+)", str(rules("alert", PIPELINE_RULES)[alert]["annotations"]))
    assert {*used} <= {*labels}, "an annotation names a label that the alert lacks"
