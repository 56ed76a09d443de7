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
from tests.peer.management import Management, ManagementError
from tests.peer.peer import Peer
from tests.peer.pki import CLIENT_USER, Issued, Pki, Swapped, pki
from tests.peer.wire import PeerError, StreamEnd
from tests.system.bystanders.site import without_bystanders
from tests.system.fixtures import Start, pass_one
from tests.system.router import FILES, Router, Section, listener

pytestmark = pytest.mark.adversarial

PROFILE = "sslProfile"
Tls = Callable[..., Peer]


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture
def tls(made: Pki, peers: list[Peer]) -> Tls:
    """Function tls(router, name, context=…, host=…, session=…) that returns an opened peer over TLS."""

    def connected(
        router: Router,
        name: str | int = "",
        context: ssl.SSLContext | None = None,
        host: str = "localhost",
        **more: Any,
    ) -> Peer:
        wrapped = (context or made.context()).wrap_socket(dial(_port(router, name)), server_hostname=host, **more)
        peer = Peer(wrapped)
        peers.append(peer)
        peer.open()
        return peer

    return connected


def _port(router: Router, name: str | int) -> int:
    return name if isinstance(name, int) else router.ports[name]


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def profile(made: Pki, own: Issued | None = None, **attributes: Any) -> Section:
    certificate, key = own or made.server
    given = {"name": "p", "certFile": certificate, "privateKeyFile": key, "caCertFile": made.trusted, **attributes}
    return PROFILE, {name: value for name, value in given.items() if value is not None}


def secure(name: str | None = None, **attributes: Any) -> Section:
    return listener(name, sslProfile="p", **attributes)


@pytest.fixture
def swapped(made: Pki, tmp_path: Path) -> Swapped:
    directory = tmp_path / "secret"
    directory.mkdir()
    return Swapped(directory, made.server)


@pytest.fixture
def second(made: Pki) -> Issued:
    return made.issue("second", "/CN=second", names="DNS:localhost")


def certificate_of(peer: Peer) -> bytes:
    assert isinstance(peer.socket, ssl.SSLSocket)
    return ssl.DER_cert_to_PEM_cert(peer.socket.getpeercert(binary_form=True) or b"").strip().encode()


def test_who_gets_in(start: Start, tls: Tls, made: Pki, peers: list[Peer], tmp_path_factory: Any) -> None:
    sections = [
        profile(made, password="pass:unused"),
        secure(),
        secure("strict", requireSsl=True),
        secure("mutual", saslMechanisms="EXTERNAL ANONYMOUS"),
        listener("plain", requireEncryption=True),
    ]
    router = start(sections, 3)
    peer = tls(router)
    management = Management(peer)
    plain = Peer.opened(router.ports[""])
    peers.append(plain)
    tls(router, "strict")
    by_certificate = tls(router, "mutual", made.context(made.client))

    for name in ("strict", "plain"):
        refused = Peer(router.ports[name])
        peers.append(refused)
        with pytest.raises((PeerError, OSError)):
            refused.open(sasl=False)
        asking = Peer(router.ports[name])
        peers.append(asking)
        asking.raw(SASL_HEADER)
        with pytest.raises(StreamEnd):  # without mechanisms no client sends a password in clear text
            asking.read_octets(1)
        assert router.wait_log("Client connection unencrypted - forbidden")
    others = pki(tmp_path_factory.getbasetemp(), "others")
    with pytest.raises(ssl.SSLCertVerificationError):
        tls(router, context=others.context())
    with pytest.raises(ssl.SSLCertVerificationError):
        tls(router, host="other.example")
    for context in (made.context(), made.context(others.client)):
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


def test_the_user_of_a_certificate(start: Start, made: Pki, peers: list[Peer]) -> None:
    """Without SASL the user is the whole subject name (security.md S-8)."""
    router = start([profile(made), secure(saslMechanisms="EXTERNAL ANONYMOUS"), listener("plain")])
    peer = Peer(made.context(made.client).wrap_socket(dial(router.ports[""]), server_hostname="localhost"))
    peers.append(peer)
    peer.open(sasl=False)
    own = Peer.opened(router.ports["plain"])
    peers.append(own)
    rows = without_bystanders(Management(own).query("connection"))
    assert [(row["user"], row["sasl"], row["isAuthenticated"]) for row in rows] == [
        (CLIENT_USER, None, False),
        ("anonymous", "ANONYMOUS", True),
    ]


