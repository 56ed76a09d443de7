"""Lists that grow with clients' actions: copies of a multicast, droppable copies, and links with output.

`check_quiet` compares each list with the live objects. The row `costs` of the benchmark measures that no step walks
through a whole list.
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.component.engine.host import InProcessRouter
from tests.peer.frames import ACCEPTED, REJECTED, RELEASED, modified
from tests.peer.talk import (
    consumer,
    flow,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    sections,
    settle,
    start,
    transfer,
)

CONSUMERS = 60
OUTCOMES = [ACCEPTED, REJECTED, RELEASED, modified(True, False)]
STARVED_MS = 1100  # time without credit after which a full queue drops messages


def client(router, octets, worker=0, listener="main"):
    peer = router.connect(worker, listener)
    peer.feed(start() + octets)
    router.settle()
    peer.take()
    return peer


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_multicast_copies_may_end_in_any_order(routers, workers, seed):
    router = routers(workers)
    choose = random.Random(seed)
    receivers = [
        client(router, b"".join(consumer(handle, "multicast.a") for handle in range(CONSUMERS)), worker)
        for worker in range(workers)
    ]
    sender = client(router, producer(0, "multicast.a"))
    sender.feed(transfer(0, 0, message(b"x")) + transfer(0, 1, message(b"y")))
    router.settle()
    steps = []
    for receiver in receivers:
        ids: dict[int, list[int]] = {}
        for sent in of(frames(receiver), "transfer"):
            ids.setdefault(sent.handle, []).append(sent.delivery_id)
        for handle, both in ids.items():
            if choose.random() < 0.2:
                steps.append((receiver, say("detach", handle=handle, closed=True)))
            else:
                steps += [(receiver, settle(number, None, choose.choice(OUTCOMES))) for number in both]
    choose.shuffle(steps)
    for receiver, octets in steps[:-1]:
        receiver.feed(octets)
        if choose.random() < 0.3:
            router.settle()
            router.check_quiet()
    router.settle()
    before = settled_ids(sender)
    assert before in ([], [0], [1])
    steps[-1][0].feed(steps[-1][1])
    router.settle()
    router.check_quiet()
    assert sorted(before + settled_ids(sender)) == [0, 1]


def bodies(peer):
    """Return the bodies of the messages received since the last call."""
    return [sections(octets)[-1][1] for octets in messages(frames(peer))]


def settled_ids(peer):
    """Return the delivery-ids settled since the last call."""
    settled = [frame for frame in of(frames(peer), "disposition") if frame.settled]
    return [int(number) for f in settled for number in range(f.first, (f.first if f.last is None else f.last) + 1)]


@pytest.mark.parametrize("last", ["settles", "leaves", "aborts"])
def test_multicast_producer_may_end_before_consumers(routers, last):
    router = routers()
    receiver = client(router, b"".join(consumer(handle, "multicast.a") for handle in range(CONSUMERS)))
    sender = client(router, producer(0, "multicast.a"))
    sender.feed(say("transfer", payload=message(bytes(200_000))[:15000], handle=0, delivery_id=0, delivery_tag=b"0",
                    message_format=0, more=True) if last == "aborts" else transfer(0, 0, message(b"x")))  # fmt: skip
    router.settle()
    receiver.feed(settle(3, None, ACCEPTED) if last != "aborts" else b"")
    if last == "settles":
        sender.feed(settle(0, role=False))
    elif last == "leaves":
        sender.lose()
    else:
        sender.feed(say("transfer", handle=0, aborted=True))
    router.settle()
    router.check_quiet()
    assert len(settled_ids(receiver)) == (0 if last == "aborts" else CONSUMERS - 1)


# Steps: presettled, unsettled: send a message. part, rest, abort: of a stream. late: the producer settles its oldest
# unsettled delivery.
STEPS = ["presettled", "unsettled", "part", "rest", "late", "credit", "time", "abort"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["oldest.a", "balanced.a", "block.a"]), st.lists(st.sampled_from(STEPS), max_size=40))
def test_full_queue_lists_exactly_droppable_copies(address, steps):
    """After any sequence of steps the link's list has exactly the droppable copies."""
    router = InProcessRouter()
    try:
        receiver = client(router, consumer(0, address, 0), listener="kept")  # four deliveries are its capacity
        one, two = client(router, producer(0, address)), client(router, producer(0, address))
        sent = [0, 0]
        unsettled: list[int] = []
        streaming = False
        credit = 0
        content = message(bytes(150_000))
        for step in steps:
            if step in ("presettled", "unsettled") and sent[0] < 200:
                settled = step == "presettled"
                one.feed(transfer(0, sent[0], message(b"x"), settled=settled or None))
                if not settled:
                    unsettled.append(sent[0])
                sent[0] += 1
            elif step == "part" and not streaming and sent[1] < 200:
                two.feed(part(sent[1], content[:140_000]))
                streaming = True
            elif step in ("rest", "abort") and streaming:
                octets = content[140_000:] if step == "rest" else b""
                two.feed(say("transfer", payload=octets, handle=0, settled=True, aborted=step == "abort" or None))
                streaming = False
                sent[1] += 1
            elif step == "late" and unsettled:
                one.feed(settle(unsettled.pop(0), role=False))
            elif step == "credit":
                credit += 1
                receiver.feed(flow(0, credit))
            elif step == "time":
                router.pass_time(STARVED_MS)
            router.settle()
            router.check_quiet()
    finally:
        for peer in list(router.peers):
            peer.lose()
        router.settle()
        router.check_empty()
        router.close()


