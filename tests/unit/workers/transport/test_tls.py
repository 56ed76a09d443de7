"""Transport over TLS, with Python's `ssl` at the other end of the socket (security.md T-4, T-14, T-15)."""

import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

import sluice.workers.testing as testing
from sluice.router.amqp.connection import Connection
from sluice.router.control.ops import Credentials
from sluice.router.tls.context import TlsContext
from sluice.workers.fairness import LoopScheduler
from sluice.workers.loop import Loop
from sluice.workers.transport.tls import TlsTransport
from tests.conftest import FLAVOUR
from tests.peer.frames import AMQP_HEADER
from tests.peer.pki import CLIENT_USER, Pki, pki
from tests.peer.talk import say
from tests.unit.workers.loop_connections import REGION, ClosingHandler

pytestmark = pytest.mark.starts

WAKES = 20  # enough for a handshake and an open
OPEN = AMQP_HEADER + say("open", container_id="test")
BURST = 200  # handshakes at once
QUIET_NS = 6_000_000_000  # more than the time after which a quiet loop returns free memory
LEAST_RETURNED_KIB = 5  # for each handshake; buffers take 16 or more
MAJOR_OF_TLS = 3  # first octet of the version in the head of a record


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


def text(path: Path) -> str:
    return path.read_text("ascii")


def server_context(
    authority: Pki, *, verify_peer: bool = False, optional: bool = False, trusted: str | None = None
) -> TlsContext:
    server = authority.server
    credentials = Credentials(
        certificates=text(server.certificate), key=text(server.key), trusted=trusted or text(authority.trusted)
    )
    return TlsContext(credentials, server=True, verify_peer=verify_peer, optional=optional)


class TlsPair:
    """Connection of the router over TLS, and its peer."""

    def __init__(self, context: TlsContext, *options: Any) -> None:
        """options: host and verify_host of a connection that the router opened."""
        self.loop = Loop(REGION, 0)
        self.handler = ClosingHandler()
        near, self.far = socket.socketpair()
        near.setblocking(False)
        self.far.setblocking(False)
        self.connection = Connection(self.loop.scheduler, self.handler)
        self.transport = TlsTransport(self.loop, near.detach(), self.connection, context, *options)
        self.loop.add(self.transport.fd, self.transport)
        self.transport.begin()

    def use_tls(self, context: ssl.SSLContext, **options: Any) -> None:
        """Begin TLS at the peer's end."""
        self.far = context.wrap_socket(self.far, do_handshake_on_connect=False, **options)

    def handshake(self) -> Exception | None:
        """Run the handshake. Return the peer's error, or None."""
        assert isinstance(self.far, ssl.SSLSocket)
        for _ in range(WAKES):
            try:
                self.far.do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.loop.step()
            except (ssl.SSLError, ConnectionError) as error:
                self.run()
                return error
            else:
                break
        self.run()
        return None

    def run(self) -> None:
        for _ in range(WAKES):
            self.loop.step()

    def take(self) -> bytes:
        """Return the octets that have arrived at the peer."""
        try:
            return self.far.recv(1 << 16)
        except (ssl.SSLWantReadError, BlockingIOError):
            return b""

    def exchange_opens(self) -> bool:
        """Send an open. Return True if the router answers with one."""
        self.far.send(OPEN)
        self.run()
        return self.take().startswith(AMQP_HEADER)

    def close(self) -> None:
        self.far.close()
        while self.transport.fd >= 0:
            self.loop.step()


@pytest.fixture
def connect() -> Any:
    """Return a factory of pairs, which are closed at the end."""
    made: list[TlsPair] = []

    def make(*arguments: Any) -> TlsPair:
        made.append(TlsPair(*arguments))
        return made[-1]

    yield make
    for pair in made:
        pair.close()


def test_listener_with_credentials_serves_clients_with_and_without_tls(authority: Pki, connect: Any) -> None:
    context = server_context(authority)
    plain, encrypted = connect(context), connect(context)
    encrypted.use_tls(authority.context(), server_hostname="localhost")
    assert encrypted.handshake() is None
    assert encrypted.exchange_opens()
    assert plain.exchange_opens()
    assert encrypted.transport.tls.protocol == "TLSv1.3"
    assert plain.transport.tls is None


def test_first_octet_of_tls_alone_begins_handshake(authority: Pki, connect: Any) -> None:
    """The decision takes one octet, whenever the rest arrives."""
    pair = connect(server_context(authority))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = authority.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    pair.far.send(hello[:1])
    pair.run()
    assert pair.take() == b""
    pair.far.send(hello[1:])
    pair.run()
    assert pair.take()[1] == MAJOR_OF_TLS


def test_subject_of_clients_certificate_is_known(authority: Pki, connect: Any) -> None:
    pair = connect(server_context(authority, verify_peer=True))
    pair.use_tls(authority.context(authority.client), server_hostname="localhost")
    assert pair.handshake() is None
    assert pair.exchange_opens()
    assert pair.transport.tls.subject == CLIENT_USER


