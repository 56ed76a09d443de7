"""Alerts of Prometheus at real routers: each fires in the trouble that it names, not before, and not after it is over.

The other tests of alerts evaluate the rules on series that they write. These read the pages of routers.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.peer import frames, message
from tests.peer.logins import write_users
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import SwappableCertificate, pki
from tests.promql import rules
from tests.system.edges import edge, with_edges
from tests.system.fixtures import CAPACITY, Start, pass_one
from tests.system.http import WEB, scrape
from tests.system.monitoring.alert_history import PROMTOOL, AlertHistory, router_page
from tests.system.networks import RouterView, connector, interior, ports
from tests.system.router import EVERYTHING, RouterProcess, Section, free_port, listener, poll

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(PROMTOOL is None, reason="no promtool in build/tools or on the path: make packaging-tools"),
]

#: Minutes after which no window of a rule on increases contains the increase.
FORGOTTEN = 11
#: Seconds until the router reports that something does not move, which takes more than ten.
STUCK_SECONDS = 40.0
Observe = Callable[[RouterProcess], AlertHistory]


@pytest.fixture
def observe(tmp_path: Path) -> Observe:
    """Return observe(router), which begins the history of a router."""

    def begin(router: RouterProcess) -> AlertHistory:
        return AlertHistory(tmp_path, lambda new: router_page(router.ports["web"], new))

    return begin


def wait_metric(router: RouterProcess, condition: Callable[[float], bool], name: str, **labels: str) -> None:
    """Wait until the sum of a metric fulfils a condition."""

    def fulfilled() -> bool:
        page = scrape(router.ports["web"])
        found = [value for own, value in page.samples.get(name, ()) if labels.items() <= own.items()]
        return condition(sum(found))

    poll(fulfilled, f"{name} {labels}", STUCK_SECONDS)


def wait_growth(
    router: RouterProcess, name: str, pace: Callable[[], object] = bool, **labels: str
) -> Callable[[], None]:
    """Return a function that waits until a metric has grown since its previous call. pace: called while it waits."""
    reached = 0.0

    def wait() -> None:
        nonlocal reached
        before = reached

        def grown(value: float) -> bool:
            nonlocal reached
            pace()
            reached = value
            return value > before

        wait_metric(router, grown, name, **labels)

    return wait


def zygote(router: RouterProcess) -> int:
    """Return the process that forks workers."""
    return next(each.pid for each in router.family() if each.pid != router.pid and each.children())


# -- Routers and workers


def test_lost_router_raises_router_down(start: Start, observe: Observe) -> None:
    router = start([listener(), WEB])
    history = observe(router)
    history.pass_calm_minutes(5)
    router.kill()
    history.pass_minutes(4)
    history.expect("SluiceRouterDown")
    router.start()
    history.pass_calm_minutes(3)
    history.check()


def test_repeated_restarts_raise_router_restarts(start: Start, observe: Observe) -> None:
    router = start([listener(), WEB])
    history = observe(router)
    history.pass_calm_minutes(2)
    for _ in range(2):
        router.stop()
        router.start()
        history.pass_calm_minutes(2)
    router.stop()
    router.start()
    history.pass_minutes(2)
    history.expect("SluiceRouterRestarts")
    history.pass_minutes(31)
    history.expect()
    history.check()


def test_refused_reload_raises_reload_refused(start: Start, observe: Observe) -> None:
    router = start([listener(), WEB])
    history = observe(router)
    history.pass_calm_minutes(3)
    right = router.config.read_text()
    router.config.write_text(right + "nonsense {\n}\n")
    os.kill(router.pid, signal.SIGHUP)
    wait_metric(router, lambda value: value == 1, "sluice_reloads_total", outcome="failure")
    history.pass_minutes(1)
    history.expect("SluiceReloadRefused", outcome="failure")
    router.config.write_text(right)
    os.kill(router.pid, signal.SIGHUP)
    wait_metric(router, lambda value: value == 1, "sluice_reloads_total", outcome="success")
    history.pass_minutes(FORGOTTEN)
    history.expect()
    history.check()


def test_killed_worker_raises_worker_replaced(start: Start, observe: Observe) -> None:
    router = start([listener(), WEB], 2)
    history = observe(router)
    history.pass_calm_minutes(3)
    os.kill(router.worker_pids()[0], signal.SIGKILL)
    wait_metric(router, lambda value: value == 1, "sluice_worker_restarts_total")
    history.pass_minutes(1)
    history.expect("SluiceWorkerReplaced")
    wait_metric(router, lambda value: value == 2, "sluice_worker_up")
    history.pass_minutes(FORGOTTEN)
    history.expect()
    history.check()


def test_missing_worker_raises_not_ready(start: Start, observe: Observe) -> None:
    """No worker can be forked while the zygote is stopped."""
    router = start([listener(), WEB], 2)
    history = observe(router)
    history.pass_calm_minutes(3)
    forking = zygote(router)
    os.kill(forking, signal.SIGSTOP)
    try:
        os.kill(router.worker_pids()[0], signal.SIGKILL)
        wait_metric(router, lambda value: value == 0, "sluice_ready")
        history.pass_minutes(4)
        history.expect("SluiceNotReady", "SluiceWorkerReplaced")
    finally:
        os.kill(forking, signal.SIGCONT)
    wait_metric(router, lambda value: value == 1, "sluice_ready")
    history.pass_minutes(1)
    history.expect("SluiceWorkerReplaced")
    history.pass_minutes(FORGOTTEN)
    history.expect()
    history.check()


def test_stopped_worker_raises_table_lag(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    router = start([listener(), WEB], 2)
    peers += [AmqpPeer.opened(router.port) for _ in range(2)]
    history = observe(router)
    history.pass_calm_minutes(2)
    stopped = router.worker_of(peers[0].socket.getsockname()[1])
    os.kill(stopped, signal.SIGSTOP)
    try:
        peers[1].receiver("new", 1, wait=False)
        wait_metric(router, lambda value: value > 5, "sluice_table_lag_seconds")
        history.pass_minutes(2)
        history.expect("SluiceTableLag")
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_metric(router, lambda value: value == 0, "sluice_table_lag_seconds")
    wait_metric(router, bool, "sluice_ready")
    history.pass_minutes(1)
    history.expect()
    history.check()


def test_taken_port_raises_listener_down(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    router = start([listener(), WEB])
    peers.append(AmqpPeer.opened(router.port))
    history = observe(router)
    history.pass_calm_minutes(2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        Management(peers[0]).create("listener", "busy", host="127.0.0.1", port=str(port))
        history.pass_minutes(4)
        history.expect("SluiceListenerDown", "SluiceNotReady", listener="busy", role="normal")
    Management(peers[0]).delete("listener", "busy")
    history.pass_minutes(1)
    history.expect()
    history.check()


# -- Limits


def test_full_worker_raises_worker_memory_and_then_limit(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    limit, part = 16 << 20, 15_000
    small = listener("small", maxSessionFrames=20)
    router = start([("router", {"maxBufferedMegabytes": limit >> 20}), listener(), small, WEB])
    silent = AmqpPeer.opened(router.port)
    session = silent.begin(incoming_window=0)
    for number in range(5):
        session.receiver(f"deaf{number}", credit=5)
    session.receiver("little", credit=5)
    innocent = AmqpPeer.opened(router.ports["small"])
    receiving = AmqpPeer.opened(router.port)
    receiving.receiver("taken", 5)
    little, sender = innocent.sender("little"), innocent.sender("taken")
    assert little.send_some(message.data(bytes(10 * part)), STUCK_SECONDS)
    producers = [AmqpPeer.opened(router.port).sender(f"deaf{number}") for number in range(5)]
    peers += [silent, innocent, receiving, *(producer.peer for producer in producers)]
    history = observe(router)
    history.pass_calm_minutes(2)
    held = "sluice_worker_buffered_bytes"
    for producer in producers[:4]:
        for _ in range(245):
            producer.send(message.data(bytes(part)))
    wait_metric(router, lambda value: value > 0.82 * limit, held)
    history.pass_minutes(7)
    history.expect("SluiceWorkerMemory")
    for _ in range(245):
        producers[4].send(message.data(bytes(part)))
    wait_metric(router, lambda value: value >= limit, held)
    # More than the window of the session: the message needs room, so the router closes a link that fills the worker.
    assert sender.send_some(message.data(bytes(40 * part)), STUCK_SECONDS)
    wait_metric(router, lambda value: value > 0, "sluice_worker_given_up_total")
    history.pass_minutes(1)
    history.expect("SluiceMemoryLimitReached")  # the closed link has made room
    for peer in peers:
        peer.drop()
    wait_metric(router, lambda value: value < 0.1 * limit, held)
    history.pass_minutes(FORGOTTEN)
    history.expect()
    history.check()


def test_open_connections_raise_connections_near_limit(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    router = start([("policy", {"maxConnections": 10}), listener(), WEB])
    history = observe(router)
    peers += [AmqpPeer.opened(router.port) for _ in range(8)]
    history.pass_calm_minutes(7)
    peers.append(AmqpPeer.opened(router.port))
    wait_metric(router, lambda value: value == 9, "sluice_connections")
    history.pass_minutes(7)
    history.expect("SluiceConnectionsNearLimit")
    peers.pop().drop()
    wait_metric(router, lambda value: value == 8, "sluice_connections")
    history.pass_minutes(1)
    history.expect()
    history.check()


def test_scarce_descriptors_raise_files_near_limit(start: Start, observe: Observe) -> None:
    router = start([listener(), WEB])
    history = observe(router)
    history.pass_calm_minutes(2)
    before = resource.prlimit(router.pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{router.pid}/fd"))
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (used + 5, before[1]))
    history.pass_minutes(7)
    history.expect("SluiceFilesNearLimit")
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, before)
    history.pass_minutes(1)
    history.expect()
    history.check()


@pytest.mark.parametrize("limit", ["maxConnections", "maxLinks", "maxAddresses"])
def test_used_up_quota_raises_quota_near_limit(
    start: Start, observe: Observe, peers: list[AmqpPeer], limit: str
) -> None:
    vhost = {"hostname": "shop", limit: 10, "groups": {"all": EVERYTHING}}
    router = start([("policy", {"enableVhostPolicy": True}), ("vhost", vhost), listener(), WEB])

    def use() -> None:
        if limit == "maxConnections" or not peers:
            peers.append(AmqpPeer.opened(router.port, hostname="shop"))
        else:
            peers[0].receiver(f"a{len(peers[0].sessions[0].links)}" if peers[0].sessions else "a", 1)

    history = observe(router)
    for _ in range(8):
        use()
    history.pass_calm_minutes(7)
    for _ in range(10 - 8 + (limit != "maxConnections")):
        use()
    history.pass_minutes(7)
    history.expect("SluiceQuotaNearLimit", vhost="shop", limit=limit)
    peers[-1].drop()
    name = {"maxConnections": "connections", "maxLinks": "links", "maxAddresses": "addresses"}[limit]
    wait_metric(router, lambda value: value < 10, f"sluice_vhost_{name}", vhost="shop")
    history.pass_minutes(1)
    history.expect()
    history.check()


def test_quota_of_octets_raises_senders_throttled(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    """The vhost may have less in the router than its consumer leaves there."""
    vhost = {"hostname": "quota", "maxBufferedOctets": 100_000, "groups": {"all": EVERYTHING}}
    router = start([("policy", {"enableVhostPolicy": True}), ("vhost", vhost), listener(), WEB])
    peers += [AmqpPeer.opened(router.port, hostname="quota") for _ in range(2)]
    receiver, sender = peers[0].receiver("a", CAPACITY), peers[1].sender("a")
    history = observe(router)
    history.pass_calm_minutes(2)
    receiver.detach()
    peers[0].receiver("a", 0)
    sender.wait_credit()
    for _ in range(CAPACITY):
        peers[1].barrier()
        if sender.session.remote_window <= 0 or sender.credit <= 0:
            break
        sender.send(message.data(bytes(15_000)))
    wait_metric(router, bool, "sluice_links_stalled", reason="quota")
    history.pass_minutes(7)
    history.expect("SluiceSendersThrottled", reason="quota")
    for peer in peers:
        peer.drop()
    wait_metric(router, lambda value: value == 0, "sluice_links_stalled", reason="quota")
    history.pass_minutes(1)
    history.expect()
    history.check()


# -- Deliveries


def test_silent_receiver_raises_links_stalled_and_deliveries_stuck(
    start: Start, observe: Observe, peers: list[AmqpPeer]
) -> None:
    router = start([listener(), WEB])
    peers += [AmqpPeer.opened(router.port) for _ in range(2)]
    receiver, sender = peers[0].receiver("a", 2), peers[1].sender("a")
    history = observe(router)
    history.pass_calm_minutes(2)
    for _ in range(5):
        sender.send(message.message("x"))
    taken = receiver.receive(2)
    wait_metric(router, bool, "sluice_links_blocked")
    wait_metric(router, bool, "sluice_links_stuck_deliveries")
    history.pass_minutes(12)
    history.expect("SluiceLinksStalled", role="normal", direction="out")
    history.pass_minutes(5)
    history.expect("SluiceLinksStalled", "SluiceDeliveriesStuck")
    receiver.flow(10)
    for delivery in [*taken, *receiver.receive(3)]:
        delivery.settle()
    for name in ("sluice_links_blocked", "sluice_links_stuck_deliveries"):
        wait_metric(router, lambda value: value == 0, name)
    history.pass_minutes(1)
    history.expect()
    history.check()


@pytest.mark.parametrize(
    ("state", "alert"), [(frames.REJECTED, "SluiceRejectedShare"), (frames.RELEASED, "SluiceReleasedShare")]
)
def test_refused_messages_raise_share(
    start: Start, observe: Observe, peers: list[AmqpPeer], state: Any, alert: str
) -> None:
    """Twelve messages a minute, of which none or four are refused."""
    router = start([listener(), WEB])
    peers += [AmqpPeer.opened(router.port) for _ in range(2)]
    receiver, sender = peers[0].receiver("a", 1000), peers[1].sender("a")

    def minute(refused: int) -> None:
        for number in range(12):
            sent = sender.send(message.message("x"))
            receiver.next().settle(state if number < refused else frames.ACCEPTED)
            sender.outcome(sent)

    history = observe(router)
    history.pass_calm_minutes(6, lambda: minute(0))
    history.pass_minutes(16, lambda: minute(4))
    history.expect(alert)
    history.pass_minutes(7, lambda: minute(0))
    history.expect()
    history.check()


def test_lost_presettled_messages_raise_presettled_dropped(
    start: Start, observe: Observe, peers: list[AmqpPeer]
) -> None:
    """Messages without an address count under `no_destination`, which raises no alert."""
    router = start([listener(), WEB])
    peers += [AmqpPeer.opened(router.port) for _ in range(2)]
    sender = peers[1].sender("a", credit=False)

    def lose() -> None:
        receiver = peers[0].receiver("a")
        sender.wait_credit()
        for _ in range(3):
            sender.send(message.message("x"), settled=True)
        peers[1].barrier()
        receiver.detach()

    history = observe(router)
    history.pass_calm_minutes(3)
    history.pass_minutes(8, lose)
    history.expect("SluicePresettledDropped")
    history.pass_minutes(6)
    history.expect()
    history.check()


# -- Brokers and the network


def test_lost_broker_raises_its_alerts(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    """The broker is a router, which accepts each link."""
    (port,) = ports(1)
    broker = start([("router", {"id": "broker"}), listener("normal", port=port)])
    away = {"name": "b", "host": "127.0.0.1", "port": port, "role": "route-container"}
    router = start(
        [
            listener(),
            WEB,
            ("connector", away),
            ("autoLink", {"name": "in", "address": "q", "direction": "in", "connection": "b"}),
            ("linkRoute", {"name": "r", "prefix": "routed", "direction": "in", "connection": "b"}),
        ]
    )
    history = observe(router)
    for name in ("sluice_connector_up", "sluice_auto_link_up", "sluice_link_route_up"):
        wait_metric(router, lambda value: value == 1, name)
    history.pass_calm_minutes(7)
    broker.kill()
    wait_metric(router, lambda value: value == 0, "sluice_connector_up")
    history.pass_minutes(4)
    history.expect("SluiceConnectorDown", connector="b")
    history.pass_minutes(3)
    history.expect("SluiceConnectorDown", "SluiceAutoLinksDown", "SluiceLinkRoutesDown")
    broker.start()
    for name in ("sluice_connector_up", "sluice_auto_link_up", "sluice_link_route_up"):
        wait_metric(router, lambda value: value == 1, name)
    history.pass_minutes(6)
    history.expect()
    history.check()


def test_lost_neighbour_raises_router_unreachable(start: Start, observe: Observe) -> None:
    (port,) = ports(1)
    router = start([*interior("A", port), WEB])
    other = start(interior("B", None, [port]))
    RouterView(router).wait_nodes(B=1)
    history = observe(router)
    history.pass_calm_minutes(3)
    other.kill()
    RouterView(router).wait_nodes(B=None)
    history.pass_minutes(3)
    history.expect("SluiceRouterUnreachable")
    other.start()
    RouterView(router).wait_nodes(B=1)
    history.pass_minutes(1)
    history.expect()
    history.check()


def test_flapping_connector_raises_network_unstable(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    (port,) = ports(1)
    router = start([*interior("A", port), WEB])
    other = start([*interior("B"), ("connector", connector(port)[1])])
    view = RouterView(router)
    view.wait_nodes(B=1)
    history = observe(router)
    history.pass_calm_minutes(3)
    peers.append(AmqpPeer.opened(other.port))
    management = Management(peers[0])

    def flap() -> None:
        attributes = connector(port)[1]
        management.delete("connector", attributes["name"])
        view.wait_nodes(B=None)
        given = {name: str(value) for name, value in attributes.items() if name != "name"}
        management.create("connector", attributes["name"], **given)
        view.wait_nodes(B=1)

    history.pass_minutes(12, flap)
    history.expect("SluiceNetworkUnstable")
    history.pass_minutes(15)
    history.expect()
    history.check()


def test_lost_interior_router_raises_edge_without_uplink(start: Start, observe: Observe) -> None:
    inner = start(with_edges("A"))
    router = start([*edge("E", inner), WEB])
    wait_metric(router, lambda value: value == 1, "sluice_edge_uplinks", state="active")
    history = observe(router)
    history.pass_calm_minutes(3)
    text = inner.config.read_text()
    kept = inner.ports["edges"]
    inner.kill()
    wait_metric(router, lambda value: value == 0, "sluice_edge_uplinks", state="active")
    history.pass_minutes(3)
    history.expect("SluiceEdgeWithoutUplink")
    before, name, after = text.partition("name: edges")
    inner.config.write_text(before.rpartition("port: 0")[0] + f"port: {kept}" + before.rpartition("port: 0")[2]
                            + name + after)  # fmt: skip
    inner.start()
    wait_metric(router, lambda value: value == 1, "sluice_edge_uplinks", state="active")
    history.pass_minutes(1)
    history.expect()
    history.check()


# -- Records


class StubCollector(BaseHTTPRequestHandler):
    """Collector that answers each export with one status. 400: the export is lost at once."""

    status = 200

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
        pass


class RefusingCollector(StubCollector):
    status = 400


@pytest.fixture
def collector(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a collector of the class that is the fixture's parameter."""
    with HTTPServer(("127.0.0.1", 0), request.param) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("collector", [RefusingCollector], indirect=True, ids=["refusing"])