def part(number, octets):
    """Encode the first octets of a presettled delivery, in as many frames as they need."""
    parts = [octets[at : at + 16000] for at in range(0, len(octets), 16000)]
    return b"".join(
        say("transfer", payload=payload, handle=0, delivery_id=number, delivery_tag=b"%d" % number, message_format=0,
            more=True, settled=True)
        for payload in parts
    )  # fmt: skip


def test_oldest_presettled_copies_are_dropped_first(routers):
    """The queue is full of presettled messages behind an unsettled one."""
    router = routers()
    receiver = client(router, consumer(0, "oldest.a", 0), listener="kept")
    sender = client(router, producer(0, "oldest.a"))
    sender.feed(transfer(0, 0, message(b"unsettled")))
    sender.feed(b"".join(transfer(0, number, message(b"%d" % number), settled=True) for number in range(1, 6)))
    router.settle()
    receiver.feed(flow(0, 10))
    router.settle()
    assert bodies(receiver) == [b"unsettled", b"4", b"5"]


def test_starved_consumer_keeps_newest_copies(routers):
    router = routers()
    receiver = client(router, consumer(0, "balanced.a", 0), listener="kept")
    sender = client(router, producer(0, "balanced.a"))
    sender.feed(b"".join(transfer(0, number, message(b"u%d" % number)) for number in range(2)))
    sender.feed(b"".join(transfer(0, number, message(b"%d" % number), settled=True) for number in range(2, 9)))
    router.settle()
    router.pass_time(STARVED_MS)
    receiver.feed(flow(0, 20))
    router.settle()
    assert bodies(receiver) == [b"u0", b"u1", b"7", b"8"]


@pytest.mark.parametrize("seed", range(5))
def test_links_with_output_may_end_in_any_order(routers, seed):
    """The links end in the wake in which they got credit. The remaining links receive their own messages."""
    router = routers()
    choose = random.Random(seed)
    receiver = client(router, b"".join(consumer(handle, f"balanced.{handle}", 0) for handle in range(CONSUMERS)))
    sender = client(router, b"".join(producer(handle, f"balanced.{handle}") for handle in range(CONSUMERS)))
    sender.feed(b"".join(transfer(handle, handle, message(b"%d" % handle)) for handle in range(CONSUMERS)))
    router.settle()
    granted = choose.sample(range(CONSUMERS), CONSUMERS)
    # No client is active, so all detaches are handled in one turn.
    router.workers[0].poller.time_ns += 1_000_000_000
    receiver.put(b"".join(flow(handle, 10) for handle in granted))
    gone = set(choose.sample(range(CONSUMERS), CONSUMERS // 2))
    leaving = choose.sample(sorted(gone), len(gone))
    receiver.feed(b"".join(say("detach", handle=handle, closed=True) for handle in leaving))
    router.settle()
    assert bodies(receiver) == [b"%d" % handle for handle in granted if handle not in gone]


def test_connection_may_close_while_its_links_have_output(routers):
    router = routers()
    receiver = client(router, b"".join(consumer(handle, "multicast.a", 0) for handle in range(CONSUMERS)))
    sender = client(router, producer(0, "multicast.a"))
    sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    receiver.blocked = True
    receiver.feed(b"".join(flow(handle, 10) for handle in range(CONSUMERS)) + say("close"))
    receiver.blocked = False
    router.settle()
    router.settle()
    assert [frame.state.descriptor for frame in of(frames(sender), "disposition")] == [0x26]
