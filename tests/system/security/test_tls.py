"""TLS on listeners and connectors, with credentials that change at runtime (security.md 3)."""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

from tests.other_user import program_for
from tests.peer.frames import SASL_HEADER
from tests.peer.management import Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.peer.pki import CLIENT_USER, Issued, Pki, SwappableCertificate, pki
from tests.peer.wire import PeerError, StreamEnd
from tests.system.bystanders.harness import without_bystanders
from tests.system.fixtures import Start, pass_one
from tests.system.router import FILES, RouterProcess, Section, listener

pytestmark = pytest.mark.adversarial

PROFILE = "sslProfile"
Tls = Callable[..., AmqpPeer]


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture
def tls(authority: Pki, peers: list[AmqpPeer]) -> Tls:
    """Function tls(router, name, context=…, host=…, session=…) that returns an opened peer over TLS."""

    def connected(
        router: RouterProcess,
        name: str | int = "",
        context: ssl.SSLContext | None = None,
        host: str = "localhost",
        **more: Any,
    ) -> AmqpPeer:
        wrapped = (context or authority.context()).wrap_socket(dial(_port(router, name)), server_hostname=host, **more)
        peer = AmqpPeer(wrapped)
        peers.append(peer)
        peer.open()
        return peer

    return connected


def _port(router: RouterProcess, name: str | int) -> int:
    return name if isinstance(name, int) else router.ports[name]


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def profile(authority: Pki, own: Issued | None = None, **attributes: Any) -> Section:
    certificate, key = own or authority.server
    given = {"name": "p", "certFile": certificate, "privateKeyFile": key, "caCertFile": authority.trusted, **attributes}
    return PROFILE, {name: value for name, value in given.items() if value is not None}


def secure(name: str | None = None, **attributes: Any) -> Section:
    return listener(name, sslProfile="p", **attributes)


@pytest.fixture
def swapped(authority: Pki, tmp_path: Path) -> SwappableCertificate:
    directory = tmp_path / "secret"
    directory.mkdir()
    return SwappableCertificate(directory, authority.server)


@pytest.fixture
def second(authority: Pki) -> Issued:
    return authority.issue("second", "/CN=second", names="DNS:localhost")


def certificate_of(peer: AmqpPeer) -> bytes:
    assert isinstance(peer.socket, ssl.SSLSocket)
    return ssl.DER_cert_to_PEM_cert(peer.socket.getpeercert(binary_form=True) or b"").strip().encode()


# security.md T-4, T-8, T-10, T-26.
def test_clients_are_admitted_by_encryption_and_certificate(
    start: Start, tls: Tls, authority: Pki, peers: list[AmqpPeer], tmp_path_factory: Any
) -> None:
    sections = [
        profile(authority, password="pass:unused"),
        secure(),
        secure("strict", requireSsl=True),
        secure("mutual", saslMechanisms="EXTERNAL ANONYMOUS"),
        listener("plain", requireEncryption=True),
    ]
    router = start(sections, 3)
    peer = tls(router)
    management = Management(peer)
    plain = AmqpPeer.opened(router.ports[""])
    peers.append(plain)
    tls(router, "strict")
    by_certificate = tls(router, "mutual", authority.context(authority.client))

    for name in ("strict", "plain"):
        refused = AmqpPeer(router.ports[name])
        peers.append(refused)
        with pytest.raises((PeerError, OSError)):
            refused.open(sasl=False)
        unauthenticated = AmqpPeer(router.ports[name])
        peers.append(unauthenticated)
        unauthenticated.raw(SASL_HEADER)
        with pytest.raises(StreamEnd):  # without mechanisms no client sends a password in clear text
            unauthenticated.read_octets(1)
        assert router.wait_log("Client connection unencrypted - forbidden")
    other_authority = pki(tmp_path_factory.getbasetemp(), "others")
    with pytest.raises(ssl.SSLCertVerificationError):
        tls(router, context=other_authority.context())
    with pytest.raises(ssl.SSLCertVerificationError):
        tls(router, host="other.example")
    for context in (authority.context(), authority.context(other_authority.client)):
        with pytest.raises((ssl.SSLError, ConnectionError, PeerError)):
            tls(router, "mutual", context)

    rows = without_bystanders(management.query("connection"))
    shown = {tuple(row[each] for each in ("ssl", "isEncrypted", "sslProto")) for row in rows}
    assert shown == {(True, True, "TLSv1.3"), (True, False, None)}
    encrypted = next(row for row in rows if row["isEncrypted"])
    assert encrypted["sslCipher"].startswith("TLS_AES_")
    assert encrypted["sslSsf"] in (128, 256)
    (row,) = management.query(PROFILE)
    assert row["expiresInDays"] == 364
    assert row["oldConnections"] == "keep"
    assert "password" not in {name for name, value in row.items() if value is not None}
    assert "unused" not in router.log
    assert by_certificate.remote_open is not None


