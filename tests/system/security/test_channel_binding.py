"""SCRAM with channel binding: logins over TLS that an interceptor cannot relay."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.router.sasl.scram import ScramClient
from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import make
from tests.peer.frames import SASL_HEADER
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Pki, pki
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener

BOUND = ["SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS"]
NO_EXTENDED_MASTER_SECRET = 1  # SSL_OP_NO_EXTENDED_MASTER_SECRET of OpenSSL
SCRAM = ["SCRAM-SHA-512", "SCRAM-SHA-256"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "binding")


def profile(made: Pki, **attributes: object) -> Section:
    own = {"certFile": made.server.certificate, "privateKeyFile": made.server.key, "caCertFile": made.trusted}
    return "sslProfile", {"name": "p", **own, **attributes}


@pytest.fixture
def server(start: Start, made: Pki, tmp_path: Path) -> RouterProcess:
    """Start a router with listeners over TLS: `all`, `bound` (binding only), `unbound`; and a plain one."""
    users = Users({}, b"k" * 32).with_user("guest", [make(name, "secret", 4096) for name in SCRAM])
    (tmp_path / "users").write_text(users.text())
    shared = {"sslProfile": "p", "saslUsers": "u", "authenticatePeer": True}
    return start(
        [
            profile(made),
            ("saslUsers", {"name": "u", "file": tmp_path / "users"}),
            listener("all", **shared),
            listener("bound", saslMechanisms=" ".join(BOUND), **shared),
            listener("unbound", saslMechanisms=" ".join(SCRAM), **shared),
            listener("web", http=True, **{**shared, "authenticatePeer": False}),
            listener(),
        ],
        3,
    )


def connect_tls(
    server: RouterProcess, made: Pki, name: str, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, options: int = 0
) -> AmqpPeer:
    context = made.context()
    context.maximum_version = version
    context.options |= options
    dialled = socket.create_connection(("127.0.0.1", server.ports[name]), timeout=10)
    return AmqpPeer(context.wrap_socket(dialled, server_hostname="localhost"))


def offered_mechanisms(peer: AmqpPeer) -> list[str]:
    assert peer.header(SASL_HEADER) == SASL_HEADER
    return [str(name) for name in peer.expect("sasl-mechanisms").sasl_server_mechanisms]


def test_binding_mechanisms_are_offered_over_tls_only(server: RouterProcess, made: Pki) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with connect_tls(server, made, "all", version) as peer:
            assert offered_mechanisms(peer) == [*BOUND, *SCRAM, "PLAIN"]
    with AmqpPeer(server.ports["all"]) as peer:
        assert offered_mechanisms(peer) == [*SCRAM, "PLAIN"]
    with connect_tls(server, made, "all", ssl.TLSVersion.TLSv1_2, NO_EXTENDED_MASTER_SECRET) as peer:
        assert offered_mechanisms(peer) == [*SCRAM, "PLAIN"]
    with connect_tls(server, made, "bound") as peer:
        assert offered_mechanisms(peer) == BOUND
    with connect_tls(server, made, "unbound") as peer:
        assert offered_mechanisms(peer) == SCRAM


@pytest.mark.parametrize(
    ("mechanism", "change", "reason"),
    [
        ("SCRAM-SHA-256", (b"n,,", b"y,,"), "the client has not seen the offer of channel binding"),
        ("SCRAM-SHA-256-PLUS", (b"n,,", b"n,,"), "the mechanism has a channel binding, and the client sends none"),
        ("SCRAM-SHA-256-PLUS", (b"n,,", b"p=tls-unique,,"), "the channel binding is not tls-exporter"),
    ],
)
def test_client_with_wrong_binding_flag_is_refused(
    server: RouterProcess, made: Pki, mechanism: str, change: tuple[bytes, bytes], reason: str
) -> None:
    first = ScramClient("SCRAM-SHA-256", "guest", "secret").response.replace(*change, 1)
    with connect_tls(server, made, "all") as peer:
        offered_mechanisms(peer)
        peer.frame("sasl-init", mechanism=mechanism, initial_response=first)
        assert peer.expect("sasl-outcome").code == 1
    server.wait_log(reason)


def connector(server: RouterProcess, port: int, made: Pki, **attributes: object) -> list[Section]:
    place = {"host": "localhost", "port": port, "sslProfile": "p", "role": "route-container"}
    login = {"saslUsername": "guest", "saslPassword": "pass:secret"}
    return [profile(made), ("connector", {**place, **login, **attributes}), listener()]


@pytest.mark.parametrize(
    ("name", "version", "attributes", "mechanism"),
    [
        ("all", "TLSv1.3", {}, "SCRAM-SHA-512-PLUS"),
        ("all", "TLSv1.2", {}, "SCRAM-SHA-512-PLUS"),
        ("all", "TLSv1.3", {"saslMechanisms": "SCRAM-SHA-256-PLUS PLAIN"}, "SCRAM-SHA-256-PLUS"),
        ("all", "TLSv1.3", {"saslMechanisms": "SCRAM-SHA-256"}, "SCRAM-SHA-256"),
        ("bound", "TLSv1.3", {}, "SCRAM-SHA-512-PLUS"),
        ("unbound", "TLSv1.3", {}, "SCRAM-SHA-512"),
        ("web", "TLSv1.3", {"websockets": True}, "SCRAM-SHA-512-PLUS"),
    ],
)
def test_connector_uses_offered_channel_binding(
    start: Start,
    server: RouterProcess,
    made: Pki,
    name: str,
    version: str,
    attributes: dict[str, object],
    mechanism: str,
) -> None:
    _, *rest = connector(server, server.ports[name], made, **attributes)
    client = start([profile(made, protocols=version), *rest])
    client.wait_log(rf"Connection Opened: dir=out host=localhost:\d+ vhost= encrypted={version} auth={mechanism} ")
    with AmqpPeer.opened(server.port) as peer:
        (row,) = [row for row in Management(peer).query("connection") if row["user"] == "guest"]
    assert (row["sasl"], row["isAuthenticated"]) == (mechanism, True)


class TlsInterceptor:
    """A TLS relay between client and server whose certificate the client trusts."""

    def __init__(self, made: Pki, port: int, change: tuple[bytes, bytes] | None) -> None:
        """Listen for the client. change: octets to replace, and their replacement, in the server's output."""
        self._made, self._to, self._change = made, port, change
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        inner = self._made.server_context(self._made.server)
        outer = self._made.context()
        while True:
            try:
                accepted = self._socket.accept()[0]
            except OSError:
                return
            here = inner.wrap_socket(accepted, server_side=True)
            dialled = socket.create_connection(("127.0.0.1", self._to), timeout=30)
            there = outer.wrap_socket(dialled, server_hostname="localhost")
            for source, sink, change in ((here, there, None), (there, here, self._change)):
                threading.Thread(target=_pump, args=(source, sink, change), daemon=True).start()


