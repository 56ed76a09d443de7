"""Dashboards and rules in a real Prometheus, which reads two interior routers and an edge router under load."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.packaging_tools import TOOLS
from sluice.router.client import LinkDetachedError, Message, connect
from tests.peer.pki import pki
from tests.promql import RULES, DashboardQuery, dashboard_queries
from tests.system.edges import edge, with_edges
from tests.system.http import WEB
from tests.system.networks import interior
from tests.system.router import EVERYTHING, ROOT, SETTINGS, RouterProcess, Section, free_port, listener, poll

PROMETHEUS = TOOLS / "prometheus"
#: Seconds of load, and for Prometheus to have data for all panels. The load ends earlier if the tests do.
LOAD_SECONDS = 120
PATIENCE = 45.0
#: Largest message that the policy allows, in octets, and seconds between the larger ones of `RefusedClient`.
LARGEST = 1_000_000
REFUSAL_PERIOD = 1.0
QUERIES = dashboard_queries()

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PROMETHEUS.exists(), reason="no prometheus in build/tools: make packaging-tools"),
]


class PrometheusServer:
    """A Prometheus that reads routers once a second and evaluates the rules of the repository.

    folder: receives its configuration, data and log.
    targets: HTTP listeners of the routers.
    """

    def __init__(self, folder: Path, targets: list[str]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "sluice", "static_configs": [{"targets": targets}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        self.log = folder / "prometheus.log"
        words = [
            str(PROMETHEUS),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a response of the HTTP API."""
        with urllib.request.urlopen(
            f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=20
        ) as got:
            answer = json.load(got)
        assert answer["status"] == "success", answer
        return answer["data"]

    def ready(self) -> bool:
        """Return True if Prometheus answers and has read all its targets."""
        assert self._process.poll() is None, self.log.read_text()
        try:
            found = self.get("query", query="up")["result"]
        except OSError:
            return False
        return bool(found) and all(series["value"][1] == "1" for series in found)

    def active(self, alert: str, instance: str) -> bool:
        """Return True if an alert about a router is pending or firing."""
        return bool(self.get("query", query=f'ALERTS{{alertname="{alert}", instance="{instance}"}}')["result"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)


class RefusedClient:
    """Client whose receiver grants no credit, and whose messages the policy refuses: panels show both only then."""

    def __init__(self, port: int) -> None:
        self._stopped = threading.Event()
        self._ended = ThreadPoolExecutor(1).submit(self._run, port)

    def _run(self, port: int) -> None:
        url = f"amqp://127.0.0.1:{port}"
        large = Message(bytes(2 * LARGEST))
        with connect(url) as connection:
            connection.receiver("balanced/stalled", window=0)
            while not self._stopped.wait(REFUSAL_PERIOD):
                connection.poll()
                with connect(url) as refused:
                    refused.receiver("balanced/refused")
                    sender = refused.sender("balanced/refused")
                    with suppress(LinkDetachedError):  # the router also closes the connection
                        sender.send(large, timeout=PATIENCE)

    def stop(self) -> None:
        """End the client. Raises an error of it."""
        self._stopped.set()
        self._ended.result(PATIENCE)


class MonitoredNetwork:
    """Two interior routers and an edge router with everything that panels show, their clients, and Prometheus."""

    def __init__(self, folder: Path, started: ExitStack) -> None:
        certificate, key = pki(folder).server
        group = {**EVERYTHING, "maxConnections": 500, "maxMessagesPerSecond": 100_000, "maxMessageSize": LARGEST}
        vhost = {"hostname": "$default", "maxLinks": 1000, "groups": {"$default": group}}
        shown: list[Section] = [
            WEB,
            ("sslProfile", {"name": "clients", "certFile": certificate, "privateKeyFile": key}),
            ("policy", {"enableVhostPolicy": True}),
            ("vhost", vhost),
            ("linkRoute", {"prefix": "routed", "direction": "in", "containerId": "broker"}),
            *SETTINGS,
        ]
        self._folder, self._started = folder, started
        a = self._router("A", [*with_edges("A"), listener("tls", sslProfile="clients", requireSsl=True), *shown])
        b = self._router("B", [*interior("B", None, [a.ports["net"]]), *shown])
        e = self._router("E", [*edge("E", a), WEB, *SETTINGS])
        for router in (a, b):
            self._load(router)
        self.refused = RefusedClient(a.port)
        started.callback(self.refused.stop)
        self.routers = {"A": a, "B": b, "E": e}
        self.instances = [f"127.0.0.1:{router.ports['web']}" for router in self.routers.values()]
        self.prometheus = PrometheusServer(folder, self.instances)
        started.callback(self.prometheus.stop)
        poll(self.prometheus.ready, "Prometheus has read all routers", PATIENCE)
        poll(self._moves, "messages move between the routers", PATIENCE)

    def _moves(self) -> bool:
        query = 'rate(sluice_deliveries_total{direction="transit"}[10s]) > 0'
        return bool(self.prometheus.get("query", query=query)["result"])

    def _router(self, name: str, sections: list[Section]) -> RouterProcess:
        (self._folder / name).mkdir()
        router = RouterProcess(self._folder / name, sections, workers=2)
        self._started.callback(router.kill)
        router.start()
        return router

    def _load(self, router: RouterProcess) -> None:
        """Start clients of a router."""
        words = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests/scenarios/standalone.py")]
        words += ["--host", f"amqp://127.0.0.1:{router.port}", "--headless", "--only-summary"]
        words += ["--users", "15", "--spawn-rate", "15", "--run-time", f"{LOAD_SECONDS}s"]
        with (self._folder / f"load-{router.port}.log").open("wb") as log:
            clients = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log)
        self._started.callback(clients.wait, 20)
        self._started.callback(clients.terminate)

    def series(self, query: DashboardQuery) -> list[dict[str, str]]:
        """Return the labels of all series of a query that have a value, of any router."""
        found = []
        for instance in self.instances:
            text = query.filled(job="sluice", instance=instance, router=".+", __rate_interval="10s")
            result = self.prometheus.get("query", query=text)["result"]
            found += [series["metric"] for series in result if series["value"][1] != "NaN"]
        return found


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredNetwork]:
    with ExitStack() as started:
        yield MonitoredNetwork(tmp_path_factory.mktemp("monitored"), started)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.dashboard}-{query.title}")
