"""Clients admitted or refused by an authentication service that the test plays (security.md A-1 to A-10)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peer.container import Container, ScriptedBroker
from tests.peer.frames import AMQP_HEADER, SASL_HEADER, error_of
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.types import Array, Map, Symbol
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, listener

pytestmark = pytest.mark.adversarial


class AuthServiceRouter:
    """A router, its authentication service, and clients that log in."""

    def __init__(self, router: RouterProcess, service: ScriptedBroker, peers: list[AmqpPeer]) -> None:
        self.router = router
        self.service = service
        self.peers = peers

    def dial(self, name: str = "served") -> AmqpPeer:
        self.peers.append(AmqpPeer(self.router.ports[name]))
        return self.peers[-1]

    def begin_login(self, name: str = "served") -> tuple[AmqpPeer, Container]:
        """Connect a client that sends its SASL header; return it with the router's connection to the service."""
        peer = self.dial(name)
        peer.raw(SASL_HEADER)
        return peer, self.service.accept()

    def offer(self, service: Container, *mechanisms: str) -> None:
        assert service.read_octets(8) == SASL_HEADER
        service.raw(SASL_HEADER)
        service.frame("sasl-mechanisms", sasl_server_mechanisms=Array([Symbol(each) for each in mechanisms]))

    def user(self) -> dict[str, Any]:
        with AmqpPeer.opened(self.router.ports[""]) as peer:
            rows = Management(peer).query("connection")
            return next(row for row in rows if row["container"] == "client")


@pytest.fixture
def auth_router(start: Start, peers: list[AmqpPeer]) -> Iterator[AuthServiceRouter]:
    service = ScriptedBroker()
    router = start(
        [
            ("authServicePlugin", {"name": "service", "host": "127.0.0.1", "port": service.port, "realm": "the.realm"}),
            listener(),
            listener("served", saslPlugin="service", authenticatePeer=True),
            listener("filtered", saslPlugin="service", saslMechanisms="PLAIN"),
        ],
        2,
    )
    yield AuthServiceRouter(router, service, peers)
    service.close()


def mechanisms(peer: AmqpPeer) -> list[str]:
    return [str(name) for name in peer.expect("sasl-mechanisms").sasl_server_mechanisms]


def test_exchange_with_service_logs_client_in(auth_router: AuthServiceRouter) -> None:
    """The exchange of security.md A-1, A-3, A-4, A-6."""
    place = f"127.0.0.1:{auth_router.service.port}"
    auth_router.router.wait_log(f"CONN_MGR .info. Using auth service {place} from  SASL Plugin service$")
    peer, service = auth_router.begin_login()
    auth_router.router.wait_log(rf"SERVER .info. \[C\d+\] Enabling remote authentication service {place}$")
    auth_router.offer(service, "PLAIN", "X-OTHER")
    assert peer.read_octets(8) == SASL_HEADER
    assert mechanisms(peer) == ["PLAIN", "X-OTHER"]
    peer.frame("sasl-init", mechanism="X-OTHER", initial_response=b"first", hostname="client's")
    init = service.expect("sasl-init")
    assert (init.mechanism, init.initial_response, init.hostname) == ("X-OTHER", b"first", "the.realm")
    service.frame("sasl-challenge", challenge=b"what?")
    assert peer.expect("sasl-challenge").challenge == b"what?"
    peer.frame("sasl-response", response=b"that")
    assert service.expect("sasl-response").response == b"that"
    service.frame("sasl-outcome", code=0)
    assert service.read_octets(8) == AMQP_HEADER
    service.raw(AMQP_HEADER)
    opened = service.expect("open")
    assert (opened.container_id, opened.hostname, opened.channel_max) == ("", "127.0.0.1", 32767)
    assert opened.desired_capabilities == Array([Symbol("ADDRESS-AUTHZ")])
    assert dict(opened.properties) == {"product": "qpid-dispatch-router", "version": "1.19.0"}
    peer.socket.setblocking(False)
    with pytest.raises(BlockingIOError):  # the client's outcome waits for the service's open
        peer.socket.recv(1)
    peer.socket.setblocking(True)
    identity = Map([("sub", "alice")])
    service.frame("open", container_id="service", properties=Map([(Symbol("authenticated-identity"), identity)]))
    outcome = peer.expect("sasl-outcome")
    assert (outcome.code, outcome.additional_data) == (0, b"what?")
    service.expect("close")
    assert service.read_rest() == b""
    assert peer.header() == AMQP_HEADER
    peer.frame("open", container_id="client")
    peer.expect("open")
    row = auth_router.user()
    assert (row["user"], row["sasl"], row["isAuthenticated"]) == ("alice", "X-OTHER", True)
    auth_router.router.wait_log("AUTHSERVICE .info. authenticated as alice$")