def test_refusing_collector_raises_export_lost(start: Start, observe: Observe, collector: str) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra 'otel' is not installed")
    web = ("listener", {**WEB[1], "port": free_port()})
    router = start([listener(), web])
    history = observe(router)
    history.pass_calm_minutes(2)
    router.configure(
        [listener(), web, ("openTelemetry", {"endpoint": collector, "logs": "no", "metricsIntervalSeconds": 1})]
    )
    os.kill(router.pid, signal.SIGHUP)
    history.pass_minutes(16, wait_growth(router, "sluice_otlp_records_total", signal="metrics", result="unexported"))
    history.expect("SluiceExportLost", signal="metrics", result="unexported")
    router.configure([listener(), web])
    os.kill(router.pid, signal.SIGHUP)
    wait_metric(router, lambda value: value == 2, "sluice_reloads_total", outcome="success")
    history.pass_minutes(6)
    history.expect()
    history.check()


@pytest.mark.parametrize("collector", [StubCollector], indirect=True, ids=["accepting"])
def test_crowd_of_traced_deliveries_raises_spans_dropped(
    start: Start, observe: Observe, peers: list[AmqpPeer], collector: str
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra 'otel' is not installed")
    tracing = ("tracing", {"ratio": "1", "spansPerSecond": 1, "endpoint": f"{collector}/v1/traces"})
    router = start([listener(), WEB, tracing])
    peers += [AmqpPeer.opened(router.port) for _ in range(2)]
    receiver, sender = peers[0].receiver("a", 1_000_000), peers[1].sender("a")
    history = observe(router)
    history.pass_calm_minutes(2)
    dropped = wait_growth(router, "sluice_trace_spans_total", result="dropped", pace=lambda: pass_one(sender, receiver))
    history.pass_minutes(13, dropped)
    history.expect("SluiceSpansDropped")
    history.pass_minutes(7)
    history.expect()
    history.check()


def test_full_device_raises_audit_lines_lost(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    router = start([listener(), WEB, ("audit", {"name": "full", "path": "/dev/full", "maxQueued": 32768})])
    peers.append(AmqpPeer.opened(router.port))
    history = observe(router)
    history.pass_calm_minutes(2)
    management = Management(peers[0])
    for number in range(60):
        management.create("router.config.address", f"f{number}", prefix=f"f{number}-{'x' * 800}")
    wait_metric(router, bool, "sluice_audit_dropped_total")
    history.pass_minutes(1)
    history.expect("SluiceAuditLinesLost")
    peers.pop().drop()
    history.pass_minutes(FORGOTTEN + 1)
    history.expect()
    history.check()


# -- Security


def test_old_certificates_raise_certificate_alerts(
    start: Start, observe: Observe, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = pki(tmp_path_factory.getbasetemp(), "alerts")

    def lasting(name: str, **left: float) -> tuple[bytes, bytes]:
        issued = made.issue(name, "/CN=localhost", until=datetime.now(tz=UTC) + timedelta(**left))
        return issued.certificate.read_bytes(), issued.key.read_bytes()

    folder = tmp_path / "mounted"
    folder.mkdir()
    swapped = SwappableCertificate(folder, made.issue("first", "/CN=localhost",
                                                      until=datetime.now(tz=UTC) + timedelta(days=20)))  # fmt: skip
    own = {"name": "p", "certFile": swapped.issued.certificate, "privateKeyFile": swapped.issued.key}
    router = start([listener(), WEB, ("sslProfile", own), listener("tls", sslProfile="p", requireSsl=True)])

    def put(certificate: bytes, key: bytes, line: str) -> None:
        before = len(router.lines)
        swapped.put(certificate, key)
        router.wait_log(line, 30.0, before)

    used = "sslProfile 'p': new credentials are in use"
    history = observe(router)
    history.pass_calm_minutes(3)
    put(*lasting("week", days=5), used)
    history.pass_minutes(1)
    history.expect("SluiceCertificateExpires", profile="p")
    put(*lasting("day", hours=20), used)
    history.pass_minutes(1)
    history.expect("SluiceCertificateExpires", "SluiceCertificateExpiresToday")
    put(*lasting("renewed", days=20), used)
    history.pass_minutes(1)
    history.expect()
    put(b"nonsense", b"nonsense", "the previous credentials stay in use")
    history.pass_minutes(4)
    history.expect("SluiceCertificateInvalid", profile="p")
    put(*lasting("repaired", days=20), "sslProfile 'p'.* (is valid again|new credentials are in use)")
    history.pass_minutes(1)
    history.expect()
    history.check()


def test_refused_clients_raise_policy_refusals(start: Start, observe: Observe, peers: list[AmqpPeer]) -> None:
    group = {"users": "*", "remoteHosts": "*", "sources": "allowed"}
    vhost = {"hostname": "$default", "groups": {"$default": group}, "allowUnknownUser": True}
    router = start([("policy", {"enableVhostPolicy": True}), ("vhost", vhost), listener(), WEB])
    peers.append(AmqpPeer.opened(router.port))

    def refuse() -> None:
        for _ in range(40):
            peers[0].receiver("secret", 1, wait=False).wait_detached()

    history = observe(router)
    history.pass_calm_minutes(3)
    history.pass_minutes(11, refuse)
    history.expect("SluicePolicyRefusals")
    history.pass_minutes(6)
    history.expect()
    history.check()


def test_wrong_passwords_raise_logins_fail(start: Start, observe: Observe, tmp_path: Path) -> None:
    write_users(tmp_path / "users", guest="right")
    users: list[Section] = [("saslUsers", {"name": "users", "file": tmp_path / "users"})]
    guarded = listener("guarded", saslMechanisms="PLAIN", saslUsers="users", authenticatePeer=True)
    router = start([listener(), WEB, *users, guarded])

    hosts = (f"127.1.{number >> 8}.{number & 255}" for number in itertools.count(1))

    def fail() -> None:
        """Fail as often in a minute as one client that repeats a wrong password, whose answers are delayed by 3 s."""
        for _ in range(19):
            dialled = socket.create_connection(("127.0.0.1", router.ports["guarded"]), source_address=(next(hosts), 0))
            with AmqpPeer(dialled) as peer:
                assert peer.sasl("PLAIN", b"\0guest\0wrong").code != 0

    history = observe(router)
    history.pass_calm_minutes(3)
    history.pass_minutes(11, fail)
    history.expect("SluiceLoginsFail", listener="guarded")
    history.pass_minutes(6)
    history.expect()
    history.check()


#: Alerts that these tests do not bring about, each with the reason.
LEFT_OUT = {
    "SluiceNoRouters": "needs no router; tests/packaging/test_alerts.py",
    "SluiceWorkerBusy": "needs a core for more than ten minutes",
    "SluiceInternalError": "needs a fault of the router",
    "SluiceLinksNearLimit": "needs thousands of links",
    "SluiceAddressesNearLimit": "needs thousands of addresses",
    "SluiceConnectionsDelayed": "needs ten minutes of connecting clients",
    "SluiceTelemetryLost": "needs a folder that cannot be written for hours",
}


def test_alerts_are_brought_about_or_left_out_with_reason() -> None:
    text = Path(__file__).read_text("utf-8").partition("LEFT_OUT =")[0]
    tried = {name for name in rules("alert") if f'"{name}"' in text}
    assert tried | LEFT_OUT.keys() == rules("alert").keys()
    assert not tried & LEFT_OUT.keys()
