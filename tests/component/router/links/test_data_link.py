"""Large messages between routers: their separate links, and the end of those links (inter-router.md 10)."""

import pytest

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