def test_required_certificate_is_missed_with_reason(authority: Pki, connect: Any) -> None:
    pair = connect(server_context(authority, verify_peer=True))
    pair.use_tls(authority.context(), server_hostname="localhost")
    pair.handshake()
    (error,) = pair.handler.closed_with
    assert error == ("amqp:connection:framing-error", "SSL Failure: peer did not return a certificate")


@pytest.mark.parametrize("shown", [False, True])
def test_optional_certificate_may_be_missing(authority: Pki, connect: Any, shown: bool) -> None:
    pair = connect(server_context(authority, verify_peer=True, optional=True))
    pair.use_tls(authority.context(authority.client if shown else None), server_hostname="localhost")
    assert pair.handshake() is None
    assert pair.exchange_opens()
    assert pair.transport.tls.subject == (CLIENT_USER if shown else None)


@pytest.mark.parametrize(
    ("host", "verify", "accepted"),
    [
        ("localhost", True, True),
        ("127.0.0.1", True, True),
        ("other.example", True, False),
        ("127.0.0.2", True, False),
        ("other.example", False, True),
    ],
)
def test_router_verifies_name_of_server(authority: Pki, connect: Any, host: str, verify: bool, accepted: bool) -> None:
    context = TlsContext(Credentials(trusted=text(authority.trusted)), server=False, verify_peer=True)
    pair = connect(context, host, verify)
    pair.use_tls(authority.server_context(authority.server), server_side=True)
    pair.handshake()
    assert (pair.transport.tls is not None) is accepted
    assert [error[0] for error in pair.handler.closed_with] == ([] if accepted else ["amqp:connection:framing-error"])


def test_end_of_connection_is_announced_to_peer(authority: Pki, connect: Any) -> None:
    """The peer can tell the end from octets that were cut off."""
    pair = connect(server_context(authority))
    pair.use_tls(authority.context(), server_hostname="localhost", suppress_ragged_eofs=False)
    pair.handshake()
    assert pair.exchange_opens()
    pair.far.send(say("close"))
    pair.run()
    assert pair.take() == say("close")
    assert pair.take() == b"", "close_notify: otherwise an SSLEOFError"
    assert pair.transport.fd < 0


def test_channel_binding_is_of_this_connection(authority: Pki, connect: Any) -> None:
    context = server_context(authority)
    bindings = []
    for _ in range(2):
        pair = connect(context)
        assert pair.transport.channel_binding() is None, "before the handshake"
        pair.use_tls(authority.context(), server_hostname="localhost")
        pair.handshake()
        bindings.append(pair.transport.channel_binding())
    assert all(bindings)
    assert bindings[0] != bindings[1]


def test_certificate_revoked_during_connection_is_found(authority: Pki, connect: Any) -> None:
    pair = connect(server_context(authority, verify_peer=True))
    pair.use_tls(authority.context(authority.client), server_hostname="localhost")
    pair.handshake()
    others = authority.issue("other", "/CN=other")
    for revoked, expected in ((others, False), (authority.client, True)):
        lists = text(authority.trusted) + authority.revocations(revoked).decode()
        assert pair.transport.revoked(server_context(authority, verify_peer=True, trusted=lists)) is expected


def resident_kib() -> int:
    """Return the resident memory of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


@pytest.mark.skipif(FLAVOUR == "debug", reason="memory is not measured under sanitizers")
def test_buffers_of_handshake_burst_are_returned_when_quiet(authority: Pki) -> None:
    """The handshakes take their steps together, so that their buffers exist at the same time."""
    poller = testing.ManualPoller()
    loop, context = Loop(REGION, 0, poller), server_context(authority)
    scheduler, client_context = loop.scheduler, authority.context()
    assert isinstance(scheduler, LoopScheduler)
    transports: list[TlsTransport] = []
    clients: list[ssl.SSLSocket] = []

    def run() -> None:
        poller.events = [(each.fd, 1) for each in transports if poller.interest[each.fd]]
        loop.step()
        while scheduler.entering:
            loop.step()

    for _ in range(BURST):
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        connection = Connection(scheduler, ClosingHandler())
        transports.append(TlsTransport(loop, near.detach(), connection, context))
        loop.add(transports[-1].fd, transports[-1])
        transports[-1].begin()
        clients.append(client_context.wrap_socket(far, do_handshake_on_connect=False, server_hostname="localhost"))
    waiting = list(clients)
    while waiting:
        for client in list(waiting):
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(client)
        run()
    assert all(each.tls for each in transports)
    before = resident_kib()
    poller.time_ns += QUIET_NS
    loop.step()
    assert before - resident_kib() > BURST * LEAST_RETURNED_KIB
    for client in clients:
        client.close()
    for transport in transports:
        os.close(transport.fd)
