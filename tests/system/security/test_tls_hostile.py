"""TLS with broken or hostile peers, and certificates that must be refused (security.md 3)."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.peer.frames import AMQP_HEADER, Performative, frame_octets
from tests.peer.management import Management
from tests.peer.openssl import OpenSslClient
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Issued, Pki, pki
from tests.peer.wire import PeerError
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

#: Value of initialHandshakeTimeoutSeconds of listener `tls`.
HANDSHAKE_SECONDS = 1
#: Lifetime in seconds of a certificate that expires during a test.
LIFETIME_SECONDS = 8
REFUSED = (ssl.SSLError, ConnectionError, PeerError)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "hostile")


def sections(authority: Pki, **attributes: Any) -> list[Section]:
    own = {
        "certFile": authority.server.certificate,
        "privateKeyFile": authority.server.key,
        "caCertFile": authority.trusted,
    }
    return [
        ("sslProfile", {"name": "p", **own, **attributes}),
        listener("tls", sslProfile="p", initialHandshakeTimeoutSeconds=HANDSHAKE_SECONDS, requireSsl=True),
        listener("mutual", sslProfile="p", saslMechanisms="EXTERNAL", authenticatePeer=True, requireSsl=True),
        listener("https", sslProfile="p", http=True, authenticatePeer=True, requireSsl=True),
        listener(),
    ]


def dial(router: RouterProcess, name: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", router.ports[name]), timeout=10)


def greeting() -> bytes:
    """Return the first octets of a TLS client."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    shaking = ssl.create_default_context().wrap_bio(into, out, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        shaking.do_handshake()
    return out.read()


def open_over_tls(
    router: RouterProcess,
    authority: Pki,
    name: str = "tls",
    client: Issued | None = None,
    *,
    context: ssl.SSLContext | None = None,
    session: ssl.SSLSession | None = None,
) -> AmqpPeer:
    """Return a peer opened over TLS; with a client certificate it logs in by EXTERNAL."""
    context = context or authority.context(client)
    peer = AmqpPeer(context.wrap_socket(dial(router, name), server_hostname="localhost", session=session))
    try:
        peer.open(mechanism="EXTERNAL" if client else "ANONYMOUS")
    except BaseException:
        peer.drop()
        raise
    return peer


def check_serves(router: RouterProcess, authority: Pki) -> None:
    open_over_tls(router, authority).drop()