def test_sessions_are_resumed_by_every_worker(start: Start, tls: Tls, made: Pki) -> None:
    router = start([profile(made), secure()], 3)
    context = made.context()
    first = tls(router, context=context)
    assert isinstance(first.socket, ssl.SSLSocket)
    used = set()
    for _ in range(6):
        again = tls(router, context=context, session=first.socket.session)
        assert isinstance(again.socket, ssl.SSLSocket)
        assert again.socket.session_reused
        used.add(router.worker_of(again.socket.getsockname()[1]))
    assert len(used) == 3


def test_a_certificate_is_swapped(start: Start, tls: Tls, made: Pki, swapped: Swapped, second: Issued) -> None:
    router = start([profile(made, swapped.issued), secure()], 3)
    old = tls(router)
    swapped.put(second.certificate.read_bytes(), second.key.read_bytes())
    router.wait_log(r"CONN_MGR \(notice\) sslProfile 'p': new credentials are in use")
    new = tls(router)
    assert certificate_of(new) == second.certificate.read_bytes().strip()
    assert certificate_of(old) == made.server.certificate.read_bytes().strip()
    assert Management(old).query("connection"), "it stays"


def test_a_broken_file_changes_nothing(start: Start, tls: Tls, made: Pki, swapped: Swapped, second: Issued) -> None:
    router = start([profile(made, swapped.issued), secure()], 3)
    swapped.put(second.certificate.read_bytes(), b"nonsense")
    router.wait_log(r"sslProfile 'p' \(line \d+\): privateKeyFile \S+: .*; the previous credentials stay in use")
    assert certificate_of(tls(router)) == made.server.certificate.read_bytes().strip()
    swapped.put(second.certificate.read_bytes(), second.key.read_bytes())
    router.wait_log("sslProfile 'p' is valid again")
    router.wait_log("new credentials are in use")
    assert certificate_of(tls(router)) == second.certificate.read_bytes().strip()


def test_old_connections_are_retired(start: Start, tls: Tls, made: Pki, swapped: Swapped, second: Issued) -> None:
    attributes = {"oldConnections": "retire", "oldConnectionsPerSecond": 100}
    router = start([profile(made, swapped.issued, **attributes), secure()], 3)
    old = [tls(router) for _ in range(4)]
    plain = Peer.opened(router.ports[""])
    swapped.put(second.certificate.read_bytes(), second.key.read_bytes())
    text = "The credentials of sslProfile 'p' have been replaced: connect again"
    for peer in old:
        assert peer.expect_close() == ("amqp:connection:forced", text)
    assert certificate_of(tls(router)) == second.certificate.read_bytes().strip()
    assert Management(plain).query("connection"), "it has no credentials"
    plain.drop()


def test_a_profile_that_is_broken_from_the_start(start: Start, made: Pki) -> None:
    """The router starts, but closes connections of the profile's listeners at once (security.md T-12)."""
    router = start([profile(made, certFile="/none"), secure(), listener("other", sslProfile="unknown")])
    assert r"sslProfile 'p' (line " in router.log
    assert "certFile /none: No such file or directory; connections are refused" in router.log
    for name in ("", "other"):
        with dial(router.ports[name]) as opened:
            assert opened.recv(1) == b""
    router.wait_log("Run Time: Cannot set SSL credentials")


def test_management(start: Start, tls: Tls, made: Pki, second: Issued) -> None:
    router = start([listener("plain"), FILES], 3)
    own = Peer.opened(router.ports["plain"])
    management = Management(own)
    _, attributes = profile(made, password="secret")
    given = {name: str(value) for name, value in attributes.items() if name != "name"}
    row = management.create(PROFILE, "p", **given)
    assert (row["identity"], "password" in row) == ("sslProfile/p", False)
    management.create("listener", "late", host="127.0.0.1", port="0", sslProfile="p")
    late = int(router.wait_log(r"Listening on 127.0.0.1:(\d+) \(late\)")[1])
    assert certificate_of(tls(router, late)) == made.server.certificate.read_bytes().strip()
    with pytest.raises(ManagementError, match="certFile /none: No such file"):
        management.call("UPDATE", {"certFile": "/none"}, name="p")
    files = {"certFile": str(second.certificate), "privateKeyFile": str(second.key)}
    management.call("UPDATE", files, name="p")
    router.wait_log("new credentials are in use")
    router.wait(lambda: certificate_of(tls(router, late)) == second.certificate.read_bytes().strip(), "it is used")
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
def test_connectors(start: Start, made: Pki, attributes: dict[str, Any], host: str, fine: bool) -> None:
    """Connector with TLS and a client certificate, to another router."""
    server = start([profile(made), secure(saslMechanisms="EXTERNAL ANONYMOUS", requireSsl=True)])
    connector = ("connector", {"host": host, "port": server.port, "sslProfile": "p", "role": "route-container"})
    client = start([profile(made, made.client, **attributes), connector, listener()])
    if fine:
        client.wait_log(r"Connection Opened: dir=out host=localhost:\d+ vhost= encrypted=TLSv1.3")
    else:
        client.wait_log(r"Connection to localhost:\d+ failed: ")
        assert "Connection Opened: dir=out" not in client.log


