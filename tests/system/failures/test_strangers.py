"""Host with silent connections at the connection limit: clients of other hosts are served (threat-model.md)."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.router import listener, poll

pytestmark = [
    pytest.mark.adversarial,
    pytest.mark.disturbs("all connections of the router are limited, and taken"),
]

LIMIT = 20
HOSTILE = "127.0.0.66"


def dial(port: int, host: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(host, 0))


def test_silent_host_at_the_limit_is_evicted_for_others(start: Start, workers: int) -> None:
    router = start([("policy", {"maxConnections": LIMIT}), listener(initialHandshakeTimeoutSeconds=0)], workers)
    with ExitStack() as stack:
        silent = [stack.enter_context(dial(router.port, HOSTILE)) for _ in range(LIMIT)]
        poll(lambda: router.log.count("Accepted connection") == LIMIT, "all connections are accepted")
        peers = []
        for number in range(LIMIT - 1):
            peer = stack.enter_context(AmqpPeer(dial(router.port, f"127.0.0.{number + 2}")))
            peer.open()
            peers.append(peer)
        for peer in peers:
            peer.barrier()
        assert router.log.count("dropped before its open: the limit of connections is reached") == LIMIT - 1
        last = dial(router.port, "127.0.0.99")  # both hosts now have equally many connections
        assert last.recv(1) == b""
        last.close()
        gone = [each for each in silent if _ended(each)]
        assert len(gone) == LIMIT - 1
        assert silent[0] in gone


def _ended(opened: socket.socket) -> bool:
    opened.setblocking(False)
    try:
        return opened.recv(1) == b""
    except BlockingIOError:
        return False
