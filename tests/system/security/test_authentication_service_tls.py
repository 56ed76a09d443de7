"""An authentication service behind TLS, played by the test (security.md A-2)."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.peer.container import ScriptedBroker
from tests.peer.frames import AMQP_HEADER, SASL_HEADER
from tests.peer.peer import AmqpPeer
from tests.peer.pki import KEY_PASSWORD, Pki, pki
from tests.peer.types import Map, Symbol
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener

pytestmark = pytest.mark.adversarial

Serve = Callable[[ssl.SSLContext | None], ScriptedBroker]


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Yield serve(context), which starts a service."""
    running: list[ScriptedBroker] = []

    def begun(context: ssl.SSLContext | None) -> ScriptedBroker:
        running.append(ScriptedBroker(context))
        return running[-1]

    yield begun
    for each in running:
        each.close()


def sections(services: Mapping[str, tuple[ScriptedBroker, Mapping[str, Any] | None]]) -> list[Section]:
    """Return a listener, a plugin and a profile for each service. A profile of None is omitted."""
    found: list[Section] = []
    for name, (service, profile) in services.items():
        if profile is not None:
            found.append(("sslProfile", {"name": f"{name}-tls", **profile}))
        plugin = {"name": f"{name}-service", "host": "localhost", "port": service.port, "sslProfile": f"{name}-tls"}
        found += [("authServicePlugin", plugin), listener(name, saslPlugin=f"{name}-service", authenticatePeer=True)]
    return found


def begin(router: RouterProcess, name: str, service: ScriptedBroker, peers: list[AmqpPeer]) -> AmqpPeer:
    peer = AmqpPeer(router.ports[name])
    peers.append(peer)
    peer.raw(SASL_HEADER)
    return peer


def log_in(router: RouterProcess, name: str, service: ScriptedBroker, peers: list[AmqpPeer]) -> ssl.SSLSocket:
    """Log a client in, and return the service's end of the router's connection."""
    peer = begin(router, name, service, peers)
    container = service.accept()
    assert container.read_octets(8) == SASL_HEADER
    container.raw(SASL_HEADER)
    container.frame("sasl-mechanisms", sasl_server_mechanisms=Symbol("PLAIN"))
    assert peer.read_octets(8) == SASL_HEADER
    peer.expect("sasl-mechanisms")
    peer.frame("sasl-init", mechanism="PLAIN", initial_response=b"\0alice\0secret")
    assert container.expect("sasl-init").initial_response == b"\0alice\0secret"
    container.frame("sasl-outcome", code=0)
    assert container.read_octets(8) == AMQP_HEADER
    container.raw(AMQP_HEADER)
    container.expect("open")
    identity = Map([(Symbol("authenticated-identity"), Map([("sub", "alice")]))])
    container.frame("open", container_id="service", properties=identity)
    assert peer.expect("sasl-outcome").code == 0
    peer.open(sasl=False)
    router.wait_log("AUTHSERVICE .info. authenticated as alice$")
    assert isinstance(container.socket, ssl.SSLSocket)
    return container.socket


def expect_refusal(
    router: RouterProcess,
    name: str,
    service: ScriptedBroker,
    peers: list[AmqpPeer],
    reason: str,
    handshake: bool = True,
) -> None:
    """Log in without success: the service receives nothing, and the client gets only a negative outcome.

    handshake: the service takes part in the TLS handshake.
    """
    before = len(router.lines)
    peer = begin(router, name, service, peers)
    if handshake:
        with pytest.raises((OSError, EOFError)):
            service.accept()
    assert peer.read_octets(8) == SASL_HEADER
    peer.expect("sasl-mechanisms")
    assert peer.expect("sasl-outcome").code == 1
    text = "AUTHSERVICE .warning. Downstream disconnected: amqp:connection:framing-error "
    router.wait_log(text + reason, after=before)


def test_service_over_tls_is_verified_and_sees_certificate(
    start: Start, serve: Serve, made: Pki, peers: list[AmqpPeer]
) -> None:
    """The service is verified, and gets the router's certificate (locked key). The profile limits versions."""
    mutual = serve(made.server_context(made.server, wants_client=True))
    simple = serve(made.server_context(made.server))
    locked = {
        "certFile": made.server.certificate, "privateKeyFile": made.locked_key(), "caCertFile": made.trusted,
        "password": f"pass:{KEY_PASSWORD}",
    }  # fmt: skip
    services = {
        "mutual": (mutual, locked),
        "old": (simple, {"caCertFile": made.trusted, "protocols": "TLSv1.2"}),
    }
    router = start(sections(services))
    shown = log_in(router, "mutual", mutual, peers)
    assert (shown.getpeercert() or {})["subject"] == ((("commonName", "localhost"),),)
    assert shown.version() == "TLSv1.3"
    assert log_in(router, "old", simple, peers).version() == "TLSv1.2"
    assert re.search("secret|" + KEY_PASSWORD, "\n".join(router.lines)) is None


def test_untrusted_service_is_refused(
    start: Start, serve: Serve, made: Pki, peers: list[AmqpPeer], tmp_path_factory: pytest.TempPathFactory
) -> None:
    others = pki(tmp_path_factory.getbasetemp(), "others")
    good = serve(made.server_context(made.server))
    elsewhere = serve(made.server_context(made.issue("elsewhere", "/CN=elsewhere", names="DNS:elsewhere.example")))
    services = {
        "unknown": (good, {"caCertFile": others.trusted}),
        "elsewhere": (elsewhere, {"caCertFile": made.trusted}),
        "system": (good, {}),  # the authorities of the system
        "missing": (good, None),
        "versions": (good, {"caCertFile": made.trusted, "protocols": "TLSv9"}),
    }
    router = start(sections(services))
    expect_refusal(router, "unknown", good, peers, "SSL Failure: certificate verify failed: ")
    expect_refusal(router, "elsewhere", elsewhere, peers, "SSL Failure: certificate verify failed: Hostname mismatch")
    expect_refusal(router, "system", good, peers, "SSL Failure: certificate verify failed: ")
    expect_refusal(router, "missing", good, peers, "SSL Failure: there is no sslProfile 'missing-tls'", handshake=False)
    expect_refusal(router, "versions", good, peers, "SSL Failure: protocols: 'TLSv9' is none of ", handshake=False)


def test_service_requiring_certificate_is_unusable_without_one(
    start: Start, serve: Serve, made: Pki, peers: list[AmqpPeer]
) -> None:
    """With TLS 1.3 the router reads the refusal after its own handshake, unless the connection ends first."""
    mutual = serve(made.server_context(made.server, wants_client=True))
    router = start(sections({"mutual": (mutual, {"caCertFile": made.trusted})}))
    expect_refusal(router, "mutual", mutual, peers, "(SSL Failure: .*certificate required|connection aborted)")


def test_service_without_tls_is_refused(start: Start, serve: Serve, made: Pki, peers: list[AmqpPeer]) -> None:
    plain = serve(None)
    router = start(sections({"plain": (plain, {"caCertFile": made.trusted})}))
    peer = begin(router, "plain", plain, peers)
    plain.accept().raw(SASL_HEADER)
    assert peer.read_octets(8) == SASL_HEADER
    peer.expect("sasl-mechanisms")
    assert peer.expect("sasl-outcome").code == 1
    router.wait_log("Downstream disconnected: amqp:connection:framing-error SSL Failure: .*(version|record)")
