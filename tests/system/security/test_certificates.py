"""Certificates: users from their names, host names of connectors, validity, revocation, rotation."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Issued, Pki, SwappableCertificate, pki
from tests.peer.wire import PeerError
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, free_port, listener

SPIFFE = "spiffe://net.example/shop"
REVOKED = ("amqp:unauthorized-access", "the certificate of this connection has been revoked")
REFUSED = (ssl.SSLError, ConnectionError, PeerError)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "certificates")


def profile(made: Pki, own: Issued | None = None, **attributes: Any) -> Section:
    own = own or made.server
    given = {"certFile": own.certificate, "privateKeyFile": own.key, "caCertFile": made.trusted}
    return "sslProfile", {"name": "p", **given, **attributes}


def mutual(**attributes: Any) -> Section:
    return listener("mutual", sslProfile="p", saslMechanisms="EXTERNAL", authenticatePeer=True, **attributes)


def open_client(router: RouterProcess, made: Pki, client: Issued) -> AmqpPeer:
    """Open a client connection that logs in by its certificate."""
    dialled = socket.create_connection(("127.0.0.1", router.ports["mutual"]), timeout=10)
    peer = AmqpPeer(made.context(client).wrap_socket(dialled, server_hostname="localhost"))
    try:
        peer.open(mechanism="EXTERNAL")
    except BaseException:
        peer.drop()
        raise
    return peer


def users(router: RouterProcess) -> list[str | None]:
    """Return the users of connections authenticated by EXTERNAL."""
    with AmqpPeer.opened(router.port) as peer:
        return [row["user"] for row in Management(peer).query("connection") if row["sasl"] == "EXTERNAL"]


@pytest.mark.parametrize(
    ("letters", "user"),
    [("i", SPIFFE), ("d", "shop.example"), ("e", "shop@example.org"), ("di", f"shop.example;{SPIFFE}")],
)
def test_uid_format_with_alternative_names_gives_user(start: Start, made: Pki, letters: str, user: str) -> None:
    """The first name of each kind counts, and no subject is needed."""
    names = f"IP:127.0.0.1,DNS:shop.example,DNS:other.example,URI:{SPIFFE},URI:spiffe://x,email:shop@example.org"
    client = made.issue("shop", "/", names=names)
    router = start([profile(made, uidFormat=letters), mutual(), listener()])
    with open_client(router, made, client):
        assert users(router) == [user]


@pytest.mark.parametrize("names", ["DNS:shop.example", "URI:spiffe://net.example/a b", "email:spiffe://x"])
def test_uid_format_without_matching_name_refuses_client(start: Start, made: Pki, names: str) -> None:
    """A name with a blank is not a URI: it could be taken for two names."""
    client = made.issue("nameless", "/", names=names)
    router = start([profile(made, uidFormat="i"), mutual(), listener()])
    with open_client(router, made, client) as peer:
        assert peer.expect_close() == ("amqp:unauthorized-access", "the certificate names no user")


@contextmanager
def tls_server(context: ssl.SSLContext) -> Iterator[int]:
    """Yield the port of a TLS server that completes the handshake with any client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    accepted = server.accept()[0]
                    with context.wrap_socket(accepted, server_side=True) as secured:
                        secured.recv(1)
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("names", "taken"), [(None, True), ("DNS:localhost", True), ("IP:127.0.0.1", False), (f"URI:{SPIFFE}", False)]
)
def test_connector_uses_common_name_without_alternative_names(
    start: Start, made: Pki, names: str | None, taken: bool
) -> None:
    """Alternative names of another kind also exclude the common name (RFC 9525)."""
    own = made.issue("named", "/CN=localhost", names=names)
    with tls_server(made.server_context(own)) as port:
        place = {"host": "localhost", "port": port, "sslProfile": "p"}
        router = start([profile(made), ("connector", place), listener()])
        if taken:
            router.wait_log(r"Connection to localhost:\d+ failed: (?!.*verify)")
            assert "certificate verify failed" not in router.log
        else:
            router.wait_log(r"failed: .*certificate verify failed: hostname mismatch")


