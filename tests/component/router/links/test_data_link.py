"""Large messages between routers: their separate links, and the end of those links (inter-router.md 10)."""

import pytest
from msgspec.structs import replace

from tests.component.engine.network import client
from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import consumer, flow, frames, message, messages, of, producer, settle, transfer


@pytest.mark.parametrize("settled", [False, True])
def test_large_message_does_not_delay_small_ones(router_pair, settled):
    """The large message has its own link, and its consumer reads it later."""
    slow = client(router_pair, "B", consumer(0, "balanced.slow", credit=0))
    quick = client(router_pair, "B", consumer(0, "balanced.quick"))
    router_pair.known("M0balanced.slow", "B")
    router_pair.known("M0balanced.quick", "B")
    first = client(router_pair, "A", producer(0, "balanced.slow"))
    second = client(router_pair, "A", producer(0, "balanced.quick"))
    large = message(bytes(range(256)) * 4000)
    first.feed(transfer(0, 0, large, settled=settled or None))
    router_pair.settle()
    for number in range(600):
        second.feed(transfer(0, number, message(b"x"), settled=settled or None))
        if number % 100 == 99:
            router_pair.settle()
            if not settled:
                quick.feed(settle(number - 99, number, state=ACCEPTED))
    router_pair.settle()
    assert len(messages(frames(quick))) == 600
    slow.feed(flow(0, 1))
    router_pair.settle()
    assert messages(frames(slow)) == [large]
    if not settled:
        slow.feed(settle(0, state=ACCEPTED))
        router_pair.settle()
        (report,) = of(frames(first), "disposition")
        assert (report.settled, report.state) == (True, ACCEPTED)


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


def test_aborted_stream_ends_at_remote_consumer(router_pair):
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    octets = transfer(0, 0, message(bytes(400_000)))
    sending.feed(octets[:250_000])
    router_pair.settle()
    assert of(frames(receiving), "transfer")
    sending.lose()
    router_pair.settle()
    last = of(frames(receiving), "transfer")[-1]
    assert last.aborted
    again = client(router_pair, "A", producer(0, "balanced.a"))
    again.feed(transfer(0, 0, message(bytes(300_000)), settled=True))
    router_pair.settle()
    assert messages(frames(receiving)) == [message(bytes(300_000))]


def test_stream_over_lost_connection_is_aborted_and_released(router_pair):
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    octets = transfer(0, 0, message(bytes(400_000)))
    sending.feed(octets[:250_000])
    router_pair.settle()
    router_pair.joints[0].cut()
    router_pair.settle()
    assert of(frames(receiving), "transfer")[-1].aborted
    sending.feed(octets[250_000:])
    router_pair.settle()
    assert [(r.state, bool(r.settled)) for r in of(frames(sending), "disposition")] == [
        (RELEASED, False),
        (RELEASED, True),
    ]
