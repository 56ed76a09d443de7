"""Loss of a consumer (routing-semantics.md 9.3)."""

from collections.abc import Callable

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver
from tests.peer.management import Management
from tests.system.fixtures import Connect, Fresh, pair, pass_one, wait_address_table

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
LOSSES: dict[str, Callable[[PeerReceiver], object]] = {
    "detach": lambda receiver: receiver.detach(),
    "detach-not-closed": lambda receiver: receiver.detach(closed=False),
    "end": lambda receiver: receiver.session.end(),
    "close": lambda receiver: receiver.peer.close(),
    "drop": lambda receiver: receiver.peer.drop(),
    "reset": lambda receiver: receiver.peer.drop(reset=True),
}


@pytest.mark.parametrize("way", list(LOSSES))
def test_consumer_loss_modifies_sent_and_releases_queued(connect: Connect, fresh: Fresh, way: str) -> None:
    sender, receiver = pair(connect, fresh(), credit=2)
    numbers = [sender.send(message.message(n)) for n in range(5)]
    presettled = sender.send(message.message("presettled"), settled=True)
    receiver.receive(2)
    LOSSES[way](receiver)
    for number in numbers[:2]:
        outcome = sender.outcome(number)
        assert (outcome.name, outcome.settled) == ("modified", True)
        assert outcome.state is not None
        fields = [*outcome.state.value, None, None]
        assert fields[0] is True
        assert not fields[1]
    for number in numbers[2:]:
        outcome = sender.outcome(number)
        assert (outcome.name, outcome.settled) == ("released", True)
    sender.peer.barrier()
    assert presettled not in sender.session.outcomes
    sender.wait_credit(245)


def test_connection_deleted_by_management_settles_deliveries(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    sender, receiver = pair(connect, fresh(), credit=1)
    numbers = [sender.send(message.message(n)) for n in range(2)]
    receiver.next()
    assert receiver.peer.remote_open is not None
    identity = str(int(receiver.peer.remote_open.properties["qd.conn-id"]))
    management.update("connection", identity, adminStatus="deleted")
    receiver.peer.expect_end()
    assert [sender.outcome(number).name for number in numbers] == ["modified", "released"]


def test_partly_sent_stream_is_released(connect: Connect, fresh: Fresh) -> None:
    """A message whose consumer leaves after the first half is released, and settled after its last frame."""
    sender, receiver = pair(connect, fresh())
    content = message.data(bytes(400_000))
    number = sender.send(content[:250_000], more=True)
    receiver.next(complete=False)
    receiver.peer.drop()
    assert sender.outcome(number, settled=False).name == "released"
    sender.send(content[250_000:])
    outcome = sender.outcome(number)
    assert (outcome.name, outcome.settled) == ("released", True)


def test_message_cut_by_session_window_is_released(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect(max_frame_size=512).begin(incoming_window=3).receiver(address, 5)
    sender = connect().sender(address)
    number = sender.send(message.data(bytes(10_000)))
    receiver.next(complete=False)
    receiver.peer.drop()
    assert sender.outcome(number).name == "released"


def test_consumer_loss_spares_other_consumers(connect: Connect, fresh: Fresh) -> None:
    address = fresh("closest")
    lost, staying = connect().receiver(address, 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    numbers = [sender.send(message.message(n)) for n in range(6)]
    lost.receive(3)
    kept = staying.receive(3)
    lost.peer.drop()
    for delivery in kept:
        delivery.settle()
    names = [sender.outcome(number).name for number in numbers]
    assert names == ["modified", "accepted"] * 3
    wait_address_table(connect, fresh)
    pass_one(sender, staying, "after")


def test_settlement_before_loss_is_kept(connect: Connect, fresh: Fresh) -> None:
    """Deliveries that the consumer settled before it left keep their outcomes."""
    sender, receiver = pair(connect, fresh(), credit=100)
    numbers = [sender.send(message.message(n)) for n in range(100)]
    deliveries = receiver.receive(100)
    receiver.session.disposition(deliveries[0].id, deliveries[59].id)
    receiver.peer.drop()
    names = [sender.outcome(number).name for number in numbers]
    assert names == ["accepted"] * 60 + ["modified"] * 40