def test_permissions_of_service_are_enforced(auth_router: AuthServiceRouter) -> None:
    """Addresses that the service does not name are refused (security.md A-7, A-8)."""
    peer, service = auth_router.begin_login()
    auth_router.offer(service, "PLAIN")
    assert peer.read_octets(8) == SASL_HEADER
    assert mechanisms(peer) == ["PLAIN"]
    peer.frame("sasl-init", mechanism="PLAIN", initial_response=b"\0alice\0secret")
    service.expect("sasl-init")
    service.frame("sasl-outcome", code=0)
    assert service.read_octets(8) == AMQP_HEADER
    service.raw(AMQP_HEADER)
    service.expect("open")
    properties = Map([
        (Symbol("authenticated-identity"), Map([("sub", "alice")])),
        (Symbol("address-authz"), Map([("orders", Array(["send"])), ("news*", Array(["recv"]))])),
    ])  # fmt: skip
    service.frame("open", container_id="service", properties=properties)
    assert peer.expect("sasl-outcome").code == 0
    peer.open(sasl=False)
    peer.receiver("news.today", 1)
    peer.sender("orders", credit=False)
    peer.receiver("orders", wait=False)
    detach = peer.expect("detach", timeout=10)
    assert error_of(detach.error) == ("amqp:unauthorized-access", "link disallowed by local policy")


def test_listener_filters_offered_mechanisms(auth_router: AuthServiceRouter) -> None:
    peer, service = auth_router.begin_login("filtered")
    auth_router.offer(service, "PLAIN", "SCRAM-SHA-1")
    assert peer.read_octets(8) == SASL_HEADER
    assert mechanisms(peer) == ["PLAIN"]
    peer.frame("sasl-init", mechanism="SCRAM-SHA-1", initial_response=b"")
    assert peer.expect("sasl-outcome").code == 1
    assert service.read_rest() == b""


def wait_failure_log(auth_router: AuthServiceRouter, mechanism: str) -> None:
    text = f"failed: amqp:unauthorized-access Failed to authenticate client [mech={mechanism}]"
    auth_router.router.wait_log(re.escape(text) + "$")


def test_refusal_by_service_ends_connection(auth_router: AuthServiceRouter) -> None:
    """The client gets the service's negative outcome (security.md A-5)."""
    peer, service = auth_router.begin_login()
    auth_router.offer(service, "PLAIN")
    assert peer.read_octets(8) == SASL_HEADER
    assert mechanisms(peer) == ["PLAIN"]
    peer.frame("sasl-init", mechanism="PLAIN", initial_response=b"\0user\0wrong")
    service.expect("sasl-init")
    service.frame("sasl-outcome", code=1)
    assert peer.expect("sasl-outcome").code == 1
    assert peer.expect_end() == []
    wait_failure_log(auth_router, "PLAIN")
    auth_router.router.wait_log("AUTHSERVICE .warning. Downstream disconnected: amqp:unauthorized-access ")
    assert "wrong" not in auth_router.router.log


def drop(service: Container) -> None:
    service.drop()


def refuse_header(service: Container) -> None:
    service.read_octets(8)
    service.raw(AMQP_HEADER)


@pytest.mark.parametrize("end", [drop, refuse_header])
def test_service_ending_before_mechanisms_refuses_client(
    auth_router: AuthServiceRouter, end: Callable[[Container], None]
) -> None:
    """The client gets an empty list of mechanisms, and a negative outcome."""
    peer, service = auth_router.begin_login()
    end(service)
    assert peer.read_octets(8) == SASL_HEADER
    assert mechanisms(peer) == []
    assert peer.expect("sasl-outcome").code == 1
    assert peer.expect_end() == []
    wait_failure_log(auth_router, "none")
    auth_router.router.wait_log("AUTHSERVICE .warning. Downstream disconnected: amqp:connection:framing-error ")


def test_unreachable_service_refuses_client(auth_router: AuthServiceRouter) -> None:
    auth_router.service.close()
    peer = auth_router.dial()
    assert peer.header(SASL_HEADER) == SASL_HEADER
    assert mechanisms(peer) == []
    assert peer.expect("sasl-outcome").code == 1
    auth_router.router.wait_log("AUTHSERVICE .warning. Downstream disconnected: proton:io Connection refused")


def test_slow_service_delays_no_other_login(auth_router: AuthServiceRouter) -> None:
    slow, service = auth_router.begin_login()
    other, quick = auth_router.begin_login()
    auth_router.offer(quick, "PLAIN")
    assert other.read_octets(8) == SASL_HEADER
    assert mechanisms(other) == ["PLAIN"]
    with AmqpPeer.opened(auth_router.router.ports[""]) as peer:
        peer.barrier()
    slow.drop()  # also closes the router's connection to the service
    assert service.read_rest() == SASL_HEADER


def test_departed_clients_leave_nothing_behind(auth_router: AuthServiceRouter) -> None:
    """Connections to the service end with their clients, and the next login works."""
    for _ in range(20):
        peer, service = auth_router.begin_login()
        peer.drop()
        service.read_rest()  # the header, or nothing
    peer, service = auth_router.begin_login()
    auth_router.offer(service, "PLAIN")
    assert peer.read_octets(8) == SASL_HEADER
    assert mechanisms(peer) == ["PLAIN"]