# security.md T-9.
def test_client_certificate_does_not_replace_required_login(
    start: Start, authority: Pki, peers: list[AmqpPeer]
) -> None:
    router = start([profile(authority), secure(saslMechanisms="EXTERNAL", authenticatePeer=True)])
    wrapped = authority.context(authority.client).wrap_socket(dial(_port(router, "")), server_hostname="localhost")
    peer = AmqpPeer(wrapped)
    peers.append(peer)
    with pytest.raises((PeerError, OSError)):
        peer.open(sasl=False)
    router.wait_log("Client skipped authentication - forbidden")


# security.md T-13.
def test_connector_with_unreadable_authorities_logs_the_fault(start: Start, authority: Pki) -> None:
    server = start([profile(authority), secure()])
    connector = ("connector", {"host": "localhost", "port": server.port, "sslProfile": "p"})
    client = start([profile(authority, caCertFile="/nonexistent.pem"), connector, listener()])
    client.wait_log(r"SERVER \(error\) SSL CA configuration failed for connection \[C\d+\] to localhost:\d+")
    assert "Connection Opened: dir=out" not in client.log


def test_client_certificate_without_sasl_sets_the_user(start: Start, authority: Pki, peers: list[AmqpPeer]) -> None:
    """Without SASL the user is the whole subject name (security.md S-8)."""
    router = start([profile(authority), secure(saslMechanisms="EXTERNAL ANONYMOUS"), listener("plain")])
    peer = AmqpPeer(
        authority.context(authority.client).wrap_socket(dial(router.ports[""]), server_hostname="localhost")
    )
    peers.append(peer)
    peer.open(sasl=False)
    own = AmqpPeer.opened(router.ports["plain"])
    peers.append(own)
    rows = without_bystanders(Management(own).query("connection"))
    assert [(row["user"], row["sasl"], row["isAuthenticated"]) for row in rows] == [
        (CLIENT_USER, None, False),
        ("anonymous", "ANONYMOUS", True),
    ]


def test_sessions_are_resumed_by_all_workers(start: Start, tls: Tls, authority: Pki) -> None:
    router = start([profile(authority), secure()], 3)
    context = authority.context()
    first = tls(router, context=context)
    assert isinstance(first.socket, ssl.SSLSocket)
    used = set()
    for _ in range(6):
        again = tls(router, context=context, session=first.socket.session)
        assert isinstance(again.socket, ssl.SSLSocket)
        assert again.socket.session_reused
        used.add(router.worker_of(again.socket.getsockname()[1]))
    assert len(used) == 3


