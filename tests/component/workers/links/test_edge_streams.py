"""Streaming links between an edge router and its interior router: anonymous links, for large messages."""

from sluice.workers.links.edge_streams import EdgeStreamLink
from tests.component.engine.network import client
from tests.peer.talk import consumer, frames, message, messages, producer, transfer

SHORT, LARGE = message(b"x"), message(bytes(300_000))


def streams(network, end):
    """Return the streaming links that a router has attached on the uplink. end: 0: the edge router."""
    links = network.joints[0].ends[end].client.links.by_number.values()
    return [link for link in links if isinstance(link, EdgeStreamLink)]


def send(network, sending, number, octets):
    sending.feed(transfer(0, number, octets, settled=True))
    network.settle()


def between(network, source, destination):
    """Return a producer at one router and a consumer at the other."""
    receiving = client(network, destination, consumer(0, "balanced.a"))
    return client(network, source, producer(0, "balanced.a")), receiving


def test_large_messages_share_one_streaming_link_in_turn(network):
    sending, receiving = between(network, "A", "E")
    for number in range(3):
        send(network, sending, number, LARGE)
        assert messages(frames(receiving)) == [LARGE]
    assert len(streams(network, 1)) == 1


def test_large_message_towards_interior_router_gets_a_streaming_link(network):
    sending, receiving = between(network, "E", "A")
    send(network, sending, 0, LARGE)
    assert messages(frames(receiving)) == [LARGE]
    assert len(streams(network, 0)) == 1


def test_short_messages_need_no_streaming_link(network):
    sending, receiving = between(network, "A", "E")
    send(network, sending, 0, SHORT)
    assert messages(frames(receiving)) == [SHORT]
    assert streams(network, 1) == []


def test_streaming_link_is_unknown_to_the_supervisor_that_attaches_it(network):
    sending, _ = between(network, "A", "E")
    before = len(network["A"].core.links)
    send(network, sending, 0, LARGE)
    assert len(streams(network, 1)) == 1
    assert len(network["A"].core.links) == before


def test_messages_after_a_refused_streaming_link_use_the_links_of_addresses(network):
    sending, receiving = between(network, "A", "E")
    send(network, sending, 0, LARGE)
    frames(receiving)
    (stream,) = streams(network, 1)
    (other,) = (link for link in network["E"].core.links.by_identity.values() if link.name == stream.link.name)
    network["E"].core.connections.close_link(other.connection, other.number, "amqp:not-allowed", "no streams")
    network.settle()
    assert streams(network, 1) == []
    assert network.joints[0].ends[1].client.role.edge_streams.refuses
    send(network, sending, 1, LARGE)
    assert messages(frames(receiving)) == [LARGE]
    assert streams(network, 1) == []