@pytest.mark.parametrize(("later", "reason"), [(False, "expired on"), (True, "is not valid before")])
def test_untimely_certificate_does_not_replace_valid_one(
    start: Start, made: Pki, tmp_path: Path, later: bool, reason: str
) -> None:
    directory = tmp_path / "secret"
    directory.mkdir()
    swapped = SwappableCertificate(directory, made.server)
    router = start([profile(made, swapped.issued), mutual(), listener()])
    bad = made.issue("untimely", "/CN=localhost", names="DNS:localhost", days=1 if later else -1, later=later)
    swapped.put(bad.certificate.read_bytes(), bad.key.read_bytes())
    router.wait_log(
        rf"sslProfile 'p' .*certFile \S+: the certificate {reason} .*; the previous credentials stay in use"
    )
    open_client(router, made, made.client).drop()
    good = made.issue("timely", "/CN=localhost", names="DNS:localhost")
    swapped.put(good.certificate.read_bytes(), good.key.read_bytes())
    router.wait_log("sslProfile 'p': new credentials are in use")
    open_client(router, made, made.client).drop()


def test_outdated_revocation_list_is_named(start: Start, made: Pki, tmp_path: Path) -> None:
    """The log names the outdated list, and the client is not told that its certificate has expired."""
    trusted = tmp_path / "trusted.pem"
    yesterday = datetime.now(tz=UTC) - timedelta(days=1)
    trusted.write_bytes(made.trusted.read_bytes() + made.revocations(until=yesterday))
    router = start([profile(made, caCertFile=trusted), mutual(), listener()])
    text = r"the revocation list of /CN=authority has expired: certificates below that authority are refused"
    router.wait_log(rf"CONN_MGR \(error\) sslProfile 'p': {text}")
    with pytest.raises(REFUSED) as refusal:
        open_client(router, made, made.client)
    assert "EXPIRED" not in str(refusal.value).upper()
    assert "certificate unknown" in str(refusal.value)
    router.wait_log("certificate verify failed: the revocation list of an authority is out of date")
    trusted.with_name("new").write_bytes(made.trusted.read_bytes() + made.revocations())
    os.replace(trusted.with_name("new"), trusted)
    router.wait_log("sslProfile 'p': new credentials are in use")
    open_client(router, made, made.client).drop()


