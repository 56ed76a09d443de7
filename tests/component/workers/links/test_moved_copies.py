"""Messages that wait for a lost consumer and move to a consumer of another worker, on the real engine."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sluice.router.control.messages import Resume
from tests.component.workers.links.test_suspended import AwaitedBroker, begin_delivery, continue_delivery
from tests.peer.frames import ACCEPTED, REJECTED, RELEASED
from tests.peer.talk import consumer, flow, frames, key, message, of, producer, settle, start, transfer

SEEDS = 12
MOST = 30  # messages of a round
STATES = (ACCEPTED, REJECTED, RELEASED)


class MovedMessages:
    """Messages of two producers, one at each worker, that wait in worker 0 and move to a receiver at worker 1."""

    def __init__(self, routers: Any, choose: random.Random) -> None:
        self.choose = choose
        self.own = AwaitedBroker(routers, 2)
        self.router = self.own.router
        self.producers = [self.router.connect(worker) for worker in (0, 1)]
        for each in self.producers:
            each.feed(start() + producer(0, "balanced.own"))
        self.receiver = self.router.connect(1)
        self.receiver.feed(start() + consumer(0, "balanced.moved", 0))
        self.router.settle()
        self.sent: list[list[tuple[bytes, bool]]] = [[], []]  # messages of each producer, and whether they are settled
        self.received: list[tuple[bytes, bool]] = []  # messages, and whether they came settled
        self.states: dict[bytes, Any] = {}  # outcomes of the receiver, by message
        self.number, self.settled, self.partial = 0, False, b""  # delivery that is arriving
        self.own.lose()

    def send(self) -> None:
        choose = self.choose
        which = choose.randrange(2)
        number = len(self.sent[which])
        body = b"%d %d " % (which, number) + b"x" * choose.choice([0, 50, 3000, 40_000, 200_000])
        pairs = choose.choice([0, 1, 40])
        annotations = [(key(f"x-opt-{n}"), n) for n in range(pairs)] if pairs else None
        octets = message(body, annotations=annotations, subject=choose.choice([None, "s"]))
        settled = choose.random() < 0.4
        self.sent[which].append((octets, settled))
        self.producers[which].feed(transfer(0, number, octets, settled=settled or None))
        self.router.settle()

    def move(self) -> None:
        """Let them move, as the supervisor does: first no worker sends to the lost consumer any more."""
        worker = self.router.workers[0]
        ((slot, generation),) = worker.suspended._links
        record = self.router.core.table.records["M0balanced.own"]
        self.router.core.table.remove_consumer(record, 0, slot, generation)
        self.router.settle()
        (link,) = self.receiver.client.links.by_number.values()
        order = Resume(slot, generation, other=(1, link.slot.index, link.slot.generation))
        worker.suspended._on_resume(None, order)
        self.router.settle()
        self.router.pass_time(MOST)  # long messages move in steps, a millisecond apart
        assert worker.suspended._links == {}

    def take(self, credit: int) -> None:
        """Grant credit, and settle what arrives."""
        self.receiver.feed(flow(0, credit, delivery_count=len(self.received)))
        self.router.settle()
        for frame in of(frames(self.receiver), "transfer"):
            if frame.delivery_id is not None:
                self.number, self.settled = frame.delivery_id, bool(frame.settled)
            self.partial += frame.payload
            if frame.more:
                continue
            self.received.append((self.partial, self.settled))
            if not self.settled:
                self.states[self.partial] = self.choose.choice(STATES)
                self.receiver.feed(settle(self.number, state=self.states[self.partial]))
            self.partial = b""
        self.router.settle()

    def outcomes(self, which: int) -> dict[int, Any]:
        """Return the states of a producer's deliveries, by delivery-id."""
        found: dict[int, Any] = {}
        for each in of(frames(self.producers[which]), "disposition"):
            found |= dict.fromkeys(range(each.first, (each.first if each.last is None else each.last) + 1), each.state)
        return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_moved_messages_arrive_whole_in_order_with_their_outcomes(routers: Any, seed: int) -> None:
    choose = random.Random(seed)
    moved = MovedMessages(routers, choose)
    for _ in range(choose.randint(1, MOST)):
        moved.send()
    gone = choose.choice([None, None, 0, 1])
    early = choose.random() < 0.5
    if gone is not None and early:
        moved.producers[gone].lose()
        moved.router.settle()
    moved.move()
    if gone is not None and not early:
        moved.producers[gone].lose()
        moved.router.settle()
    for _ in range(MOST):
        moved.take(choose.randint(1, 9))
    assert moved.partial == b""
    for which, sent in enumerate(moved.sent):
        assert [each for each in moved.received if each in sent] == sent, "all, in order, settled as they were"
        if which != gone:
            expected = {number: moved.states[octets] for number, (octets, settled) in enumerate(sent) if not settled}
            assert moved.outcomes(which) == expected


def test_moved_messages_of_receiver_that_leaves_are_released(routers: Any) -> None:
    moved = MovedMessages(routers, random.Random(1))
    for _ in range(MOST):
        moved.send()
    moved.move()
    moved.receiver.lose()
    moved.router.settle()
    for which, sent in enumerate(moved.sent):
        assert moved.outcomes(which) == {n: RELEASED for n, (_, settled) in enumerate(sent) if not settled}


@pytest.mark.parametrize("which", [0, 1], ids=["this worker", "other worker"])
def test_message_that_is_still_arriving_is_released_when_others_move(routers: Any, which: int) -> None:
    moved = MovedMessages(routers, random.Random(which))
    octets = message(b"x" * 300_000)
    sender = moved.producers[which]
    sender.feed(begin_delivery(octets[:100_000]))
    moved.router.settle()
    moved.move()
    sender.feed(continue_delivery(octets[100_000:], more=False))
    moved.router.settle()
    for _ in range(MOST):
        moved.take(9)
    assert (moved.received, moved.partial) == ([], b"")
    assert moved.outcomes(which) == {0: RELEASED}
