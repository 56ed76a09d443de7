"""Connectors whose peer accepts the connection and stops sending before it is open (brokers-and-edge.md C-8)."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peer.container import Container, ScriptedBroker
from tests.peer.frames import SASL_HEADER
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import pki
from tests.peer.types import Array, Symbol
from tests.peer.wire import StreamEnd
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, listener, poll

IDLE = 1
#: Seconds until the next attempt, with as many in reserve for a busy machine.
RETRY_SECONDS = IDLE + 12.0
EXPIRED = "amqp:resource-limit-exceeded local-idle-timeout expired before the peer's "
OPEN = bytes.fromhex("0000001d02000000005310c0100304")  # first octets of an open frame


def send_nothing(container: Container) -> None:
    """Send nothing on the accepted connection."""


def send_half_header(container: Container) -> None:
    container.raw(SASL_HEADER[:4])


def send_header(container: Container) -> None:
    container.raw(SASL_HEADER)


def send_half_mechanisms(container: Container) -> None:
    container.raw(SASL_HEADER + b"\x00\x00\x00\x20\x02\x01")


def send_mechanisms(container: Container) -> None:
    container.raw(SASL_HEADER)
    container.frame("sasl-mechanisms", sasl_server_mechanisms=Array([Symbol("ANONYMOUS")]))
    container._expect_header(SASL_HEADER)
    container.expect("sasl-init")


def send_outcome(container: Container) -> None:
    container.offer()
    container.frame("sasl-outcome", code=0)


def send_amqp_header(container: Container) -> None:
    send_outcome(container)
    container.raw(b"AMQP\x00\x01\x00\x00")


def send_half_open(container: Container) -> None:
    send_amqp_header(container)
    container.raw(OPEN)


#: Actions after which the peer is silent, each with the name of what the router then waits for.
SILENCES: list[tuple[Callable[[Container], None], str]] = [
    (send_nothing, "SASL header"),
    (send_half_header, "SASL header"),
    (send_header, "answer in SASL"),
    (send_half_mechanisms, "answer in SASL"),
    (send_mechanisms, "answer in SASL"),
    (send_outcome, "AMQP header"),
    (send_amqp_header, "open"),
    (send_half_open, "open"),
]


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.close()


def row(management: Management) -> dict[str, Any]:
    return management.one("connector", name="silent")


def start_with_connector(start: Start, port: int, **attributes: Any) -> RouterProcess:
    role = attributes.pop("role", "route-container")
    mode = {"inter-router": "interior", "edge": "edge", "inter-edge": "edge"}.get(role, "standalone")
    place = {"name": "silent", "host": "127.0.0.1", "port": port, "role": role, "idleTimeoutSeconds": IDLE}
    profile = [("sslProfile", {"name": "p"})] if "sslProfile" in attributes else []
    return start([("router", {"mode": mode}), *profile, ("connector", {**place, **attributes}), listener()])


@pytest.mark.parametrize(("fall_silent", "awaited"), SILENCES, ids=[action.__name__ for action, _ in SILENCES])
def test_silent_peer_is_closed_after_the_idle_timeout(
    start: Start, broker: ScriptedBroker, peers: list[AmqpPeer], fall_silent: Callable[[Container], None], awaited: str
) -> None:
    router = start_with_connector(start, broker.port)
    fall_silent(broker.accept())
    own = AmqpPeer.opened(router.port)
    peers.append(own)
    management = Management(own)
    text = rf"\[C\d+\] Connection to 127\.0\.0\.1:{broker.port} failed: {re.escape(EXPIRED + awaited)}$"
    router.wait_log(rf"SERVER \(info\) {text}")
    poll(lambda: re.fullmatch(text, row(management)["connectionMsg"]), "management shows the failure")
    assert row(management)["connectionStatus"] == "CONNECTING"


def test_handshake_in_progress_is_shown_with_the_failure_before(
    start: Start, broker: ScriptedBroker, peers: list[AmqpPeer]
) -> None:
    router = start_with_connector(start, broker.port)
    own = AmqpPeer.opened(router.port)
    peers.append(own)
    management = Management(own)
    attempt = rf"\[C\d+\] Connection to 127\.0\.0\.1:{broker.port}"
    since = attempt + r": handshaking since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"
    poll(lambda: re.fullmatch(since, row(management)["connectionMsg"]), "the first attempt is shown")
    assert row(management)["connectionStatus"] == "SUCCESS"
    failed = attempt + f" failed: {re.escape(EXPIRED)}SASL header"
    poll(lambda: re.fullmatch(f"{since}; before: {failed}", row(management)["connectionMsg"]), "and the second", 30)
    while not serve_next(broker):  # attempts that the router has ended meanwhile come first
        pass
    poll(lambda: "Connection Opened" in row(management)["connectionMsg"], "the connection opens")


def serve_next(broker: ScriptedBroker) -> bool:
    """Open the next connection; return False if the router has ended it meanwhile. Raise TimeoutError if none
    comes."""
    container = broker.accept(RETRY_SECONDS)
    try:
        container.serve()
    except (ConnectionError, StreamEnd):
        return False
    return True


@pytest.mark.parametrize("role", ["inter-router", "edge", "inter-edge", "normal"])
@pytest.mark.parametrize("fall_silent", [send_nothing, send_header, send_amqp_header])
def test_silent_peer_of_any_role_is_closed(
    start: Start, broker: ScriptedBroker, role: str, fall_silent: Callable[[Container], None]
) -> None:
    router = start_with_connector(start, broker.port, role=role)
    fall_silent(broker.accept())
    router.wait_log(re.escape(EXPIRED))
    broker.accept(RETRY_SECONDS)


def test_silent_peer_during_tls_handshake_is_closed(start: Start, broker: ScriptedBroker) -> None:
    router = start_with_connector(start, broker.port, sslProfile="p")
    broker.accept()
    router.wait_log(re.escape(EXPIRED + "SASL header"))
    broker.accept(RETRY_SECONDS)


def test_silent_peer_after_tls_handshake_is_closed(start: Start, tmp_path_factory: pytest.TempPathFactory) -> None:
    made = pki(tmp_path_factory.getbasetemp())
    secured = ScriptedBroker(made.server_context(made.server))
    own = {"name": "p", "caCertFile": made.trusted}
    place = {"name": "silent", "host": "localhost", "port": secured.port, "idleTimeoutSeconds": IDLE, "sslProfile": "p"}
    try:
        router = start([("sslProfile", own), ("connector", place), listener()])
        send_header(secured.accept())
        router.wait_log(re.escape(EXPIRED + "answer in SASL"))
        secured.accept(RETRY_SECONDS)
    finally:
        secured.close()


def test_slow_peer_is_not_closed(start: Start, broker: ScriptedBroker, peers: list[AmqpPeer]) -> None:
    """Each octet restarts the idle timeout, so the whole handshake may take longer."""
    router = start_with_connector(start, broker.port, idleTimeoutSeconds=2)
    container = broker.accept()
    for octet in SASL_HEADER:
        container.raw(bytes([octet]))
        with pytest.raises(TimeoutError):  # 0.4 s each, together more than the idle timeout
            wait_closed(container, 0.4)
    container.frame("sasl-mechanisms", sasl_server_mechanisms=Array([Symbol("ANONYMOUS")]))
    container._expect_header(SASL_HEADER)
    container.expect("sasl-init")
    container.frame("sasl-outcome", code=0)
    container.open_after_sasl()
    router.wait_log("Connection Opened: dir=out")


def wait_closed(container: Container, seconds: float) -> None:
    """Wait until the router closes the connection, leaving other input unread; raise TimeoutError otherwise."""
    container.socket.settimeout(seconds)
    octets = container.socket.recv(4096, socket.MSG_PEEK)
    assert octets, "the router has closed the connection"
    raise TimeoutError
