"""Consumers with and without max-message-size: the choice of consumers by message length (routing-semantics.md
8.11).
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.peer.frames import state_name
from tests.peer.talk import consumer, frames, message, messages, of, producer, say, start, transfer
from tests.peer.types import ULong

LIMITS = (0, 0, 30, 100, 1000, 100_000)
#: Octets of bodies. The last one streams: it is routed when the octets received exceed every limit.
SIZES = (0, 20, 21, 70, 100, 990, 991, 5000, 99_900, 140_000)
CONSUMERS = 5


def received(peers):
    return [messages(frames(peer)) for peer in peers]


@pytest.mark.parametrize("prefix", ["balanced", "closest", "multicast"])
@pytest.mark.parametrize("workers", [1, 2])
@given(
    limits=st.lists(st.sampled_from(LIMITS), min_size=1, max_size=CONSUMERS),
    sizes=st.lists(st.sampled_from(SIZES), min_size=1, max_size=20),
    leaves=st.integers(0, CONSUMERS),
)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_messages_reach_only_consumers_whose_limit_allows_them(routers, workers, prefix, limits, sizes, leaves):
    router = routers(workers)
    address = f"{prefix}.size"
    peers = []
    for number, limit in enumerate(limits):
        peers.append(router.connect(number % workers))
        peers[-1].feed(start() + consumer(0, address, 1000, max_message_size=ULong(limit)))
        router.settle()
    sending = router.connect(0)
    sending.feed(start() + producer(0, address))
    router.settle()
    received([*peers, sending])
    for number, size in enumerate(sizes):
        if number == len(sizes) // 2 and leaves < len(peers) > 1:
            peers.pop(leaves).feed(say("detach", handle=0, closed=True))
            limits = limits[:leaves] + limits[leaves + 1 :]
            router.settle()
            received([sending])
        octets = message(bytes(size))
        sending.feed(transfer(0, number, octets))
        router.settle()
        fitting = [not limit or len(octets) <= limit for limit in limits]
        got = received(peers)
        assert all(each in ([], [octets]) for each in got)
        found = [bool(each) for each in got]
        if prefix == "multicast":
            assert found == fitting
        else:
            assert sum(found) == any(fitting)
            assert all(fits for fits, one in zip(fitting, found, strict=True) if one)
        reports = of(frames(sending), "disposition")
        outcomes = [(state_name(report.state), report.state.value[0].value[0]) for report in reports]
        assert outcomes == ([] if any(fitting) else [("rejected", "amqp:link:message-size-exceeded")])
    for peer in (*peers, sending):
        peer.lose()
    router.settle()


@pytest.mark.parametrize("workers", [1, 2])
def test_eligible_consumers_take_turns(routers, workers):
    router = routers(workers)
    peers = []
    for limit in (0, 100, 0, 100, 0):
        peers.append(router.connect(workers - 1))
        peers[-1].feed(start() + consumer(0, "closest.turns", 1000, max_message_size=ULong(limit)))
        router.settle()
    sending = router.connect(0)
    sending.feed(start() + producer(0, "closest.turns"))
    router.settle()
    received(peers)
    for number in range(30):
        sending.feed(transfer(0, number, message(bytes(500 if number % 2 else 5)), settled=True))
    router.settle()
    long = [sum(len(octets) > 100 for octets in each) for each in received(peers)]
    assert long == [5, 0, 5, 0, 5]