def wait_end(connection: socket.socket) -> None:
    """Wait until the router ends the connection, in order or by a reset."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize("length", [1, 5, 100])
def test_truncated_handshake_is_closed_after_its_timeout(start: Start, authority: Pki, length: int) -> None:
    router = start(sections(authority))
    begun = time.monotonic()
    with dial(router, "tls") as silent:
        silent.sendall(greeting()[:length])
        check_serves(router, authority)
        wait_end(silent)
    assert time.monotonic() - begun >= HANDSHAKE_SECONDS * 0.9


def test_dribbled_handshake_gets_no_extra_time(start: Start, authority: Pki) -> None:
    """Single octets are progress, but do not restart the handshake timeout."""
    router = start(sections(authority))
    octets = iter(greeting())
    with dial(router, "tls") as slow:
        ended = threading.Event()

        def dribble() -> None:
            for octet in octets:
                try:
                    slow.sendall(bytes((octet,)))
                except OSError:
                    return
                if ended.wait(0.05):
                    return

        thread = threading.Thread(target=dribble)
        thread.start()
        wait_end(slow)
        ended.set()
        thread.join()
    assert next(octets, None) is not None, "the connection is closed before the greeting is complete"
    check_serves(router, authority)


@pytest.mark.parametrize(
    "octets",
    [
        b"\x16\x03\x01\xff\xff" + bytes(64),
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff" + bytes(64),
        b"\x16" + b"AMQP" * 40,
        b"\x16\x03\x01\x00\x00" * 60,
    ],
    ids=["long record", "long message", "nonsense", "empty records"],
)
def test_garbage_closes_the_connection_at_once(start: Start, authority: Pki, octets: bytes) -> None:
    router = start(sections(authority))
    with dial(router, "mutual") as hostile:  # listener `mutual` has no handshake timeout
        hostile.sendall(octets)
        wait_end(hostile)
    router.wait_log(r"\[C\d+\] Connection from \S+ .*failed: amqp:connection:framing-error SSL Failure: ")
    check_serves(router, authority)


def test_half_greeting_and_end_is_closed(start: Start, authority: Pki) -> None:
    router = start(sections(authority))
    with dial(router, "mutual") as hostile:
        hostile.sendall(greeting()[:100])
        hostile.shutdown(socket.SHUT_WR)
        wait_end(hostile)
    router.wait_log("SSL Failure: unexpected eof while reading")
    check_serves(router, authority)


def test_renegotiation_is_refused(start: Start, authority: Pki) -> None:
    router = start(sections(authority))
    command = ["openssl", "s_client", "-connect", f"localhost:{router.ports['tls']}", "-tls1_2"]
    client = subprocess.Popen(
        [*command, "-CAfile", str(authority.trusted)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    seen = []
    for line in client.stdout:
        seen.append(line)
        if "Verify return code" in line:
            client.stdin.write("R\n")
            client.stdin.flush()
    client.stdin.close()
    client.wait(10)
    assert "RENEGOTIATING\n" in seen
    assert "no renegotiation" in "".join(seen)
    check_serves(router, authority)


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
OPEN = frame_octets(Performative("open", container_id="updates").encode())
HEARTBEAT, CLOSE = frame_octets(b""), frame_octets(Performative("close").encode())
#: Number of records with data that compensate one record without.
ONE_UPDATE_IN = 64
#: Records of a burst, far more than any client has reason to send, and the minimum octets of a reply that is no alert.
FLOOD, ANSWER = 2000, 100
#: Octets of the session ticket that a worker sends.
TICKET = 256


def received_octets(client: OpenSslClient) -> int:
    """Return the number of encrypted octets received until the end."""
    octets = 0
    try:
        while length := client.socket.recv(65536):
            octets += len(length)
    except ConnectionError:
        pass
    return octets


@pytest.mark.parametrize("websockets", [True, False], ids=["in a worker", "in the supervisor"])
def test_key_update_flood_is_closed(start: Start, authority: Pki, websockets: bool) -> None:
    """Without a limit a megabyte of key updates, prepared in advance, would keep a process busy for seconds."""
    router = start([*sections(authority), listener("web", sslProfile="p", http=True, websockets=websockets)])
    amqp = OpenSslClient(router.ports["tls"])
    amqp.socket.sendall(amqp.updates(FLOOD) + amqp.data(AMQP_HEADER + OPEN))
    router.wait_log("SSL Failure: the peer sent too many TLS records without data")
    received_octets(amqp)
    amqp.close()
    web = OpenSslClient(router.ports["web"])
    web.socket.sendall(web.updates(FLOOD) + web.data(GET))
    assert received_octets(web) < ANSWER + TICKET * websockets
    web.close()
    check_serves(router, authority)


def test_key_updates_at_a_low_rate_are_accepted(start: Start, authority: Pki) -> None:
    """A connection may send a few key updates at once and further ones rarely; more of them end it."""
    router = start([*sections(authority), listener("web", sslProfile="p", http=True, websockets=False)])
    amqp = OpenSslClient(router.ports["tls"])
    amqp.socket.sendall(b"".join(amqp.updates(5) + amqp.data(length) for length in (AMQP_HEADER, OPEN)))
    router.wait_log("Connection Opened: .* container_id=updates")
    heartbeats = b"".join(amqp.data(HEARTBEAT) for _ in range(ONE_UPDATE_IN * 10))
    amqp.socket.sendall(heartbeats + amqp.updates(10) + amqp.data(CLOSE))
    received_octets(amqp)
    router.wait_log("Connection Closed")
    assert "SSL Failure" not in router.log
    amqp.close()
    amqp = OpenSslClient(router.ports["tls"])
    amqp.socket.sendall(amqp.data(AMQP_HEADER + OPEN))
    amqp.socket.sendall(b"".join(amqp.updates(1) + amqp.data(HEARTBEAT) for _ in range(20)))
    router.wait_log("SSL Failure: the peer sent too many TLS records without data")
    amqp.close()
    web = OpenSslClient(router.ports["web"])
    web.socket.sendall(b"".join(web.updates(100) + web.data(length) for length in (GET[:10], GET[10:])))
    assert received_octets(web) > ANSWER
    web.close()


def test_overlong_certificate_chain_is_refused(start: Start, authority: Pki, tmp_path: Path) -> None:
    """A chain of 200 kB is not read."""
    router = start(sections(authority))
    chain = tmp_path / "chain.pem"
    certificate = authority.client.certificate.read_bytes()
    chain.write_bytes(certificate * (200_000 // len(certificate)))
    with pytest.raises(REFUSED):
        open_over_tls(router, authority, "mutual", Issued(chain, authority.client.key))
    router.wait_log("SSL Failure: excessive message size")
    open_over_tls(router, authority, "mutual", authority.client).drop()


def https(router: RouterProcess, authority: Pki, client: Issued) -> bytes:
    with authority.context(client).wrap_socket(dial(router, "https"), server_hostname="localhost") as asking:
        asking.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = asking.recv(4096)
    if not answer:
        raise ConnectionError("no answer")
    return answer


@pytest.mark.parametrize("when", ["expired", "not yet valid"])
def test_client_certificate_outside_its_dates_is_refused(start: Start, authority: Pki, when: str) -> None:
    router = start(sections(authority))
    name = f"client {when}".replace(" ", "-")
    given: dict[str, Any] = {"days": -1} if when == "expired" else {"later": True}
    client = authority.issue(name, f"/CN={name}", **given)
    for attempt in (
        lambda: open_over_tls(router, authority, "mutual", client),
        lambda: https(router, authority, client),
    ):
        with pytest.raises(REFUSED):
            attempt()
    router.wait_log("SSL Failure: certificate verify failed")
    open_over_tls(router, authority, "mutual", authority.client).drop()
    assert https(router, authority, authority.client).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("when", ["expired", "not yet valid", "revoked"])
def test_connector_refuses_an_invalid_server_certificate(
    start: Start, authority: Pki, tmp_path: Path, when: str
) -> None:
    name = f"server {when}".replace(" ", "-")
    dates: dict[str, dict[str, Any]] = {"expired": {"days": -1}, "not yet valid": {"later": True}}
    own = authority.issue(name, f"/CN={name}", names="DNS:localhost", **dates.get(when, {}))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.trusted.read_bytes() + (authority.revocations(own) if when == "revoked" else b""))
    server = start(sections(authority, certFile=own.certificate, privateKeyFile=own.key))
    place = {"host": "localhost", "port": server.ports["tls"], "sslProfile": "p", "role": "route-container"}
    client = start([("sslProfile", {"name": "p", "caCertFile": trusted}), ("connector", place), listener()])
    reason = {"expired": "certificate has expired", "not yet valid": "certificate is not yet valid"}
    text = reason.get(when, "certificate revoked")
    client.wait_log(rf"Connection to localhost:\d+ failed: .*SSL Failure: .*certificate verify failed: {text}")
    assert "Connection Opened: dir=out" not in client.log


def test_certificate_revoked_at_runtime_is_refused(start: Start, authority: Pki, tmp_path: Path) -> None:
    """The revocation list applies to new connections, HTTPS and resumed sessions; open connections stay."""
    one, other = (authority.issue(f"revocable-{n}", f"/CN=revocable-{n}") for n in (1, 2))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.trusted.read_bytes())
    router = start(sections(authority, caCertFile=trusted), 3)
    context = authority.context(one)
    before = open_over_tls(router, authority, "mutual", one, context=context)
    assert https(router, authority, one).startswith(b"HTTP/1.1 ")
    assert isinstance(before.socket, ssl.SSLSocket)
    session = before.socket.session

    new = tmp_path / "new"
    new.write_bytes(authority.trusted.read_bytes() + authority.revocations(one))
    os.replace(new, trusted)
    router.wait_log("sslProfile 'p': new credentials are in use")
    with pytest.raises(REFUSED):
        open_over_tls(router, authority, "mutual", one)
    with pytest.raises(REFUSED):
        https(router, authority, one)
    with pytest.raises(REFUSED):
        open_over_tls(router, authority, "mutual", one, context=context, session=session)
    open_over_tls(router, authority, "mutual", other).drop()
    assert https(router, authority, other).startswith(b"HTTP/1.1 ")
    before.barrier()
    before.drop()


def test_certificate_without_user_is_refused(start: Start, authority: Pki) -> None:
    """Policy treats a certificate with host names only as one without a user."""
    nameless = authority.issue("nameless", "/", names="DNS:somebody.example")
    router = start(sections(authority))
    with open_over_tls(router, authority, "mutual", nameless) as peer:
        assert peer.expect_close() == ("amqp:unauthorized-access", "the certificate names no user")
    fingerprint = start(sections(authority, uidFormat="2"))
    with open_over_tls(fingerprint, authority, "mutual", nameless) as peer:
        peer.barrier()


def test_revoked_intermediate_authority_is_refused(start: Start, authority: Pki, tmp_path: Path) -> None:
    """Revocation lists apply to the whole chain, and each authority in it needs one."""
    below = authority.below("intermediate")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(below.client.certificate.read_bytes() + below.trusted.read_bytes())
    client = Issued(chain, below.client.key)
    trusted, new = tmp_path / "trusted.pem", tmp_path / "new"
    own = below.revocations()

    def trust(*lists: bytes) -> None:
        new.write_bytes(b"".join([authority.trusted.read_bytes(), *lists]))
        os.replace(new, trusted)

    trust(authority.revocations(), own)
    router = start(sections(authority, caCertFile=trusted))
    open_over_tls(router, authority, "mutual", client).drop()
    assert https(router, authority, client).startswith(b"HTTP/1.1 ")
    for count, lists in enumerate(([own], [authority.revocations(below.authority), own]), start=1):
        trust(*lists)
        text = "sslProfile 'p': new credentials are in use"
        # Ruff B023: the lambda is called before the next iteration.
        poll(lambda: router.log.count(text) == count, "the lists are in use")  # noqa: B023
        with pytest.raises(REFUSED):
            open_over_tls(router, authority, "mutual", client)
        with pytest.raises(REFUSED):
            https(router, authority, client)


def test_session_of_expired_certificate_is_not_resumed(start: Start, authority: Pki) -> None:
    """A client cannot resume a session after its certificate has expired."""
    router = start(sections(authority))
    until = datetime.now(tz=UTC) + timedelta(seconds=LIFETIME_SECONDS)
    context = authority.context(authority.issue("brief", "/CN=brief", until=until))
    first = open_over_tls(router, authority, "mutual", authority.client, context=context)
    assert isinstance(first.socket, ssl.SSLSocket)
    session = first.socket.session
    again = open_over_tls(router, authority, "mutual", authority.client, context=context, session=session)
    assert isinstance(again.socket, ssl.SSLSocket)
    assert again.socket.session_reused
    poll(
        lambda: datetime.now(tz=UTC) > until + timedelta(seconds=1),
        "the certificate has expired",
        2.0 * LIFETIME_SECONDS,
    )
    with pytest.raises(REFUSED):
        open_over_tls(router, authority, "mutual", authority.client, context=context, session=session)
    router.wait_log("SSL Failure: certificate has expired")
    for peer in (first, again):
        peer.barrier()
        peer.drop()


@pytest.mark.disturbs("a worker is killed")
def test_worker_killed_during_handshake_is_replaced(start: Start, authority: Pki) -> None:
    router = start(sections(authority), 3)
    with dial(router, "mutual") as shaking:
        shaking.sendall(greeting()[:100])
        victim = router.worker_of(shaking.getsockname()[1])
        assert victim in router.worker_pids()
        os.kill(victim, signal.SIGKILL)
        wait_end(shaking)
    poll(lambda: victim not in router.worker_pids() and len(router.worker_pids()) == 3, "the worker is replaced")
    peers: list[AmqpPeer] = []

    def all_serve() -> bool:
        """Connect, and return whether all workers have connections; new ones are spread over the ready workers."""
        peers.append(open_over_tls(router, authority))
        return {router.worker_of(peer.socket.getsockname()[1]) for peer in peers} == set(router.worker_pids())

    poll(all_serve, "the new worker has credentials, too", 30.0)
    for peer in peers:
        peer.drop()


def test_invalid_name_mapping_file_keeps_the_names(start: Start, authority: Pki, tmp_path: Path) -> None:
    """The names before stay in use and the log reports the error, until the file is valid again."""
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"127.0.0.1": "alice"}))
    router = start(sections(authority, uidFormat="n", uidNameMappingFile=names))

    def user() -> str:
        """Return the user of a new connection, as management shows it."""
        peer, own = open_over_tls(router, authority, "mutual", authority.client), AmqpPeer.opened(router.ports[""])
        rows = Management(own).query("connection")
        peer.drop()
        own.drop()
        return str(next(row["user"] for row in reversed(rows) if row["sasl"] == "EXTERNAL"))

    assert user() == "alice"
    no_names = "it is not a JSON object with names as values"
    for broken, reason in (("{", "unexpected end of data"), ('{"127.0.0.1": 7}', no_names)):
        names.write_text(broken)
        router.wait_log(
            rf"DISPLAYNAME \(error\) sslProfile 'p': uidNameMappingFile \S+: {reason}.*; the previous names"
        )
        assert user() == "alice"
    names.unlink()
    router.wait_log(r"DISPLAYNAME \(error\) sslProfile 'p': uidNameMappingFile \S+: No such file or directory")
    assert user() == "alice"
    names.write_text(json.dumps({"127.0.0.1": "ann"}))
    poll(lambda: user() == "ann", "the new names count")
