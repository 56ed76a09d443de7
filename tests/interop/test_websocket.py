"""Third-party clients over WebSocket: rhea with ws, Qpid JMS (amqpws), and wsproto as a strict reader of frames."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import wsproto
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request

from tests.interop.conftest import ClientLauncher
from tests.peer.pki import Pki, pki
from tests.system.router import RouterProcess, Section, listener

COUNT = 500


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def router(authority: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    """Router with WebSocket listeners and a plain one."""
    certificate, key = authority.server
    sections: list[Section] = [
        ("sslProfile", {"name": "p", "certFile": certificate, "privateKeyFile": key}),
        listener(),
        listener("web", http=True),
        listener("secure", http=True, sslProfile="p", requireSsl=True),
    ]
    started = RouterProcess(tmp_path_factory.mktemp("websocket"), sections, 3)
    started.start()
    yield started
    started.stop()


def test_rhea_sends_and_receives(router: RouterProcess, rhea: ClientLauncher) -> None:
    web = f"ws://127.0.0.1:{router.ports['web']}/any/path"
    for into, out in ((web, web), (str(router.port), web), (web, str(router.port))):
        receiver = rhea("receive", into, "websocket/rhea", COUNT)
        assert rhea("send", out, "websocket/rhea", COUNT).result()["accepted"] == COUNT
        assert receiver.result() == [{"sequence": n} for n in range(COUNT)]


def test_rhea_over_tls_sends_and_receives(router: RouterProcess, rhea: ClientLauncher, authority: Pki) -> None:
    web = f"wss://localhost:{router.ports['secure']}/?ca={authority.trusted}"
    receiver = rhea("receive", web, "websocket/tls", COUNT)
    assert rhea("send", web, "websocket/tls", COUNT).result()["accepted"] == COUNT
    assert receiver.result() == [{"sequence": n} for n in range(COUNT)]


def test_jms_sends_and_receives(router: RouterProcess, jms: ClientLauncher) -> None:
    web = f"amqpws://127.0.0.1:{router.ports['web']}/?amqp.saslMechanisms=ANONYMOUS"
    assert jms("each", "websocket/jms", 50, web).result() == ["50"]


def test_wsproto_accepts_router_frames(router: RouterProcess) -> None:
    """wsproto checks the router's frames strictly and offers compression, which the router declines."""
    client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
    extensions = [wsproto.extensions.PerMessageDeflate()]
    with socket.create_connection(("127.0.0.1", router.ports["web"]), 10) as raw:
        raw.sendall(client.send(Request(host="localhost", target="/", subprotocols=["amqp"], extensions=extensions)))
        found: list[object] = []

        def read(count: int) -> None:
            while len(found) < count:
                octets = raw.recv(65536)
                client.receive_data(octets or None)
                found.extend(client.events())

        read(1)
        accepted = found[0]
        assert isinstance(accepted, AcceptConnection)
        assert (accepted.subprotocol, accepted.extensions) == ("amqp", [])
        raw.sendall(client.send(Ping(payload=b"there?")))
        raw.sendall(client.send(BytesMessage(data=b"AMQP\x03\x01\x00\x00", message_finished=True)))
        read(3)
        assert Pong(payload=b"there?") in [Pong(payload=bytes(e.payload)) for e in found if isinstance(e, Pong)]
        (header,) = [event for event in found if isinstance(event, BytesMessage)]
        assert bytes(header.data).startswith(b"AMQP\x03\x01\x00\x00")
        raw.sendall(client.send(CloseConnection(code=1000)))
        read(4)
        assert isinstance(found[-1], CloseConnection)
        assert found[-1].code == 1000