def test_replaced_certificate_is_used_for_new_connections(
    start: Start, tls: Tls, authority: Pki, swapped: SwappableCertificate, second: Issued
) -> None:
    router = start([profile(authority, swapped.issued), secure()], 3)
    old = tls(router)
    swapped.put(second.certificate.read_bytes(), second.key.read_bytes())
    router.wait_log(r"CONN_MGR \(notice\) sslProfile 'p': new credentials are in use")
    new = tls(router)
    assert certificate_of(new) == second.certificate.read_bytes().strip()
    assert certificate_of(old) == authority.server.certificate.read_bytes().strip()
    assert Management(old).query("connection"), "the old connection stays open"


def test_broken_key_file_keeps_the_credentials(
    start: Start, tls: Tls, authority: Pki, swapped: SwappableCertificate, second: Issued
) -> None:
    router = start([profile(authority, swapped.issued), secure()], 3)
    swapped.put(second.certificate.read_bytes(), b"nonsense")
    router.wait_log(r"sslProfile 'p' \(line \d+\): privateKeyFile \S+: .*; the previous credentials stay in use")
    assert certificate_of(tls(router)) == authority.server.certificate.read_bytes().strip()
    swapped.put(second.certificate.read_bytes(), second.key.read_bytes())
    router.wait_log("sslProfile 'p' is valid again")
    router.wait_log("new credentials are in use")
    assert certificate_of(tls(router)) == second.certificate.read_bytes().strip()


def test_connections_with_old_credentials_are_retired(
    start: Start, tls: Tls, authority: Pki, swapped: SwappableCertificate, second: Issued
) -> None:
    attributes = {"oldConnections": "retire"}
    router = start([profile(authority, swapped.issued, **attributes), secure()], 3)
    old = [tls(router) for _ in range(4)]
    plain = AmqpPeer.opened(router.ports[""])
    swapped.put(second.certificate.read_bytes(), second.key.read_bytes())
    text = "The credentials of sslProfile 'p' have been replaced: connect again"
    for peer in old:
        assert peer.expect_close() == ("amqp:connection:forced", text)
    assert certificate_of(tls(router)) == second.certificate.read_bytes().strip()
    assert Management(plain).query("connection"), "the connection without TLS stays open"
    plain.drop()


def test_profile_invalid_at_start_refuses_connections(start: Start, authority: Pki) -> None:
    """The router starts, but closes connections of the profile's listeners at once (security.md T-12)."""
    router = start([profile(authority, certFile="/none"), secure(), listener("other", sslProfile="unknown")])
    assert r"sslProfile 'p' (line " in router.log
    assert "certFile /none: No such file or directory; connections are refused" in router.log
    for name in ("", "other"):
        with dial(router.ports[name]) as opened:
            assert opened.recv(1) == b""
    router.wait_log("Run Time: Cannot set SSL credentials")


def test_profile_is_created_changed_and_deleted_by_management(
    start: Start, tls: Tls, authority: Pki, second: Issued
) -> None:
    router = start([listener("plain"), FILES], 3)
    own = AmqpPeer.opened(router.ports["plain"])
    management = Management(own)
    _, attributes = profile(authority, password="secret")
    given = {name: str(value) for name, value in attributes.items() if name != "name"}
    row = management.create(PROFILE, "p", **given)
    assert (row["identity"], "password" in row) == ("sslProfile/p", False)
    management.create("listener", "late", host="127.0.0.1", port="0", sslProfile="p")
    late = int(router.wait_log(r"Listening on 127.0.0.1:(\d+) \(late\)")[1])
    assert certificate_of(tls(router, late)) == authority.server.certificate.read_bytes().strip()
    with pytest.raises(ManagementStatusError, match="certFile /none: No such file"):
        management.call("UPDATE", {"certFile": "/none"}, name="p")
    files = {"certFile": str(second.certificate), "privateKeyFile": str(second.key)}
    management.call("UPDATE", files, name="p")
    router.wait_log("new credentials are in use")
    router.wait(
        lambda: certificate_of(tls(router, late)) == second.certificate.read_bytes().strip(),
        "the new certificate is used",
    )
    management.call("DELETE", name="p")
    assert management.query(PROFILE) == []
    assert certificate_of(tls(router, late)) == second.certificate.read_bytes().strip(), "the listener keeps it"
    own.drop()


