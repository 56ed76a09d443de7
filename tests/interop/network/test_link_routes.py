"""Routed links over three routers with 1.19 in the middle (inter-router.md 12, brokers-and-edge.md 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.interop.network.conftest import ChainNetwork
from tests.peer import frames, message
from tests.peer.container import Container, accept, refuse
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.peer.types import Symbol

WORKER_COUNTS = (1, 3)
Fresh = Callable[..., str]
LOST = ("qd:routed-link-lost", "Connectivity to the peer container was lost")
NO_ROUTE = ("qd:no-route-to-dest", "No route to the destination node")


@pytest.fixture
def broker(chain: ChainNetwork) -> Iterator[Container]:
    """Route container at B; A knows its link routes."""
    broker = chain.b.container("broker")
    for key in ("Clr", "Dlr", "Elp.*.x.#"):
        chain.a.wait_remote(key, "B")
    yield broker
    broker.drop()
    chain.b.drop_peers()
    for key in ("Clr", "Dlr", "Elp.*.x.#"):
        chain.a.wait_remote(key)


def attach_routed(
    chain: ChainNetwork, broker: Container, receiver: bool, address: str, name: str
) -> tuple[AmqpPeer, PeerSender | PeerReceiver]:
    """Attach a client of A, and wait until the broker has the session for the link."""
    client = chain.a.client(container_id="client")
    link: PeerSender | PeerReceiver
    if receiver:
        link = client.receiver(address, wait=False, name=name)
    else:
        link = client.sender(address, wait=False, credit=False, name=name)
    broker.session_begun()
    return client, link


def test_link_route_keys_are_announced(chain: ChainNetwork, broker: Container) -> None:
    keys = chain.m.engine.nodes["B"].keys
    assert {key: keys[key] for key in ("Clr", "Dlr", "Elp.*.x.#")} == {"Clr": 4, "Dlr": 4, "Elp.*.x.#": 4}


def test_routed_sender_is_relayed(chain: ChainNetwork, broker: Container, fresh: Fresh) -> None:
    name = fresh("link")
    _client, link = attach_routed(chain, broker, False, "lr.in", name)
    assert isinstance(link, PeerSender)
    there = broker.link_attached(answer=False)
    assert isinstance(there, PeerReceiver)
    assert there.name == f"{name}@client"
    assert there.target["address"] == "lr.in"
    assert link.remote is None
    accept(there)
    link.wait_attached()
    assert link.target["address"] == "lr.in"
    assert link.credit == 0
    there.flow(5)
    assert link.wait_credit(5) == 5
    number = link.send(message.message("x"), tag=b"a tag of thirty-two octets......")
    got = there.next()
    assert got.tag == b"a tag of thirty-two octets......"
    assert got.payload == message.message("x")
    got.settle(frames.modified(False, True, {Symbol("k"): "v"}))
    outcome = link.outcome(number)
    assert outcome.state == frames.modified(False, True, {Symbol("k"): "v"})
    there.flow(7)
    assert link.wait_credit(7) == 7


def test_routed_receiver_is_relayed(chain: ChainNetwork, broker: Container, fresh: Fresh) -> None:
    client, link = attach_routed(chain, broker, True, "lr/out", fresh("link"))
    assert isinstance(link, PeerReceiver)
    there = broker.link_attached()
    assert isinstance(there, PeerSender)
    link.wait_attached()
    link.flow(3)
    assert there.wait_credit(3) == 3
    numbers = [there.send(message.message(number)) for number in range(3)]
    for got in link.receive(3):
        got.settle(frames.rejected("test:no", "text"))
    for number in numbers:
        assert there.outcome(number).error == ("test:no", "text")
    link.flow(10, drain=True)
    broker.until(lambda: there.draining, "the drain at the broker")
    there.delivery_count = there.limit
    there.session.flow(handle=there.handle, delivery_count=there.limit, link_credit=0, drain=True)
    client.until(lambda: link.flows and link.flows[-1].link_credit == 0, "the drain is done")


def test_pattern_link_route_matches_address(chain: ChainNetwork, broker: Container, fresh: Fresh) -> None:
    _client, link = attach_routed(chain, broker, False, "lp.one.x.two.three", fresh("link"))
    there = broker.link_attached()
    assert there.target["address"] == "lp.one.x.two.three"
    link.wait_attached()


def test_large_routed_message_stays_unchanged(chain: ChainNetwork, broker: Container, fresh: Fresh) -> None:
    _client, link = attach_routed(chain, broker, False, "lr.large", fresh("link"))
    assert isinstance(link, PeerSender)
    there = broker.link_attached()
    assert isinstance(there, PeerReceiver)
    link.wait_attached()
    there.flow(1)
    link.wait_credit()
    payload = message.annotations({"x-opt-qd.to": "mine", "u": 1}) + message.value("x" * 1_000_000)
    number = link.send(payload)
    got = there.next()
    assert got.payload == payload
    got.settle()
    assert link.outcome(number).name == "accepted"


@pytest.mark.parametrize("closed", [True, False])
def test_client_detach_reaches_broker(chain: ChainNetwork, broker: Container, fresh: Fresh, closed: bool) -> None:
    client, link = attach_routed(chain, broker, True, "lr.x", fresh("link"))
    there = broker.link_attached()
    link.wait_attached()
    link.send_detach(closed)
    broker.until(lambda: there.detached, "the detach at the broker")
    assert there.detached is not None
    assert bool(there.detached.closed) == closed
    there.send_detach(closed)
    client.until(lambda: link.detached, "the answer")


def test_broker_detach_error_reaches_client(chain: ChainNetwork, broker: Container, fresh: Fresh) -> None:
    _client, link = attach_routed(chain, broker, False, "lr.x", fresh("link"))
    there = broker.link_attached()
    link.wait_attached()
    there.send_detach(error=frames.error("test:gone", "for good"))
    assert link.wait_detached() == ("test:gone", "for good")


def test_broker_refusal_reaches_client(chain: ChainNetwork, broker: Container, fresh: Fresh) -> None:
    _client, link = attach_routed(chain, broker, False, "lr.x", fresh("link"))
    there = broker.link_attached(answer=False)
    refuse(there, "test:refused", "not here")
    assert link.wait_detached() == ("test:refused", "not here")
    assert "address" not in link.target


def test_lost_broker_closes_routed_link(chain: ChainNetwork, broker: Container, fresh: Fresh) -> None:
    _client, link = attach_routed(chain, broker, False, "lr.x", fresh("link"))
    broker.link_attached()
    link.wait_attached()
    broker.drop()
    assert link.wait_detached() == LOST
    assert link.detached is not None
    assert link.detached.closed


def test_lost_client_closes_routed_link(chain: ChainNetwork, broker: Container, fresh: Fresh) -> None:
    client, link = attach_routed(chain, broker, True, "lr.x", fresh("link"))
    there = broker.link_attached()
    link.wait_attached()
    client.drop()
    assert there.wait_detached() == LOST


def test_routed_link_without_broker_is_refused(chain: ChainNetwork, fresh: Fresh) -> None:
    link = chain.b.client().sender("lr.nobody", wait=False, credit=False, name=fresh("link"))
    assert link.wait_detached() == NO_ROUTE
