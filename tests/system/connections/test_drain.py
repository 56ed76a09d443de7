"""Drain before the exit: after SIGTERM with `shutdownGraceSeconds`, and by `sluice drain`."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest

from tests.peer import message
from tests.peer.frames import error_of
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system import tools
from tests.system.fixtures import Start
from tests.system.http import WEB, get
from tests.system.router import RouterProcess, Section, listener, poll

WORKER_COUNTS = (1, 3)
FORCED = ("amqp:connection:forced", "the router is about to exit: connect to another one")
#: Seconds for steps that the drain takes after what it waited for.
PATIENCE = 30.0


def draining(start: Start, workers: int, seconds: int = 60, **attributes: object) -> RouterProcess:
    """Start a router that drains after SIGTERM."""
    sections: list[Section] = [("router", {"shutdownGraceSeconds": seconds, **attributes}), listener(), WEB]
    return start(sections, workers)


def opened(router: RouterProcess, peers: list[AmqpPeer]) -> AmqpPeer:
    """Return a new client of the router."""
    peer = AmqpPeer.opened(router.port)
    peers.append(peer)
    return peer


def terminate(router: RouterProcess) -> None:
    """Send SIGTERM, and wait until the drain has begun."""
    os.kill(router.pid, signal.SIGTERM)
    router.wait_log("SIGTERM: draining")


def refuses(router: RouterProcess) -> bool:
    """True if the router accepts no connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", router.port)) != 0


def test_drain_waits_for_unsettled_deliveries(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = draining(start, workers)
    receiver = opened(router, peers).receiver("a", 10)
    sender = opened(router, peers).sender("a")
    numbers = [sender.send(message.message(number)) for number in range(5)]
    deliveries = receiver.receive(5)
    terminate(router)
    poll(lambda: refuses(router), "the listener is closed")
    reply = get(router.ports["web"], "/readyz")
    assert reply.status == 503
    assert "[-] running: the router is shutting down" in reply.text
    sender.peer.until(lambda: sender.credit == 0, "no credit")
    sender.peer.barrier()
    receiver.peer.barrier()
    for delivery in deliveries:
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    assert sender.peer.expect_close(PATIENCE) == FORCED
    assert receiver.peer.expect_close(PATIENCE) == FORCED
    assert router.wait_exit(PATIENCE) == 0
    assert "Drained: all connections are closed" in router.log


def test_drain_waits_for_queued_deliveries(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = draining(start, workers)
    receiver = opened(router, peers).receiver("a", 1)
    sender = opened(router, peers).sender("a")
    numbers = [sender.send(message.message(number)) for number in range(4)]
    first = receiver.next()
    terminate(router)
    sender.peer.until(lambda: sender.credit == 0, "no credit")
    late = sender.send(message.message("sent before the flow was read"))
    first.settle()
    receiver.flow(10)
    for delivery in receiver.receive(4):
        delivery.settle()
    assert {sender.outcome(number).name for number in (*numbers, late)} == {"accepted"}
    assert sender.peer.expect_close(PATIENCE) == FORCED
    assert receiver.peer.expect_close(PATIENCE) == FORCED
    assert router.wait_exit(PATIENCE) == 0


def test_drain_with_client_that_never_settles_ends_after_its_time(
    start: Start, workers: int, peers: list[AmqpPeer]
) -> None:
    router = draining(start, workers, seconds=2)
    receiver = opened(router, peers).receiver("a", 10)
    sender = opened(router, peers).sender("a")
    sender.send(message.message("kept"))
    receiver.next()
    begun = time.monotonic()
    terminate(router)
    assert receiver.peer.expect_close(PATIENCE) == FORCED
    assert time.monotonic() - begun >= 1.9
    assert router.wait_exit(PATIENCE) == 0
    assert "The time for draining is over: closing 2 connections with 2 deliveries not settled" in router.log


def test_management_works_until_all_clients_have_left(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = draining(start, workers)
    receiver = opened(router, peers).receiver("a", 10)
    sender = opened(router, peers).sender("a")
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    idle = opened(router, peers)
    management = Management(opened(router, peers))
    terminate(router)
    assert idle.expect_close(PATIENCE) == FORCED
    poll(lambda: len(management.query("connection")) == 3, "only the idle client has left")
    late = receiver.peer.session.sender("b", wait=False, credit=False)
    late.wait_attached()
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    assert management.peer.expect_close(PATIENCE) == FORCED
    assert router.wait_exit(PATIENCE) == 0


def test_close_names_failover_server(start: Start, peers: list[AmqpPeer]) -> None:
    sections: list[Section] = [
        ("router", {"shutdownGraceSeconds": 60}),
        listener(failoverUrls="amqps://second.example:5671,third.example"),
    ]
    router = start(sections)
    peer = opened(router, peers)
    terminate(router)
    error = peer.expect("close", PATIENCE).error
    assert error_of(error) == FORCED
    assert error.value[2] == {"network-host": "second.example", "port": "5671", "scheme": "amqps"}
    assert router.wait_exit(PATIENCE) == 0


def test_second_sigterm_ends_drain(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = draining(start, workers, seconds=3600)
    receiver = opened(router, peers).receiver("a", 10)
    sender = opened(router, peers).sender("a")
    sender.send(message.message("kept"))
    receiver.next()
    terminate(router)
    os.kill(router.pid, signal.SIGTERM)
    assert router.wait_exit(PATIENCE) == 0


def test_drain_closes_connections_at_rate(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = draining(start, workers, shutdownConnectionsPerSecond=20)
    clients = [opened(router, peers) for _ in range(30)]
    begun = time.monotonic()
    terminate(router)
    assert "SIGTERM: draining 30 connections, 20 a second, for at most 60 seconds" in router.log
    for client in clients:
        assert client.expect_close(PATIENCE) == FORCED
    assert time.monotonic() - begun >= 1.4
    assert router.wait_exit(PATIENCE) == 0


def test_drain_command_drains_router_without_grace(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = start([listener()], workers)
    receiver = opened(router, peers).receiver("a", 10)
    sender = opened(router, peers).sender("a")
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    result = tools.run("drain", router.port, "--seconds", "50", "--per-second", "70")
    assert (result.code, result.err) == (0, "")
    assert result.out == "Router QDR drains: 3 connections, 70 a second, for at most 50 seconds\n"
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    assert sender.peer.expect_close(PATIENCE) == FORCED
    assert router.wait_exit(PATIENCE) == 0


def test_drain_command_with_bad_number_is_refused(start: Start) -> None:
    router = start([listener()])
    result = tools.run("drain", router.port, "--seconds", "0")
    assert result.code == 1
    assert "seconds must be from 1 to 86400" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_router_with_grace_ends_at_once_after_other_signals(
    start: Start, peers: list[AmqpPeer], number: signal.Signals
) -> None:
    router = draining(start, 1, seconds=3600)
    receiver = opened(router, peers).receiver("a", 10)
    opened(router, peers).sender("a").send(message.message("kept"))
    receiver.next()
    os.kill(router.pid, number)
    router.wait_exit(PATIENCE)
    assert "draining" not in router.log