@pytest.mark.parametrize(
    ("attributes", "host", "fine"),
    [
        ({}, "localhost", True),
        ({"caCertFile": None}, "localhost", False),
        ({"certFile": None, "privateKeyFile": None}, "localhost", False),
    ],
)
def test_connector_over_tls_needs_trust_and_certificate(
    start: Start, authority: Pki, attributes: dict[str, Any], host: str, fine: bool
) -> None:
    """Connector with TLS and a client certificate, to another router."""
    server = start([profile(authority), secure(saslMechanisms="EXTERNAL ANONYMOUS", requireSsl=True)])
    connector = ("connector", {"host": host, "port": server.port, "sslProfile": "p", "role": "route-container"})
    client = start([profile(authority, authority.client, **attributes), connector, listener()])
    if fine:
        client.wait_log(r"Connection Opened: dir=out host=localhost:\d+ vhost= encrypted=TLSv1.3")
    else:
        client.wait_log(r"Connection to localhost:\d+ failed: ")
        assert "Connection Opened: dir=out" not in client.log


def test_connector_verifies_the_host_name(start: Start, authority: Pki) -> None:
    other = authority.issue("other-host", "/CN=other.example", names="DNS:other.example")
    server = start([profile(authority, other), secure()])
    place = {"host": "localhost", "port": server.port, "sslProfile": "p"}
    strict = ("connector", {**place, "name": "strict"})
    lax = ("connector", {**place, "name": "lax", "verifyHostname": False})
    client = start([profile(authority), strict, lax, listener()])
    client.wait_log(r"Connection to localhost:\d+ failed: .*certificate verify failed")
    client.wait_log(r"Connection Opened: dir=out host=localhost:\d+ vhost= encrypted=TLSv1.3")


