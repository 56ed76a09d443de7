"""Streaming links between two routers: reuse, and the end of those that are not needed (inter-router.md 2.9)."""

import pytest
from msgspec.structs import replace

from tests.component.engine.network import client
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, messages, of, producer, settle, transfer


def test_streaming_links_are_reused(router_pair):
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    large = message(bytes(300_000))
    for number in range(3):
        sending.feed(transfer(0, number, large, settled=True))
        router_pair.settle()
        assert messages(frames(receiving)) == [large]
    links = router_pair["A"].workers[router_pair.joints[0].ends[0].worker.setup.worker].links
    assert len(links) == 1 + 10 + 1  # control, ten priorities, one stream


@pytest.mark.parametrize(("kept", "seconds"), [(2, 5), (3, 30)])
def test_idle_streaming_links_beyond_kept_number_are_closed(networks, kept, seconds):
    """With option -T only a few are kept, so that tests can see links close."""
    network = networks("AB")
    for one in network.routers.values():
        one.workers[0].router = replace(one.workers[0].router, streams_kept=kept, scrub_seconds=seconds)
    network.join("A", "B")
    network.converge()
    receiving = client(network, "B", *(consumer(number, f"balanced.{number}") for number in range(5)))
    sending = []
    for number in range(5):
        network.known(f"M0balanced.{number}", "B")
        sending.append(client(network, "A", producer(0, f"balanced.{number}")))
    octets = transfer(0, 0, message(bytes(400_000)), settled=True)
    for peer in sending:
        peer.feed(octets[:250_000])
    network.settle()
    links = network["A"].workers[0].links
    assert len(links) == 1 + 10 + 5  # control, ten priorities, streams
    network["A"].pass_time(seconds * 1000)
    network.settle()
    assert len(links) == 1 + 10 + 5, "all are in use"
    for peer in sending:
        peer.feed(octets[250_000:])
    network.settle()
    assert messages(frames(receiving)) == [message(bytes(400_000))] * 5
    network["A"].pass_time(seconds * 1000 - 1)
    network.settle()
    assert len(links) == 1 + 10 + 5, "not yet"
    network["A"].pass_time(1)
    network.settle()
    assert len(links) == 1 + 10 + kept


def test_streaming_links_with_unsettled_messages_stay_open(networks):
    """Closing the links would lose the outcomes."""
    network = networks("AB")
    for one in network.routers.values():
        one.workers[0].router = replace(one.workers[0].router, streams_kept=2, scrub_seconds=5)
    network.join("A", "B")
    network.converge()
    receiving = client(network, "B", consumer(0, "balanced.a"))
    network.known("M0balanced.a", "B")
    sending = [client(network, "A", producer(0, "balanced.a")) for _ in range(5)]
    octets = transfer(0, 0, message(bytes(400_000)))
    for peer in sending:
        peer.feed(octets[:250_000])
    network.settle()
    for peer in sending:
        peer.feed(octets[250_000:])
    network.settle()
    assert len(messages(frames(receiving))) == 5
    links = network["A"].workers[0].links
    many = len(links)
    network["A"].pass_time(5000)
    network.settle()
    assert len(links) == many
    assert [of(frames(peer), "disposition") for peer in sending] == [[]] * 5
    receiving.feed(settle(0, 4, ACCEPTED))
    network.settle()
    assert all(told.state == ACCEPTED for peer in sending for told in of(frames(peer), "disposition"))
    network["A"].pass_time(5000)
    network.settle()
    assert len(links) == many - 3
