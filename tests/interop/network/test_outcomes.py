"""Settlement, outcomes and credit end to end over three routers (inter-router.md 2.7, routing-semantics.md 9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.network.conftest import ChainNetwork, MiddleNetwork
from tests.peer import frames, message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.types import Described, Symbol

WORKER_COUNTS = (1, 3)
Fresh = Callable[..., str]
INFO = {Symbol("detail"): "of it", Symbol("number"): 7}
STATES: dict[str, tuple[Described, Described]] = {
    "accepted": (frames.ACCEPTED, frames.ACCEPTED),
    "released": (frames.RELEASED, frames.RELEASED),
    "rejected": (frames.REJECTED, frames.REJECTED),
    "rejected with an error": (
        frames.rejected("test:broken", "a text", {"detail": "of it"}),
        frames.rejected("test:broken", "a text", {"detail": "of it"}),
    ),
    "rejected with a long text": (frames.rejected("test:long", "x" * 2000), frames.rejected("test:long", "x" * 2000)),
    "modified": (frames.modified(True, True), frames.modified(True, True)),
    "modified with annotations": (
        frames.modified(True, False, {Symbol("why"): "so"}),
        frames.modified(True, False, {Symbol("why"): "so"}),
    ),
}


def attach_ends(chain: ChainNetwork, address: str, credit: int = 10) -> tuple[PeerSender, PeerReceiver]:
    """Attach a sender at A and a receiver at B."""
    receiver = chain.b.client().receiver(address, credit=credit)
    return chain.a.client().sender(address), receiver


def normalized_state(state: Described | None) -> tuple[str | None, list[object]]:
    """Return name and fields of a state, without trailing nulls and falses, which are equivalent to absent fields."""
    values = list(state.value) if state is not None else []
    while values and not values[-1]:
        values.pop()
    return frames.state_name(state), values


@pytest.mark.parametrize("name", STATES)
def test_outcomes_travel_over_network(chain: ChainNetwork, fresh: Fresh, name: str) -> None:
    sender, receiver = attach_ends(chain, fresh())
    given, expected = STATES[name]
    delivery = sender.send(message.message("x"))
    receiver.next().settle(given)
    assert normalized_state(sender.outcome(delivery).state) == normalized_state(expected)


@pytest.mark.parametrize("name", STATES)
def test_outcomes_between_1_19_routers_pass_through(middle: MiddleNetwork, fresh: Fresh, name: str) -> None:
    """R settles a message of L; L receives the outcome through S."""
    address = fresh()
    consumer = middle.right.consumer(address, accept=False)
    middle.left.wait_key(consumer.key, "R")
    middle.s.wait_remote(consumer.key, "R")
    sent = middle.left.send(address, message.message("x"))
    given, expected = STATES[name]
    consumer.next().settle(given)
    sent.outcome()
    assert normalized_state(sent.state) == normalized_state(expected)
    assert sum(settled for _state, settled in sent.steps) == 1


def test_producer_settlement_without_outcome_reaches_consumer(chain: ChainNetwork, fresh: Fresh) -> None:
    sender, receiver = attach_ends(chain, fresh())
    delivery = sender.send(message.message("x"))
    got = receiver.next()
    sender.settle(delivery)
    settled = receiver.session.remote_settled
    receiver.peer.until(lambda: got.id in settled and settled[got.id].settled, "the producer has settled")


def test_outcome_before_settlement_reaches_producer(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = middle.right.consumer(address, accept=False)
    middle.s.wait_remote(consumer.key, "R")
    sender = middle.s.client().sender(address, rcv_settle_mode=1)
    delivery = sender.send(message.message("x"))
    got = consumer.next()
    got.settle(frames.ACCEPTED, settled=False)
    outcome = sender.outcome(delivery, settled=False)
    assert outcome.name == "accepted"
    got.settle(frames.ACCEPTED)
    assert sender.outcome(delivery).name == "accepted"


def test_second_settle_mode_with_1_19_neighbour_is_settled(middle: MiddleNetwork, fresh: Fresh) -> None:
    """With rcv-settle-mode second, 1.19 relies on its neighbour to settle, as on any receiver (decision 0061)."""
    address = fresh()
    receiver = middle.s.client().receiver(address, credit=10, rcv_settle_mode=1)
    middle.left.wait_key(f"M0{address}", "S")
    sent = middle.left.send(address, message.message("x"))
    got = receiver.next()
    got.settle(frames.ACCEPTED, settled=False)
    assert sent.outcome() == "accepted"
    settled = receiver.session.remote_settled
    receiver.peer.until(lambda: got.id in settled and settled[got.id].settled, "settlement at the consumer")


def test_deliveries_settled_in_any_order_keep_outcomes(chain: ChainNetwork, fresh: Fresh) -> None:
    sender, receiver = attach_ends(chain, fresh("closest"), credit=100)
    numbers = [sender.send(message.message(number)) for number in range(100)]
    deliveries = receiver.receive(100)
    for delivery in reversed(deliveries):
        index = message.body(delivery.payload)
        delivery.settle(frames.ACCEPTED if index % 3 else frames.RELEASED)
    for index, number in enumerate(numbers):
        assert sender.outcome(number).name == ("accepted" if index % 3 else "released")


# --- credit -----------------------------------------------------------------------------------------------------------


def test_router_credit_does_not_wait_for_settlement(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address, accept=False)
    middle.left.wait_key(consumer.key, "R")
    middle.s.wait_remote(consumer.key, "R")
    sent = [middle.left.send(address, message.message(number)) for number in range(600)]
    middle.world.wait(lambda: len(consumer.arrivals) == 600, "more than the capacity has passed")
    for arrival in list(consumer.arrivals):
        arrival.settle()
    assert {one.outcome() for one in sent} == {"accepted"}


def test_producer_credit_follows_remote_consumer(chain: ChainNetwork, fresh: Fresh) -> None:
    sender, receiver = attach_ends(chain, fresh("closest"), credit=0)
    for number in range(250):
        sender.send(message.message(number))
    sender.peer.barrier()
    assert sender.credit == 0
    receiver.flow(10)
    for delivery in receiver.receive(10):
        delivery.settle()
    # A sender whose deliveries were all settled quickly gets another 250: its capacity grows.
    sender.peer.until(lambda: sender.credit in (10, 260), "ten credits for ten that have been settled")
    assert len(receiver.deliveries) == 10
