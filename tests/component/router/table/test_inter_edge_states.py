"""Delivery states and lists of served edge routers in one ring record, between the workers of an edge router."""

from typing import Any

import pytest

from tests.component.engine.host import InProcessRouter
from tests.component.engine.network import IgnoringObserver, RouterConnection
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, messages, of, producer, say, settle, start
from tests.peer.types import Described, UInt, ULong

TRANSACTIONAL = Described(ULong(0x34), [b"txn" * 5])
SIZE = 200_000  # octets: a stream of which more arrives in the read that begins it
PART = 15_000
STATE_FROM = 150_000  # octets: after the position at which the stream begins to leave
SHARED = """
router {
    mode: edge
    id: %(id)s
}
listener {
    name: main
    host: 127.0.0.1
    port: 0
    idleTimeoutSeconds: 0
}
address {
    prefix: multicast
    distribution: multicast
}
%(more)s
"""
LISTENER = """
listener {
    name: between
    host: 127.0.0.1
    port: 1
    role: inter-edge
    idleTimeoutSeconds: 0
}
"""
CONNECTOR = """
connector {
    name: to
    host: peer.example
    port: 1
    role: inter-edge
    idleTimeoutSeconds: 0
}
"""


@pytest.fixture(params=[1, 3], ids=["one-worker", "three-workers"])
def edges(request, networks):
    """Return a network of two edge routers, A and B, with an inter-edge connection. A has one or three workers."""
    network = networks("")
    network.routers["A"] = InProcessRouter(request.param, SHARED % {"id": "A", "more": LISTENER})
    network.routers["B"] = InProcessRouter(1, SHARED % {"id": "B", "more": CONNECTOR})
    (connector,) = network["B"].configuration.connectors
    joint = RouterConnection(
        network, network["B"].initiate(0, connector, IgnoringObserver()), network["A"].connect(0, "between")
    )
    network.joints.append(joint)
    network.settle()
    return network


def client(network, router, worker, *octets):
    peer = network[router].connect(worker)
    peer.feed(start(max_frame_size=UInt(16384)) + b"".join(octets))
    network.settle()
    frames(peer)
    return peer


def stream(body, state):
    """Encode one delivery in many frames, the last of which have a state."""
    parts = [body[at : at + PART] for at in range(0, len(body), PART)]
    first: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"t", "message_format": 0}
    return b"".join(
        say(
            "transfer",
            payload=part,
            handle=0,
            more=number < len(parts) - 1,
            state=state if number * PART >= STATE_FROM else None,
            **({} if number else first),
        )
        for number, part in enumerate(parts)
    )


@pytest.mark.parametrize("state", [TRANSACTIONAL, ACCEPTED], ids=["transactional", "accepted"])
def test_state_before_first_record_with_served_routers_keeps_message(edges, state):
    workers = len(edges["A"].workers)
    receiving = [client(edges, "B", 0, consumer(0, "multicast.a"))]
    receiving += [client(edges, "A", worker, consumer(0, "multicast.a")) for worker in range(workers)]
    edges.pass_seconds(5)
    sending = client(edges, "A", workers - 1, producer(0, "multicast.a"))
    body = message(b"x" * SIZE)
    sending.feed(stream(body, state))
    edges.settle()
    for peer in receiving:
        heard = frames(peer)
        assert messages(heard) == [body]
        assert not of(heard, "close")
        peer.feed(settle(of(heard, "transfer")[0].delivery_id, state=ACCEPTED))
    edges.settle()
    reports = of(frames(sending), "disposition")
    assert reports[-1].settled
    assert reports[-1].state == ACCEPTED