def test_a_host_of_another_name(start: Start, made: Pki) -> None:
    other = made.issue("other-host", "/CN=other.example", names="DNS:other.example")
    server = start([profile(made, other), secure()])
    place = {"host": "localhost", "port": server.port, "sslProfile": "p"}
    strict = ("connector", {**place, "name": "strict"})
    lax = ("connector", {**place, "name": "lax", "verifyHostname": False})
    client = start([profile(made), strict, lax, listener()])
    client.wait_log(r"Connection to localhost:\d+ failed: .*certificate verify failed")
    client.wait_log(r"Connection Opened: dir=out host=localhost:\d+ vhost= encrypted=TLSv1.3")


def test_whom_a_connector_asks_for(start: Start, made: Pki) -> None:
    """The connector sends its configured host as server name (security.md T-15), and its certificate."""
    context = made.server_context(made.server, wants_client=True)
    asked: list[str | None] = []
    context.sni_callback = lambda _, name, __: asked.append(name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        place = {"host": "localhost", "port": server.getsockname()[1], "sslProfile": "p", "role": "route-container"}
        start([profile(made, made.client), ("connector", place), listener()])
        with context.wrap_socket(server.accept()[0], server_side=True) as secured:
            assert asked == ["localhost"]
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


def test_https(start: Start, made: Pki, swapped: Swapped, second: Issued) -> None:
    router = start([
        profile(made, swapped.issued),
        listener("main"),
        secure("both", http=True),
        secure("strict", http=True, requireSsl=True),
        secure("mutual", http=True, requireSsl=True, authenticatePeer=True),
    ])  # fmt: skip
    context, known = made.context(), made.context(made.client)
    assert get(router.ports["both"])[0] == get(router.ports["both"], context)[0] == 200
    assert get(router.ports["strict"], context)[0] == get(router.ports["mutual"], known)[0] == 200
    for name, who in (("strict", None), ("mutual", context)):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            get(router.ports[name], who)
    assert 'sluice_tls_profile_current{profile="p"} 1.0' in get(router.ports["both"], context, "/metrics")[1]

    swapped.put(second.certificate.read_bytes(), b"nonsense")
    router.wait_log("the previous credentials stay in use")
    status, body = get(router.ports["both"], context)
    assert (status, "the previous credentials stay in use" in body) == (200, True)
    page = get(router.ports["both"], context, "/metrics")[1]
    assert 'sluice_tls_profile_current{profile="p"} 0.0' in page
    assert 'sluice_tls_certificate_expiry_timestamp_seconds{profile="p"} ' in page


def test_a_router_without_usable_credentials_is_not_ready(start: Start, made: Pki) -> None:
    router = start([profile(made, certFile="/none"), secure(), listener("http", http=True)])
    status, body = get(router.ports["http"])
    assert status == 503
    assert "certFile /none: No such file or directory" in body


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch users")
@pytest.mark.disturbs("a worker is killed")
def test_root_is_dropped(start: Start, tls: Tls, made: Pki) -> None:
    """All processes run as the configured user, and none can write a core file."""
    nobody = pwd.getpwnam("nobody")
    sections = [profile(made), secure(), secure("https", http=True, requireSsl=True)]
    router = start(sections, 2, options=["--user", "nobody"], program=program_for("nobody"))
    tls(router)
    assert get(router.ports["https"], made.context(), "/metrics")[0] == 200
    for process in router.family():
        assert set(process.uids()) == {nobody.pw_uid}
        assert set(process.gids()) == {nobody.pw_gid}
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert re.search(r"Max core file size +1 +1 ", limits)
    victim = router.worker_pids()[0]
    os.kill(victim, signal.SIGKILL)
    router.wait(lambda: victim not in router.worker_pids() and len(router.worker_pids()) == 2, "it is replaced")
    tls(router)


def test_a_reload(start: Start, tls: Tls, made: Pki, second: Issued) -> None:
    """A plan shows no password, and an invalid profile in the file leaves the credentials in use."""
    router = start([profile(made, password="pass:hidden"), secure()], 3)
    management = Management(tls(router))
    router.configure([profile(made, second, password="pass:hushed"), secure()])
    plan = management.call("RELOAD", plan=True)
    assert "certFile" in plan["text"]
    assert "hushed" not in plan["text"] + str(plan["changes"])
    management.call("RELOAD")
    assert certificate_of(tls(router)) == second.certificate.read_bytes().strip()
    router.configure([profile(made, second, ciphers="nonsense"), secure()])
    management.call("RELOAD")
    assert router.wait_log("ciphers nonsense: no cipher match; the previous credentials stay in use")
    assert certificate_of(tls(router)) == second.certificate.read_bytes().strip()
    assert not re.search("hidden|hushed", router.log)


def test_swaps_under_load(start: Start, tls: Tls, made: Pki, swapped: Swapped, second: Issued) -> None:
    """Messages pass and every new connection is accepted while certificates are replaced."""
    router = start([profile(made, swapped.issued), secure()], 3)
    receiver = tls(router).receiver("a", 1)
    sender = tls(router).sender("a")
    seen = set()
    for turn in range(1, 4):
        issued = second if turn % 2 else made.server
        swapped.put(issued.certificate.read_bytes(), issued.key.read_bytes())

        def passed(turn: int = turn) -> bool:
            pass_one(sender, receiver)
            receiver.flow(1)
            seen.add(certificate_of(tls(router)))
            return router.log.count("new credentials are in use") == turn

        router.wait(passed, "the new certificate is used")
    assert seen == {each.certificate.read_bytes().strip() for each in (second, made.server)}


def test_a_record_is_read_once(start: Start, tls: Tls, made: Pki, peers: list[Peer]) -> None:
    """A TLS record takes one read(2), when the socket is ready; no further read finds the socket empty."""
    router = start([profile(made), secure()], 1)
    peers.append(Peer.opened(router.ports[""]))
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


def test_versions(start: Start, tls: Tls, made: Pki) -> None:
    """The default is TLS 1.2 and 1.3; `protocols` restricts it (security.md T-2)."""
    router = start([profile(made, protocols="TLSv1.2"), secure()])
    assert management_row(tls(router))["sslProto"] == "TLSv1.2"
    newest = made.context()
    newest.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls(router, context=newest)


def management_row(peer: Peer) -> dict[str, Any]:
    rows = Management(peer).query("connection")
    return dict(rows[-1])


def test_proton(start: Start, made: Pki) -> None:
    """Proton connects with verification of the certificate and of the host name."""
    router = start([profile(made), secure(saslMechanisms="EXTERNAL ANONYMOUS", requireSsl=True)])
    domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    domain.set_credentials(str(made.client.certificate), str(made.client.key), None)
    domain.set_trusted_ca_db(str(made.trusted))
    domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)
    url = f"amqps://localhost:{router.port}"
    client = BlockingConnection(url, ssl_domain=domain, timeout=10, allowed_mechs="ANONYMOUS")
    receiver = client.create_receiver("a", credit=1)
    client.create_sender("a", options=AtMostOnce()).send(proton.Message("over TLS"))
    assert receiver.receive(timeout=10).body == "over TLS"
    client.close()


