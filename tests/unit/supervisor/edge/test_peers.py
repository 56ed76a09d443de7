"""Connections between edge routers: receivers for local consumers, addresses that stay local, and metrics."""

from __future__ import annotations

import pytest

from sluice.router.addressing.settings import LOCAL
from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.edge_properties import BETWEEN_EDGES, EDGE
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.peers import CONFINED, EdgePeers
from sluice.supervisor.links.attach import HEARTBEAT
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector, peer_connector

SETTINGS = """
address {
    prefix: near
    scope: local
}
exchange {
    name: x
    address: exchanged
}
"""


@pytest.fixture
def edge() -> EdgeRouter:
    return EdgeRouter(peer_connector(), connector("up"), SETTINGS)


def peers(edge: EdgeRouter) -> EdgePeers:
    assert edge.core.peers is not None
    return edge.core.peers


def open_peer(edge: EdgeRouter, container: str = "F", mark: str = "f") -> RegisteredConnection:
    """Open a connection to another edge router."""
    return edge.interior(container, "peers", **{EDGE: mark, BETWEEN_EDGES: 1})


def receivers(edge: EdgeRouter, connection: RegisteredConnection) -> list[str]:
    """Return the addresses for which the peer sends messages on a connection."""
    return edge.proxies(connection, "in")


def bears(edge: EdgeRouter, connection: RegisteredConnection) -> bool:
    """Return whether the link for messages to this router itself is on a connection."""
    links = (link for link in edge.links.values() if link.conn == connection.number)
    return any(link.address == "E" and link.use == "anonymous" for link in links)


def test_peers_have_receiver_for_each_consumed_address(edge: EdgeRouter) -> None:
    client = edge.client()
    consumer = edge.attach(client, "out", "a")
    one = open_peer(edge)
    two = open_peer(edge, "G", "g")
    edge.attach(client, "out", "b")
    edge.attach(client, "in", "c")
    assert receivers(edge, one) == receivers(edge, two) == ["a", "b"]
    assert edge.proxies(one, "out") == [], "messages of local producers go where consumers are"
    edge.detach(client, consumer)
    assert receivers(edge, one) == receivers(edge, two) == ["b"]


def test_consumers_of_other_routers_get_no_receiver(edge: EdgeRouter) -> None:
    """A message from a peer goes to clients only, never to another router."""
    one, two = open_peer(edge), open_peer(edge, "G", "g")
    up = edge.interior("A", "up")
    edge.attach_pending(one, "out", "a")
    edge.attach_pending(up, "out", "b")
    assert receivers(edge, two) == []


@pytest.mark.parametrize("address", ["near/a", "exchanged", "$management"])
def test_local_address_is_not_announced(edge: EdgeRouter, address: str) -> None:
    edge.attach(edge.client(), "out", address)
    assert receivers(edge, open_peer(edge)) == []


def test_connections_of_one_peer_are_bundle(edge: EdgeRouter) -> None:
    client = edge.client()
    one, two = open_peer(edge), open_peer(edge)
    for number in range(4):
        edge.attach(client, "out", f"a{number}")
    assert [len(receivers(edge, each)) for each in (one, two)] == [2, 2]
    edge.close(one)
    assert receivers(edge, two) == [f"a{number}" for number in range(4)]


def test_lost_bearer_is_replaced_by_next_connection_of_peer(edge: EdgeRouter) -> None:
    one, two = open_peer(edge), open_peer(edge)
    assert (bears(edge, one), bears(edge, two)) == (True, False)
    edge.close(one)
    assert bears(edge, two)


def test_connections_of_peers_have_heartbeats(edge: EdgeRouter) -> None:
    connections = [open_peer(edge), open_peer(edge), open_peer(edge, "G", "g")]
    beats = [link.conn for link in edge.links.values() if (link.address, link.use) == (HEARTBEAT, "heartbeat")]
    assert sorted(beats) == sorted(each.number for each in connections)


def test_container_is_known_by_mark_while_connected(edge: EdgeRouter) -> None:
    connection = open_peer(edge)
    assert (peers(edge).container("f"), peers(edge).container("g")) == ("F", "")
    edge.close(connection)
    assert peers(edge).container("f") == ""


def test_rows_count_connections_and_addresses_of_equal_ids_together(edge: EdgeRouter) -> None:
    edge.attach(edge.client(), "out", "a")
    one, two = open_peer(edge, "F", "f"), open_peer(edge, "F", "restarted")
    edge.attach_pending(one, "out", "b")
    edge.attach_pending(one, "out", "b")
    edge.attach_pending(two, "out", "c")
    assert peers(edge).rows() == {"F": (2, 2, 2)}
    edge.close(one)
    assert peers(edge).rows() == {"F": (1, 1, 1)}
    edge.close(two)
    assert peers(edge).rows() == {}


def confine(edge: EdgeRouter, pattern: str) -> None:
    """Make addresses local in the configuration."""
    old = edge.configuration
    text = "router {\nid: E\nmode: edge\n}\nlistener {\nname: main\nport: 0\n}\n"
    new = load_text("router.conf", text + f"address {{\npattern: {pattern}\nscope: local\n}}\n")
    change = ConfigurationChange(old, new, whole=True)
    edge.core.settings.prepare(change)
    edge.core.settings.commit(change)
    edge.settle()


def closed_links(edge: EdgeRouter) -> set[tuple[int, int, tuple[str, str]]]:
    """Return the links that the worker was ordered to close, perhaps repeatedly: connection, link, error."""
    orders = [order for order in edge.orders if isinstance(order, messages.CloseLink)]
    return {(order.conn, order.link, (order.condition, order.description)) for order in orders}


def test_links_of_peers_are_closed_when_their_address_becomes_local(edge: EdgeRouter) -> None:
    peer, client = open_peer(edge), edge.client()
    consumer = edge.attach_pending(peer, "out", "a")
    edge.attach_pending(peer, "out", "b")
    edge.attach(client, "out", "a")
    confine(edge, "a")
    assert edge.record("M0a").scope == LOCAL
    assert closed_links(edge) == {(peer.number, consumer, CONFINED)}
    assert receivers(edge, peer) == []


def test_unanswered_link_of_confined_address_is_closed_after_its_answer(edge: EdgeRouter) -> None:
    peer = open_peer(edge)
    consumer = edge.attach_pending(peer, "out", "a")
    link = peer.links[consumer]
    link.up = False  # as if its attach were unanswered
    confine(edge, "a")
    assert closed_links(edge) == set()
    link.up = True
    edge.settle()
    assert closed_links(edge) == {(peer.number, consumer, CONFINED)}
