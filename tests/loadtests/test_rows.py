"""Rows of the benchmark run and give figures, with a small Proton broker in the router's place where possible."""

import math
import sys
from pathlib import Path

import pytest

from loadtests import (
    change_rows,
    consoles_rows,
    cost_rows,
    edge_rows,
    gateway_rows,
    hostile_rows,
    login_rows,
    network_rows,
    operation_rows,
    policy_rows,
    reconnect_rows,
    reload_rows,
    rows,
    simulation_rows,
    storm_rows,
    tails_rows,
    tls_rows,
)
from loadtests.measuring import MB, Bench, Effort
from loadtests.processes import DEFAULT_ROUTER, MeasureError
from loadtests.reload_rows import ReloadSize
from loadtests.report import Figure
from loadtests.rows import DEFAULT, ROWS
from loadtests.simulation_rows import NetworkSize

pytest.importorskip("proton")
BROKER = [sys.executable, str(Path(__file__).with_name("proton_broker.py"))]
LITTLE = Effort(rounds=1, seconds=0.1, stream_bytes=MB, beside_seconds=0.2)
NEEDS_WORKERS = {"two-workers"}  # the broker is one process
ELSEWHERE = {"console"}  # tests/console/test_large.py
NEEDS_ROUTER = {
    "link-route", "clients", "broker-lost", "hop", "hop-latency", "path-lost", "network", "storms",
    "reconnects", "reconnects-tls",
    "edge", "edge-peers", "edge-switch", "edge-first", "edge-attach", "edge-idle", "edge-storm",
    "policy", "logins", "logins-token", "logins-certificate",
    "tls", "tls-large", "tls-handshakes", "tls-crowd", "tls-idle", "websocket",
    "first-paint", "consoles", "tails", "two-workers-paced", "large-frames", "many-pairs",
    "changes", "reload", "hostile-host", *operation_rows.OPERATION_ROWS,
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce all sizes to what a broker in Python manages quickly. Its listen backlog is 10."""
    monkeypatch.setattr(rows, "IDLE_CONNECTIONS", 8)
    monkeypatch.setattr(rows, "COPIES", 3)
    monkeypatch.setattr(rows, "PACED_RATE", 500)
    monkeypatch.setattr(rows, "BESIDE_RATE", 100)
    monkeypatch.setattr(gateway_rows, "CLIENTS", 20)
    monkeypatch.setattr(gateway_rows, "CLIENT_RATE", 500)
    monkeypatch.setattr(gateway_rows, "CLIENT_SECONDS", 0.5)
    monkeypatch.setattr(network_rows, "PACED_RATES", (500,))
    monkeypatch.setattr(network_rows, "LOSSES", 1)
    monkeypatch.setattr(network_rows, "RING", 5)
    monkeypatch.setattr(network_rows, "CHORD", 2)
    monkeypatch.setattr(edge_rows, "FIRST_ADDRESSES", 20)
    monkeypatch.setattr(edge_rows, "EDGES", 10)
    monkeypatch.setattr(edge_rows, "ADDRESSES", 3)
    monkeypatch.setattr(edge_rows, "STORM_SECONDS", 1)
    monkeypatch.setattr(edge_rows, "STORM_RATE", 500)
    monkeypatch.setattr(edge_rows, "IDLE_SECONDS", 1)
    monkeypatch.setattr(tails_rows, "QUICK_SECONDS", 0.5)
    monkeypatch.setattr(tails_rows, "PACED_RATE", 500)
    monkeypatch.setattr(policy_rows, "VHOSTS", 3)
    monkeypatch.setattr(operation_rows, "VHOSTS", 3)
    monkeypatch.setattr(operation_rows, "AT_A_TIME", 5)
    monkeypatch.setattr(operation_rows, "COUNTS", dict.fromkeys(operation_rows.COUNTS, 20))
    monkeypatch.setattr(login_rows, "CROWD", 20)
    monkeypatch.setattr(login_rows, "PACED_RATE", 500)
    monkeypatch.setattr(tls_rows, "FULL_HANDSHAKES", 20)
    monkeypatch.setattr(tls_rows, "RESUMED_HANDSHAKES", 40)
    monkeypatch.setattr(tls_rows, "CROWD", 20)
    monkeypatch.setattr(tls_rows, "PACED_RATE", 500)
    monkeypatch.setattr(tls_rows, "IDLE_CONNECTIONS", 8)
    monkeypatch.setattr(change_rows, "MANY", 20)
    monkeypatch.setattr(change_rows, "CHANGES", 3)
    monkeypatch.setattr(cost_rows, "QUICK_SIZES", (20, 40))
    monkeypatch.setattr(reconnect_rows, "LEAST_QUICK", 20)
    monkeypatch.setattr(reconnect_rows, "QUICK_DIVISOR", reconnect_rows.CLIENTS)
    monkeypatch.setattr(reconnect_rows, "PACED_RATE", 500)
    monkeypatch.setattr(reconnect_rows, "RETURN_SECONDS", 0)
    monkeypatch.setattr(reconnect_rows, "STEADY_SECONDS", 0.5)
    monkeypatch.setattr(reconnect_rows, "ALONE_SECONDS", 0.5)
    monkeypatch.setattr(reload_rows, "QUICK_SIZE", ReloadSize(8, 20, 2, reloads=3, interval=0.3, rate=400))
    monkeypatch.setattr(hostile_rows, "ROUNDS", 1)
    monkeypatch.setattr(simulation_rows, "QUICK_EDGES", 10)
    monkeypatch.setattr(simulation_rows, "QUICK_NETWORK", NetworkSize(8, 40, 2))
    monkeypatch.setattr(consoles_rows, "MANY", 3)
    monkeypatch.setattr(consoles_rows, "EDGES", (1, 0, 1))
    monkeypatch.setattr(consoles_rows, "RATE", 500)
    monkeypatch.setattr(consoles_rows, "SECONDS", 1)
    monkeypatch.setattr(consoles_rows, "ROUNDS", 1)
    monkeypatch.setattr(storm_rows, "STORMS", {kind: (20, title) for kind, (_, title) in storm_rows.STORMS.items()})


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(DEFAULT) - NEEDS_WORKERS - ELSEWHERE))
def test_row_gives_finite_figures(name: str) -> None:
    figures = ROWS[name](Bench(LITTLE, DEFAULT_ROUTER if name in NEEDS_ROUTER else BROKER))
    assert figures
    for figure in figures:
        assert isinstance(figure, Figure)
        assert math.isfinite(figure.value)
        # Memory may shrink. The effect of one more process on a median may be below the noise. CPU time is counted in
        # steps of 10 ms.
        difference = figure.unit.startswith(("MiB", "KiB")) or "added to the median" in figure.what
        difference = difference or "CPU" in figure.what
        assert figure.value >= 0 or difference
        assert figure.relay is None or figure.relay > 0 or difference
        assert figure.bar is None or not figure.bar.ratio or figure.ratio is not None or difference


def test_row_with_two_workers_refuses_single_process() -> None:
    with pytest.raises(MeasureError, match="none was placed as wanted"):
        ROWS["two-workers"](Bench(LITTLE, BROKER))
