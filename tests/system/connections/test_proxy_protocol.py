"""Listeners behind proxies that send the PROXY protocol header with the client's address."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peer import proxy_headers as proxy
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Pki, pki
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

PROXY, STRANGER = "127.0.0.2", "127.0.0.3"
CLIENT = ("192.0.2.7", 40000)
EVERYTHING = {"users": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "proxied")


@pytest.fixture
def router(start: Start, authority: Pki, workers: int) -> RouterProcess:
    files = {
        "certFile": authority.server.certificate,
        "privateKeyFile": authority.server.key,
        "caCertFile": authority.trusted,
    }
    groups = {
        "far": {**EVERYTHING, "remoteHosts": "192.0.2.0-192.0.2.255"},
        "near": {**EVERYTHING, "remoteHosts": "127.0.0.0-127.0.0.255"},
    }
    sections: list[Section] = [
        ("sslProfile", {"name": "p", **files}),
        listener(),
        listener("plain", proxyNetworks=f"{PROXY}, 10.0.0.0/8"),
        listener("tls", proxyNetworks=PROXY, sslProfile="p", requireSsl=True),
        listener("web", proxyNetworks=PROXY, http=True, allowedOrigins="*"),
        listener("policed", proxyNetworks=PROXY, policyVhost="far"),
        ("policy", {"enableVhostPolicy": True}),
        ("vhost", {"hostname": "$default", "groups": {"all": {**EVERYTHING, "remoteHosts": "*"}}}),
        ("vhost", {"hostname": "far", "groups": {"far": groups["far"]}}),
    ]
    return start(sections, workers)


@pytest.fixture
def management(router: RouterProcess) -> Iterator[Management]:
    with AmqpPeer.opened(router.port) as own:
        yield Management(own)


def dial(router: RouterProcess, name: str, source: str = PROXY) -> socket.socket:
    return socket.create_connection(("127.0.0.1", router.ports[name]), timeout=10, source_address=(source, 0))


def host_of(management: Management, container: str) -> str:
    return str(management.one("connection", container=container)["host"])


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (proxy.text(*CLIENT), "192.0.2.7:40000"),
        (proxy.binary(*CLIENT), "192.0.2.7:40000"),
        (proxy.binary("2001:db8::7", 40000), "2001:db8::7:40000"),
        (proxy.binary(*CLIENT, proxy.addition(0x02, b"x" * 3000)), "192.0.2.7:40000"),
        (b"PROXY UNKNOWN\r\n", PROXY),
        (proxy.binary(None), PROXY),
    ],
)
def test_client_address_of_header_is_shown(
    router: RouterProcess, management: Management, header: bytes, client: str
) -> None:
    opened = dial(router, "plain")
    opened.sendall(header)
    with AmqpPeer(opened) as peer:
        peer.open(container_id="forwarded")
        assert host_of(management, "forwarded").startswith(client)


def test_header_in_single_octets_is_read_before_amqp(router: RouterProcess, management: Management) -> None:
    opened = dial(router, "plain")
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    header = proxy.text(*CLIENT)
    for octet in header[:-1]:
        opened.sendall(bytes([octet]))
    with AmqpPeer(opened) as peer:
        peer.raw(header[-1:])
        peer.open(container_id="pieces")
        assert host_of(management, "pieces") == "192.0.2.7:40000"


def test_header_from_untrusted_host_is_not_read(router: RouterProcess, management: Management) -> None:
    with AmqpPeer(dial(router, "plain", STRANGER)) as peer:
        peer.open(container_id="direct")
        assert host_of(management, "direct").startswith(STRANGER)
    with dial(router, "plain", STRANGER) as liar:
        liar.sendall(proxy.text(*CLIENT))
        while liar.recv(100):  # the router's header and error, sent before it has recognised the octets as no AMQP
            pass


def test_tls_after_the_header_works(router: RouterProcess, management: Management, authority: Pki) -> None:
    opened = dial(router, "tls")
    opened.sendall(proxy.binary(*CLIENT))
    secured = authority.context().wrap_socket(opened, server_hostname="localhost")
    assert isinstance(secured, ssl.SSLSocket)
    with AmqpPeer(secured) as peer:
        peer.open(container_id="secured")
        assert host_of(management, "secured") == "192.0.2.7:40000"


def test_http_after_the_header_works(router: RouterProcess) -> None:
    opened = dial(router, "web")
    opened.sendall(proxy.text(*CLIENT) + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert opened.recv(100).startswith(b"HTTP/1.1 200 ")
    opened.close()


def test_policy_uses_the_client_address(router: RouterProcess) -> None:
    for header, allowed in ((proxy.text(*CLIENT), True), (proxy.text("198.51.100.1", 1), False)):
        opened = dial(router, "policed")
        opened.sendall(header)
        with AmqpPeer(opened) as peer:
            peer.open()
            if allowed:
                peer.barrier()
            else:
                assert peer.expect_close() is not None


@pytest.mark.parametrize(
    "octets", [b"AMQP\x03\x01\x00\x00", b"PROXY TCP4 x\r\n", proxy.SIGNATURE + b"\x31\x11\x00\x00"]
)
@pytest.mark.parametrize("name", ["plain", "web"])
def test_proxy_with_invalid_header_is_closed(router: RouterProcess, name: str, octets: bytes) -> None:
    opened = dial(router, name)
    opened.sendall(octets)
    assert _ended(opened)
    router.wait_log(rf"Connection from proxy {PROXY} \(to .*\) closed: PROXY protocol: ")


def test_proxy_without_header_is_closed_after_timeout(router: RouterProcess) -> None:
    opened = dial(router, "plain")
    poll(lambda: "no header within 5 seconds" in router.log, "the connection is closed", 10)
    assert _ended(opened)


def _ended(opened: socket.socket) -> Any:
    with opened:
        try:
            return opened.recv(1) == b""
        except ConnectionResetError:
            return True


def test_invalid_proxy_networks_prevent_the_start(start: Start, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="proxyNetworks: 'nowhere' is neither an address nor a network"):
        start([listener(proxyNetworks="10.0.0.0/8, nowhere")])