def test_connector_sends_server_name_and_certificate(start: Start, authority: Pki) -> None:
    """The connector sends its configured host as server name (security.md T-15), and its certificate."""
    context = authority.server_context(authority.server, wants_client=True)
    server_names: list[str | None] = []
    context.sni_callback = lambda _, name, __: server_names.append(name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        place = {"host": "localhost", "port": server.getsockname()[1], "sslProfile": "p", "role": "route-container"}
        start([profile(authority, authority.client), ("connector", place), listener()])
        with context.wrap_socket(server.accept()[0], server_side=True) as secured:
            assert server_names == ["localhost"]
            subject = (secured.getpeercert() or {})["subject"]
            assert (("commonName", "127.0.0.1"),) in subject
            assert secured.recv(4) == b"AMQP"


def get(port: int, context: ssl.SSLContext | None = None, path: str = "/readyz") -> tuple[int, str]:
    """Send an HTTP request, over TLS if `context` is given; return status and body."""
    opened: socket.socket = dial(port)
    if context is not None:
        opened = context.wrap_socket(opened, server_hostname="localhost")
    with opened:
        opened.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        octets = b""
        while part := opened.recv(65536):
            octets += part
    head, _, body = octets.decode().partition("\r\n\r\n")
    if not head:
        raise ConnectionError("no answer")
    return int(head.split()[1]), body


def test_https_listeners_serve_pages(
    start: Start, authority: Pki, swapped: SwappableCertificate, second: Issued
) -> None:
    """brokers-and-edge.md H-6."""
    router = start([
        profile(authority, swapped.issued),
        listener("main"),
        secure("both", http=True),
        secure("strict", http=True, requireSsl=True),
        secure("mutual", http=True, requireSsl=True, authenticatePeer=True),
    ])  # fmt: skip
    context, known = authority.context(), authority.context(authority.client)
    assert get(router.ports["both"])[0] == get(router.ports["both"], context)[0] == 200
    assert get(router.ports["strict"], context)[0] == get(router.ports["mutual"], known)[0] == 200
    for name, client_context in (("strict", None), ("mutual", context)):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            get(router.ports[name], client_context)
    assert 'sluice_tls_profile_current{profile="p"} 1.0' in get(router.ports["both"], context, "/metrics")[1]

    swapped.put(second.certificate.read_bytes(), b"nonsense")
    router.wait_log("the previous credentials stay in use")
    status, body = get(router.ports["both"], context)
    assert (status, "the previous credentials stay in use" in body) == (200, True)
    page = get(router.ports["both"], context, "/metrics")[1]
    assert 'sluice_tls_profile_current{profile="p"} 0.0' in page
    assert 'sluice_tls_certificate_expiry_timestamp_seconds{profile="p"} ' in page


def test_router_without_usable_credentials_is_not_ready(start: Start, authority: Pki) -> None:
    router = start([profile(authority, certFile="/none"), secure(), listener("http", http=True)])
    status, body = get(router.ports["http"])
    assert status == 503
    assert "certFile /none: No such file or directory" in body


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch users")
@pytest.mark.disturbs("a worker is killed")
def test_root_rights_are_dropped(start: Start, tls: Tls, authority: Pki) -> None:
    """All processes run as the configured user, and none can write a core file."""
    nobody = pwd.getpwnam("nobody")
    sections = [profile(authority), secure(), secure("https", http=True, requireSsl=True)]
    router = start(sections, 2, options=["--user", "nobody"], program=program_for("nobody"))
    tls(router)
    assert get(router.ports["https"], authority.context(), "/metrics")[0] == 200
    for process in router.family():
        assert set(process.uids()) == {nobody.pw_uid}
        assert set(process.gids()) == {nobody.pw_gid}
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert re.search(r"Max core file size +1 +1 ", limits)
    victim = router.worker_pids()[0]
    os.kill(victim, signal.SIGKILL)
    router.wait(lambda: victim not in router.worker_pids() and len(router.worker_pids()) == 2, "the worker is replaced")
    tls(router)


def test_reload_replaces_credentials_and_hides_passwords(
    start: Start, tls: Tls, authority: Pki, second: Issued
) -> None:
    """A plan shows no password, and an invalid profile in the file leaves the credentials in use."""
    router = start([profile(authority, password="pass:hidden"), secure()], 3)
    management = Management(tls(router))
    router.configure([profile(authority, second, password="pass:hushed"), secure()])
    plan = management.call("RELOAD", plan=True)
    assert "certFile" in plan["text"]
    assert "hushed" not in plan["text"] + str(plan["changes"])
    management.call("RELOAD")
    assert certificate_of(tls(router)) == second.certificate.read_bytes().strip()
    router.configure([profile(authority, second, ciphers="nonsense"), secure()])
    management.call("RELOAD")
    assert router.wait_log("ciphers nonsense: no cipher match; the previous credentials stay in use")
    assert certificate_of(tls(router)) == second.certificate.read_bytes().strip()
    assert not re.search("hidden|hushed", router.log)


def test_certificates_replaced_under_load_disturb_no_client(
    start: Start, tls: Tls, authority: Pki, swapped: SwappableCertificate, second: Issued
) -> None:
    """Messages pass and every new connection is accepted while certificates are replaced."""
    router = start([profile(authority, swapped.issued), secure()], 3)
    receiver = tls(router).receiver("a", 1)
    sender = tls(router).sender("a")
    seen = set()
    for count in range(1, 4):
        issued = second if count % 2 else authority.server
        swapped.put(issued.certificate.read_bytes(), issued.key.read_bytes())

        def passed(count: int = count) -> bool:
            pass_one(sender, receiver)
            receiver.flow(1)
            seen.add(certificate_of(tls(router)))
            return router.log.count("new credentials are in use") == count

        router.wait(passed, "the new certificate is used")
    assert seen == {each.certificate.read_bytes().strip() for each in (second, authority.server)}


def test_record_is_read_with_one_call(start: Start, tls: Tls, authority: Pki, peers: list[AmqpPeer]) -> None:
    """A TLS record takes one read(2), when the socket is ready; no further read finds the socket empty."""
    router = start([profile(authority), secure()], 1)
    peers.append(AmqpPeer.opened(router.ports[""]))
    count = 200
    receiver = peers[-1].receiver("a", count)
    sender = tls(router).sender("a")
    (worker,) = router.worker_pids()

    def reads() -> int:
        """Return the worker's count of read(2) calls, used by OpenSSL; sockets without TLS use recv(2)."""
        return int(re.findall(r"^syscr: (\d+)", Path(f"/proc/{worker}/io").read_text(), re.MULTILINE)[0])

    before = reads()
    for _ in range(count):
        pass_one(sender, receiver)
    assert count <= reads() - before < 1.5 * count


def test_protocol_version_is_restricted_by_profile(start: Start, tls: Tls, authority: Pki) -> None:
    """The default is TLS 1.2 and 1.3; `protocols` restricts it (security.md T-2)."""
    router = start([profile(authority, protocols="TLSv1.2"), secure()])
    assert management_row(tls(router))["sslProto"] == "TLSv1.2"
    newest = authority.context()
    newest.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls(router, context=newest)


def management_row(peer: AmqpPeer) -> dict[str, Any]:
    rows = Management(peer).query("connection")
    return dict(rows[-1])


def test_proton_client_verifies_and_connects(start: Start, authority: Pki) -> None:
    """Proton connects with verification of the certificate and of the host name."""
    router = start([profile(authority), secure(saslMechanisms="EXTERNAL ANONYMOUS", requireSsl=True)])
    domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    domain.set_credentials(str(authority.client.certificate), str(authority.client.key), None)
    domain.set_trusted_ca_db(str(authority.trusted))
    domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)
    url = f"amqps://localhost:{router.port}"
    client = BlockingConnection(url, ssl_domain=domain, timeout=10, allowed_mechs="ANONYMOUS")
    receiver = client.create_receiver("a", credit=1)
    client.create_sender("a", options=AtMostOnce()).send(proton.Message("over TLS"))
    assert receiver.receive(timeout=10).body == "over TLS"
    client.close()


