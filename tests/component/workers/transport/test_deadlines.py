"""Deadlines of a connection before it is a WebSocket: each state that waits for the client ends, on a virtual clock."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.router.websocket.origins import OriginPolicy
from sluice.workers.transport.tcp import TcpTransport
from sluice.workers.transport.websocket import ServerSide, WebSocketTransport
from tests.component.workers.loops import SocketPeer, SocketRouter

HANDSHAKE_MS = 10_000
ANSWER_MS = 30_000  # ms after which the supervisor abandons an answer
PAGE_MS = 35_000
PAGE = b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n"
MUCH = bytes(1 << 20)  # more octets than any socket takes without a reader


class WebRouter(SocketRouter):
    """Router whose clients speak HTTP or WebSocket. `pages`: the supervisor's ends of the answers."""

    def __init__(self) -> None:
        self.pages: list[socket.socket] = []
        super().__init__(1)
        (worker,) = self.workers
        worker.transport = self.make

    def make(self, loop: Any, descriptor: int, connection: Any) -> Any:
        below = TcpTransport(loop, descriptor, connection)
        return WebSocketTransport(loop, descriptor, connection, below, ServerSide(OriginPolicy(""), False, self.answer))

    def answer(self, request: bytes) -> int:
        """Return the descriptor from which the answer to a page request is read."""
        assert request == PAGE
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.pages.append(ours)
        return theirs.detach()

    def close(self) -> None:
        super().close()
        for page in self.pages:
            page.close()


@pytest.fixture
def router() -> Iterator[WebRouter]:
    made = WebRouter()
    yield made
    made.close()


def write(page: socket.socket, octets: bytes) -> int:
    """Write as many octets of a page as the socket takes; return their number."""
    try:
        return page.send(octets)
    except BlockingIOError:
        return 0


def request_page(router: WebRouter) -> tuple[SocketPeer, socket.socket]:
    """Connect a client that requests a page; return it and the supervisor's end of the answer."""
    peer: Any = router.connect()
    peer.feed(PAGE)
    router.settle()
    return peer, router.pages[-1]


def is_open(peer: SocketPeer) -> bool:
    """True if the worker has not closed the connection."""
    return peer.number in peer.worker.clients


@pytest.mark.parametrize("octets", [b"", b"GET", PAGE[:-1], b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n"])
def test_incomplete_request_closes_connection_at_deadline(router, octets):
    peer = router.connect()
    if octets:
        peer.feed(octets)
    router.pass_time(HANDSHAKE_MS - 1)
    assert is_open(peer)
    router.pass_time(2)
    assert not is_open(peer)


@pytest.mark.parametrize("abandoned", [False, True])
def test_unread_page_closes_connection_at_deadline(router, abandoned):
    peer, page = request_page(router)
    while write(page, MUCH):
        router.settle()
    router.pass_time(ANSWER_MS)
    assert is_open(peer)
    if abandoned:
        page.close()
    router.pass_time(PAGE_MS - ANSWER_MS - 1)
    assert is_open(peer)
    router.pass_time(2)
    assert not is_open(peer)


def test_page_without_octets_closes_connection_at_deadline(router):
    peer, page = request_page(router)
    router.pass_time(PAGE_MS - 1)
    assert is_open(peer)
    router.pass_time(2)
    assert not is_open(peer)
    assert page.recv(1) == b"", "the supervisor is notified"


def test_slowly_read_page_is_completed(router):
    peer, page = request_page(router)
    sent = received = 0
    for _ in range(20):
        sent += write(page, MUCH)
        router.pass_time(1000)
        received += len(peer.take())
    page.close()
    while not peer.gone:
        router.settle()
        received += len(peer.take())
    assert received == sent > 0
    assert not is_open(peer)


def test_deadline_of_ended_page_spares_next_connection(router):
    peer, page = request_page(router)
    page.close()
    router.settle()
    assert not is_open(peer)
    router.pass_time(HANDSHAKE_MS - 1)
    following, _ = request_page(router)
    router.pass_time(PAGE_MS - 1)
    assert is_open(following)
    router.pass_time(2)
    assert not is_open(following)
