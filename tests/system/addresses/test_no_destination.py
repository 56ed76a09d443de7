"""Messages without destination (routing-semantics.md 8.7)."""

import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.system.fixtures import CAPACITY, Connect, Fresh, pair
from tests.system.router import Section, listener, poll

WORKER_COUNTS = (1, 3)
SECTIONS: list[Section] = [listener("open", stripAnnotations="no")]


def test_unsettled_to_lost_address_is_released_and_drained(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    receiver.detach()
    for _ in range(CAPACITY):  # the producer's worker may be notified of the loss a moment later
        outcome = sender.request(message.message("x"))
        assert (outcome.name, outcome.settled) == ("released", True)
        if sender.draining:
            break
    assert sender.draining


def test_consumer_lost_with_connection_leads_to_drain(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    receiver.peer.drop(reset=True)
    for _ in range(CAPACITY - 1):
        outcome = sender.request(message.message("x"))
        if sender.draining:
            break
        assert outcome.name in ("released", "modified")
    assert sender.request(message.message("x")).name == "released"
    assert sender.draining


def test_anonymous_sender_without_destination_keeps_credit(connect: Connect) -> None:
    sender = connect().sender()
    for _ in range(260):
        sender.wait_credit()
        assert sender.request(message.message(to="nobody.at.home")).name == "released"
    assert not sender.draining


def test_presettled_without_consumer_are_dropped_and_counted(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    sender, receiver = pair(connect, fresh())
    receiver.detach()
    for _ in range(5):
        sender.send(message.message("gone"), settled=True)
    sender.peer.until(lambda: sender.draining, "drain")

    def counted() -> bool:
        row = management.one("router.link", owningAddr="M0" + receiver.address, linkDir="in")
        return (row["droppedPresettledCount"], row["presettledCount"]) == (5, 5)

    poll(counted, "all five are dropped")  # the drain is sent with the first dropped ones


@pytest.mark.parametrize("to", ["_local/qdhello", "_local/qdrouter", "_local/qdrouter.ma"])
def test_message_to_router_protocol_address_is_released(connect: Connect, to: str) -> None:
    assert connect().sender().request(message.message("x", to=to)).name == "released"


def test_message_with_overlong_trace_is_released(connect: Connect, fresh: Fresh) -> None:
    receiver = connect().receiver(fresh(), 5)
    long = message.annotations({"x-opt-qd.trace": [f"0/R{n}" for n in range(200)]})
    sender = connect("open").sender()
    assert sender.request(long + message.message("x", to=receiver.address)).name == "released"
    targeted = connect("open").sender(receiver.address)
    assert targeted.request(long + message.message("x")).name == "released"


def test_deliveries_queued_at_detach_are_released(connect: Connect, fresh: Fresh) -> None:
    """Deliveries sent around the detach of a consumer without credit are released, never modified."""
    sender, receiver = pair(connect, fresh(), credit=0)
    numbers = [sender.send(message.message(n)) for n in range(100)]
    receiver.detach()
    numbers += [sender.send(message.message(n)) for n in range(100)]
    assert {sender.outcome(number).name for number in numbers} == {"released"}