def test_expired_certificate_is_logged_and_refused(start: Start, authority: Pki) -> None:
    """The router starts and logs the expiry; clients refuse the certificate."""
    expired = authority.issue("expired", "/CN=expired", names="DNS:localhost", days=-1)
    router = start([profile(authority, expired), secure(), listener("http", http=True)])
    assert "sslProfile 'p': the certificate has expired" in router.log
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        authority.context().wrap_socket(dial(router.ports[""]), server_hostname="localhost")
    assert "the certificate expired on" in get(router.ports["http"])[1]


def test_large_authority_file_is_loaded(start: Start, tls: Tls, authority: Pki, tmp_path: Path) -> None:
    """The file is as large as that of all public authorities."""
    path = tmp_path / "authorities.pem"
    path.write_bytes(authority.trusted.read_bytes() + b"# nothing\n" * 100_000)
    router = start([profile(authority, caCertFile=path), secure(saslMechanisms="EXTERNAL ANONYMOUS")], 3)
    tls(router, context=authority.context(authority.client))


def test_session_without_certificate_is_not_resumed_elsewhere(start: Start, tls: Tls, authority: Pki) -> None:
    """A session of one listener does not bypass the client certificate that another listener of the same profile
    requires."""
    router = start([profile(authority), secure(), secure("mutual", saslMechanisms="EXTERNAL ANONYMOUS")])
    context = authority.context()
    first = tls(router, context=context)
    assert isinstance(first.socket, ssl.SSLSocket)
    with pytest.raises((ssl.SSLError, ConnectionError, PeerError)):
        tls(router, "mutual", context=context, session=first.socket.session)