def _pump(source: ssl.SSLSocket, sink: ssl.SSLSocket, change: tuple[bytes, bytes] | None) -> None:
    with contextlib.suppress(OSError):
        while octets := source.recv(65536):
            sink.sendall(octets if change is None else octets.replace(*change))
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def intercepted(made: Pki, server: RouterProcess, name: str, change: tuple[bytes, bytes] | None) -> Iterator[int]:
    between = TlsInterceptor(made, server.ports[name], change)
    yield between.port
    between.close()


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("all", None, "the channel binding differs from that of the first message"),
        ("all", (b"-PLUS", b"-LESS"), "the client has not seen the offer of channel binding"),
        ("unbound", None, None),
    ],
)
def test_interceptor_with_trusted_certificate_is_detected(
    start: Start, server: RouterProcess, made: Pki, name: str, change: tuple[bytes, bytes] | None, reason: str | None
) -> None:
    """The last case shows that the attack succeeds without binding."""
    with intercepted(made, server, name, change) as port:
        client = start(connector(server, port, made))
        if reason is None:
            client.wait_log(r"Connection Opened: dir=out host=localhost:\d+ .* auth=SCRAM-SHA-512 ")
        else:
            server.wait_log(reason)
            client.wait_log(r"Authentication failed \[mech=SCRAM-SHA-512")
            assert "Connection Opened: dir=out" not in client.log
