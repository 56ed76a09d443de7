"""Router processes that do not run for a while: stopped, frozen, or without CPU time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

import psutil
import pytest

from tests.peer.container import ScriptedBroker
from tests.peer.frames import AMQP_HEADER, FRAME_HEADER, SASL_HEADER, Performative, frame_octets
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.types import Array, Symbol
from tests.peer.wire import StreamEnd
from tests.system.fixtures import Start, pass_one
from tests.system.http import WEB, get, scrape
from tests.system.networks import RouterView, connector, interior, ports
from tests.system.router import RouterProcess, listener, poll

#: idleTimeoutSeconds and initialHandshakeTimeoutSeconds of these tests, in seconds; the minimum of both.
IDLE = 1
#: Seconds for which the router is stopped: longer than the timeouts and all tolerances.
STOPPED = 2.5
#: Seconds within which a hanging worker must be detected, and replaced (supervisor/children/probes.py), on a busy
#: machine.
DETECTED_WITHIN = 6.0
REPLACED_WITHIN = 18.0
#: Group of a vhost with all rights.
ALL = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"}


def send_all(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        os.kill(process.pid, number)


def stop(router: RouterProcess, peers: list[AmqpPeer], seconds: float) -> None:
    """Stop all processes of a router for `seconds`, while the peers keep sending heartbeats."""
    family = router.family()
    send_all(family, signal.SIGSTOP)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for peer in peers:
            peer.heartbeat()
        time.sleep(IDLE / 4)
    send_all(family, signal.SIGCONT)


def test_clients_with_heartbeats_survive_a_stopped_router(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = start([listener(idleTimeoutSeconds=IDLE)], workers)
    peers += [AmqpPeer.opened(router.port) for _ in range(6)]
    receiver, sender = peers[0].receiver("a", 10), peers[1].sender("a")
    stop(router, peers, STOPPED)
    for peer in peers:
        peer.barrier()
    pass_one(sender, receiver)
    assert "local-idle-timeout expired" not in router.log


def test_handshake_during_a_stop_gets_its_full_time(start: Start, peers: list[AmqpPeer]) -> None:
    router = start([listener(idleTimeoutSeconds=0, initialHandshakeTimeoutSeconds=IDLE)])
    peer = AmqpPeer(router.port)
    peers.append(peer)
    peer.raw(AMQP_HEADER[:4])
    poll(lambda: "Accepted connection" in router.log, "the connection is accepted")
    stop(router, [], STOPPED)
    peer.raw(AMQP_HEADER[4:])
    assert peer.read_octets(FRAME_HEADER) == AMQP_HEADER
    peer.raw(frame_octets(Performative("open", container_id="late").encode()))
    peer.expect("open")


def test_open_during_stopped_supervisor_is_answered_later(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """The opens wait for the supervisor's decision, while messages of other clients pass."""
    sections = [("policy", {"enableVhostPolicy": True}), ("vhost", {"hostname": "$default", "groups": {"all": ALL}})]
    router = start([listener(), *sections], workers)
    receiver, sender = AmqpPeer.opened(router.port).receiver("a", 20), AmqpPeer.opened(router.port).sender("a")
    late = [AmqpPeer(router.port) for _ in range(50)]
    peers += [receiver.peer, sender.peer, *late]
    for peer in late:
        assert peer.header(AMQP_HEADER) == AMQP_HEADER  # a worker owns the connection
    os.kill(router.pid, signal.SIGSTOP)
    try:
        for peer in late:
            peer.frame("open", container_id="late")
        for _ in range(10):
            pass_one(sender, receiver)
    finally:
        os.kill(router.pid, signal.SIGCONT)
    for peer in late:
        peer.expect("open")


@pytest.mark.parametrize("state", ["nothing", "header"])
def test_broker_handshake_during_a_stop_is_not_aborted(start: Start, state: str) -> None:
    broker = ScriptedBroker()
    place = {"name": "b", "host": "127.0.0.1", "port": broker.port, "idleTimeoutSeconds": IDLE}
    router = start([listener(), ("connector", place)])
    try:
        container = broker.accept()
        if state == "header":
            container.raw(SASL_HEADER[:4])
        stop(router, [], STOPPED)
        container.raw(SASL_HEADER[4 if state == "header" else 0 :])
        container.frame("sasl-mechanisms", sasl_server_mechanisms=Array([Symbol("ANONYMOUS")]))
        container.frame("sasl-outcome", code=0)
        container._expect_header(SASL_HEADER)
        container.expect("sasl-init")
        container.open_after_sasl()
        router.wait_log("Connection Opened: dir=out")
    finally:
        broker.close()