def test_panel_under_load_has_data(monitored: MonitoredNetwork, query: DashboardQuery) -> None:
    found: list[dict[str, str]] = poll(lambda: monitored.series(query), f"data for {query.expr}", PATIENCE)
    known = {"group"}  # Prometheus leaves out empty labels, as that of a whole vhost
    assert all(query.legend <= labels.keys() | known for labels in found), f"the legend lacks a label: {found[0]}"


def test_addresses_in_healthy_network_have_receivers(monitored: MonitoredNetwork) -> None:
    (panel,) = [query for query in QUERIES if query.title == "Addresses with senders and no receiver"]
    (series,) = monitored.prometheus.get("query", query=panel.filled(job="sluice"))["result"]
    assert series["value"][1] == "0"


def test_rules_in_prometheus_have_no_errors(monitored: MonitoredNetwork) -> None:
    def evaluated() -> list[dict[str, Any]]:
        found = [rule for group in monitored.prometheus.get("rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    states = poll(evaluated, "all rules are evaluated", PATIENCE)
    assert [(rule["name"], rule["lastError"]) for rule in states if rule["health"] != "ok"] == []


def test_alerts_of_healthy_network_are_quiet(monitored: MonitoredNetwork) -> None:
    firing = monitored.prometheus.get("query", query='ALERTS{alertstate="firing"}')["result"]
    assert [series["metric"] for series in firing] == []


def test_alerts_of_lost_routers_become_active(monitored: MonitoredNetwork) -> None:
    """Ends two routers, so no test may come after this one."""
    monitored.refused.stop()
    a, b, e = monitored.instances
    for router, alert, instance in (
        ("B", "SluiceRouterDown", b),
        ("B", "SluiceRouterUnreachable", a),
        ("A", "SluiceEdgeWithoutUplink", e),
    ):
        if monitored.routers[router].alive:
            monitored.routers[router].stop()
        poll(partial(monitored.prometheus.active, alert, instance), f"{alert} is active", PATIENCE)