def test_an_expired_certificate(start: Start, made: Pki) -> None:
    """The router starts and logs the expiry; clients refuse the certificate."""
    expired = made.issue("expired", "/CN=expired", names="DNS:localhost", days=-1)
    router = start([profile(made, expired), secure(), listener("http", http=True)])
    assert "sslProfile 'p': the certificate has expired" in router.log
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        made.context().wrap_socket(dial(router.ports[""]), server_hostname="localhost")
    assert "the certificate has expired" in get(router.ports["http"])[1]


def test_a_large_file_of_authorities(start: Start, tls: Tls, made: Pki, tmp_path: Path) -> None:
    """The file is as large as that of all public authorities."""
    path = tmp_path / "authorities.pem"
    path.write_bytes(made.trusted.read_bytes() + b"# nothing\n" * 100_000)
    router = start([profile(made, caCertFile=path), secure(saslMechanisms="EXTERNAL ANONYMOUS")], 3)
    tls(router, context=made.context(made.client))


def test_a_session_without_a_certificate_is_no_way_in(start: Start, tls: Tls, made: Pki) -> None:
    """A session of one listener does not bypass the client certificate that another listener of the same profile
    requires."""
    router = start([profile(made), secure(), secure("mutual", saslMechanisms="EXTERNAL ANONYMOUS")])
    context = made.context()
    first = tls(router, context=context)
    assert isinstance(first.socket, ssl.SSLSocket)
    with pytest.raises((ssl.SSLError, ConnectionError, PeerError)):
        tls(router, "mutual", context=context, session=first.socket.session)