def test_neighbours_survive_a_stopped_router(start: Start) -> None:
    """Neither the idle timeout nor the age of HELLO advances while this router is stopped."""
    (port,) = ports(1)
    b = start(interior("B", port))
    sections = interior("A", helloMaxAgeSeconds=IDLE + 1)
    a = start([*sections, connector(port, idleTimeoutSeconds=IDLE)])
    RouterView(a).wait_nodes(B=1)
    RouterView(b).wait_nodes(A=1)
    lines = len(a.lines)
    stop(a, [], STOPPED)
    RouterView(a).wait_nodes(B=1)
    RouterView(b).wait_nodes(A=1)
    new_lines = "\n".join(a.lines[lines:])
    assert "Lost" not in new_lines, new_lines
    assert "is not reachable" not in new_lines, new_lines
    assert "local-idle-timeout" not in new_lines, new_lines


def test_supervisor_stopped_alone_closes_nothing(start: Start, peers: list[AmqpPeer]) -> None:
    """All the time the workers received the neighbours' heartbeats and sent their own."""
    (port,) = ports(1)
    b = start(interior("B", port))
    a = start([*interior("A"), connector(port)], workers=2)
    RouterView(a).wait_nodes(B=1)
    peers.append(AmqpPeer.opened(a.port))
    lines = len(a.lines)
    pids = a.worker_pids()
    os.kill(a.pid, signal.SIGSTOP)
    time.sleep(4.5)
    os.kill(a.pid, signal.SIGCONT)
    RouterView(a).wait_nodes(B=1)
    RouterView(b).wait_nodes(A=1)
    assert a.worker_pids() == pids
    new_lines = "\n".join(a.lines[lines:])
    assert "Lost" not in new_lines, new_lines
    assert "responded" not in new_lines, new_lines
    peers[0].barrier()


# --- one worker -----------------------------------------------------------------------------------------------------


def local_port(peer: AmqpPeer) -> int:
    return int(peer.socket.getsockname()[1])


def test_hanging_worker_gets_no_connections_and_is_replaced(start: Start, peers: list[AmqpPeer]) -> None:
    router = start([listener(), WEB], workers=3)
    web = router.ports["web"]
    peers += [AmqpPeer.opened(router.port) for _ in range(3)]
    victim = router.worker_of(local_port(peers[0]))
    others = [peer for peer in peers[1:] if router.worker_of(local_port(peer)) != victim]
    begun = time.monotonic()
    os.kill(victim, signal.SIGSTOP)
    waiting = [AmqpPeer(router.port) for _ in range(12)]  # some go to the worker before it is detected
    peers += waiting
    for peer in waiting:
        peer.raw(AMQP_HEADER)
    poll(lambda: get(web, "/readyz").status == 503, "not ready", DETECTED_WITHIN)
    assert time.monotonic() - begun < DETECTED_WITHIN
    assert "has not responded for" in get(web, "/readyz").text
    assert get(web, "/livez").status == 200
    assert scrape(web).sum("sluice_worker_up") == 2
    assert scrape(web).sum("sluice_worker_silent_seconds") >= 2
    for peer in waiting:
        assert peer.read_octets(FRAME_HEADER) == AMQP_HEADER
    for _ in range(6):
        peers.append(AmqpPeer.opened(router.port))
        assert router.worker_of(local_port(peers[-1])) != victim
    poll(lambda: victim not in router.worker_pids(), "the worker is killed", REPLACED_WITHIN)
    poll(lambda: get(web, "/readyz").status == 200, "ready again")
    router.wait_log(rf"SERVER \(error\) Worker \d \(process {victim}\) has not responded for 10 seconds and is killed")
    for peer in others:
        peer.barrier()
    with pytest.raises((StreamEnd, OSError)):
        peers[0].barrier()


@pytest.mark.parametrize("workers", [1], ids=["1-worker"])
def test_connections_wait_for_the_only_worker(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """No other worker can take the connections."""
    router = start([listener(), WEB], workers)
    (worker,) = router.worker_pids()
    peers.append(AmqpPeer.opened(router.port))
    os.kill(worker, signal.SIGSTOP)
    waiting = [AmqpPeer(router.port) for _ in range(5)]
    peers += waiting
    for peer in waiting:
        peer.raw(AMQP_HEADER)
    router.wait_log(r"SERVER \(warning\) Worker 0 .* has not responded for 2 seconds and gets no connections meanwhile")
    os.kill(worker, signal.SIGCONT)
    router.wait_log(r"SERVER \(notice\) Worker 0 .* responds again")
    for peer in waiting:
        assert peer.read_octets(FRAME_HEADER) == AMQP_HEADER
    peers[0].barrier()
    assert router.worker_pids() == [worker]
    poll(lambda: get(router.ports["web"], "/readyz").status == 200, "ready again")


def test_idle_router_wakes_for_probes_only(start: Start) -> None:
    workers = 3
    router = start([listener(), WEB], workers)
    peer = AmqpPeer.opened(router.port)
    management = Management(peer)

    def wakes() -> float:
        return scrape(router.ports["web"]).sum("sluice_worker_wakes_total")

    assert management.query("router")
    peer.close()
    before, begun = wakes(), time.monotonic()
    time.sleep(6)  # no connection and no request
    probes = (time.monotonic() - begun) / 2 + 1
    assert wakes() - before <= workers * probes + 2