@contextmanager
def stapling(issued: Issued, status: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Yield port and process of a server that staples an OCSP response, and prints the octets that clients send."""
    port = free_port()
    words = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-quiet", "-status_file", str(status)]
    words += ["-cert", str(issued.certificate), "-key", str(issued.key)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield port, process
        finally:
            process.kill()


@pytest.mark.parametrize("revoked", [False, True])
def test_connector_refuses_server_with_stapled_revocation(
    start: Start, tmp_path_factory: pytest.TempPathFactory, revoked: bool
) -> None:
    made = pki(tmp_path_factory.getbasetemp(), f"stapling-{revoked}")
    made.revocations(*([made.server] if revoked else []))
    with stapling(made.server, made.status(made.server)) as (port, server):
        place = {"host": "localhost", "port": port, "sslProfile": "p", "saslMechanisms": "ANONYMOUS"}
        router = start([profile(made, made.client), ("connector", place), listener()])
        if revoked:
            router.wait_log(r"failed: .*invalid status response: certificate revoked")
        else:
            assert server.stdout is not None
            assert server.stdout.read(4) == b"AMQP", "the handshake is complete"
            assert "SSL Failure" not in router.log


@pytest.mark.parametrize("what", ["keep", "close"])
def test_connection_with_revoked_certificate_follows_setting(
    start: Start, made: Pki, tmp_path: Path, what: str
) -> None:
    """Connections of other certificates stay; revocation lists also apply to intermediate authorities."""
    trusted = tmp_path / "trusted.pem"
    below = made.below(f"intermediate-{what}")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(below.client.certificate.read_bytes() + below.trusted.read_bytes())
    own, other = made.issue(f"own-{what}", "/CN=own"), made.issue(f"other-{what}", "/CN=other")

    def trust(*revoked: Issued) -> None:
        new = tmp_path / "new"
        new.write_bytes(made.trusted.read_bytes() + made.revocations(*revoked) + below.revocations())
        os.replace(new, trusted)

    trust()
    router = start([profile(made, caCertFile=trusted, revokedConnections=what), mutual(), listener()], 3)
    peers = [open_client(router, made, each) for each in (own, Issued(chain, below.client.key), other)]
    trust(own, below.authority)
    router.wait_log("sslProfile 'p': new credentials are in use")
    for peer in peers[:2] if what == "close" else ():
        assert peer.expect_close() == REVOKED
    for peer in peers[2:] if what == "close" else peers:
        peer.barrier()
    for peer in peers:
        peer.drop()


def test_revoked_connection_closes_after_setting_changes(start: Start, made: Pki, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(made.trusted.read_bytes() + made.revocations())
    router = start([profile(made, caCertFile=trusted), mutual(), listener()])
    client = made.issue("late", "/CN=late")
    with open_client(router, made, client) as peer, AmqpPeer.opened(router.port) as own:
        trusted.with_name("new").write_bytes(made.trusted.read_bytes() + made.revocations(client))
        os.replace(trusted.with_name("new"), trusted)
        router.wait_log("sslProfile 'p': new credentials are in use")
        peer.barrier()
        Management(own).update("sslProfile", "sslProfile/p", revokedConnections="close")
        assert peer.expect_close() == REVOKED


def get(router: RouterProcess, made: Pki, client: Issued) -> bytes:
    """Return the response to a health request to a router."""
    dialled = socket.create_connection(("127.0.0.1", router.ports["https"]), timeout=10)
    with made.context(client).wrap_socket(dialled, server_hostname="localhost") as secured:
        secured.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if not (octets := secured.recv(4096)):
            raise ConnectionError("no answer")
        return octets


class RevocationListServer:
    """An HTTP server for a revocation list; without one it responds with an error."""

    def __init__(self) -> None:
        self.octets: bytes | None = None
        self.asked = 0
        server = self

        class RevocationListHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked += 1
                body = server.octets
                self.send_response(200 if body is not None else 503)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's parameter name
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), RevocationListHandler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/ca.crl"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def list_server() -> Iterator[RevocationListServer]:
    server = RevocationListServer()
    yield server
    server.close()


def test_revocation_list_from_url_is_required_and_renewed(
    start: Start, made: Pki, list_server: RevocationListServer
) -> None:
    """Without a list, clients are refused. A list that cannot be renewed stays valid; a new one closes connections."""
    soon = datetime.now(tz=UTC) + timedelta(seconds=40)
    revoked, other = made.issue("by-url", "/CN=by-url"), made.issue("by-url-other", "/CN=other")
    own = profile(made, crlUrl=list_server.url, crlRefreshSeconds=10, revokedConnections="close")
    https = listener("https", sslProfile="p", http=True, websockets=False, authenticatePeer=True, requireSsl=True)
    router = start([own, mutual(), https, listener()], 3)
    router.wait_log(r"sslProfile 'p': revocation list \S+ cannot be renewed: HTTP status 503; connections are refused")
    with pytest.raises(REFUSED):
        open_client(router, made, other)
    with pytest.raises(REFUSED):
        get(router, made, other)
    list_server.octets = made.revocations(until=soon)
    router.wait_log(r"sslProfile 'p': revocation list \S+ is valid until ", 15.0)
    router.wait_log("sslProfile 'p': new revocation lists are in use")
    peers = [open_client(router, made, each) for each in (revoked, other)]
    list_server.octets, asked = None, list_server.asked
    router.wait_log(r"HTTP status 503; the previous list is used until it expires", 20.0)
    assert list_server.asked > asked
    open_client(router, made, other).drop()
    list_server.octets = made.revocations(revoked)
    assert peers[0].expect_close(timeout=20.0) == REVOKED
    with pytest.raises(REFUSED):
        open_client(router, made, revoked)
    with pytest.raises(REFUSED):
        get(router, made, revoked)
    assert get(router, made, other).startswith(b"HTTP/1.1 200 ")
    peers[1].barrier()
    for peer in peers:
        peer.drop()
