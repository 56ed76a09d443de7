"""Socket of the blocking client, connected to a socket of this process."""

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from sluice.router.client.tls import Tls
from sluice.router.client.transport import ClientSocket, open_socket
from tests.peer.pki import Pki, pki

PATIENCE = 10.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        yield listening


@pytest.fixture
def connected(listener: socket.socket) -> Iterator[tuple[ClientSocket, socket.socket]]:
    """Client without TLS, and its peer."""
    client = open_socket("127.0.0.1", listener.getsockname()[1], PATIENCE, None, "")
    peer, _ = listener.accept()
    peer.settimeout(PATIENCE)
    with closing(client), peer:
        yield client, peer


def wait_readable(client: ClientSocket) -> None:
    assert select.select([client], [], [], PATIENCE)[0]


def test_read_tells_nothing_from_end(connected: tuple[ClientSocket, socket.socket]) -> None:
    client, peer = connected
    assert client.read() is None
    peer.sendall(b"octets")
    wait_readable(client)
    assert client.read() == b"octets"
    peer.shutdown(socket.SHUT_WR)
    wait_readable(client)
    assert client.read() == b""


def test_write_to_peer_that_does_not_read_returns_zero(connected: tuple[ClientSocket, socket.socket]) -> None:
    client, peer = connected
    octets = memoryview(bytes(1 << 16))
    written = 0
    while sent := client.write(octets):
        written += sent
    while written:
        written -= len(peer.recv(1 << 16))
    assert select.select([], [client], [], PATIENCE)[1]
    assert client.write(octets) > 0


def test_answers_are_read_after_end_of_output(connected: tuple[ClientSocket, socket.socket]) -> None:
    client, peer = connected
    client.write(memoryview(b"last"))
    client.end_output()
    client.end_output()
    assert (peer.recv(100), peer.recv(100)) == (b"last", b"")
    peer.sendall(b"answer")
    wait_readable(client)
    assert client.read() == b"answer"


def test_end_of_output_after_reset_is_no_error(connected: tuple[ClientSocket, socket.socket]) -> None:
    client, peer = connected
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close resets the connection
    peer.close()
    wait_readable(client)
    with pytest.raises(ConnectionResetError):
        client.read()
    client.end_output()


def test_octets_are_exchanged_over_tls(listener: socket.socket, authority: Pki) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.server)

    def echo() -> None:
        accepted, _ = listener.accept()
        accepted.settimeout(PATIENCE)
        with accepted, server.wrap_socket(accepted, server_side=True) as peer:
            peer.sendall(peer.recv(100))

    thread = threading.Thread(target=echo)
    thread.start()
    context = Tls(ca_file=authority.trusted).context()
    client = open_socket("127.0.0.1", listener.getsockname()[1], PATIENCE, context, "localhost")
    with closing(client):
        assert client.read() is None
        client.write(memoryview(b"octets"))
        while (octets := client.read()) is None:
            wait_readable(client)
        assert octets == b"octets"
    thread.join()


def test_silent_tls_peer_times_out(listener: socket.socket) -> None:
    with pytest.raises(TimeoutError):
        open_socket("127.0.0.1", listener.getsockname()[1], 0.05, Tls().context(), "localhost")
