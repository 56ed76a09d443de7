"""Publisher with transactions against a small broker in this process: commits, rollbacks and lost answers."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.pipeline.bulk_sender import MessageBatch
from sluice.pipeline.errors import PermanentPublishError, PublishError
from sluice.pipeline.publisher import PublisherOptions
from sluice.pipeline.transactional_publisher import TransactionalPublisher
from sluice.router.client.message import Message, decode
from sluice.router.client.outcome import Accepted, Modified, Rejected, Released, encode
from tests.unit.router.client.server import TRANSACTIONS, EngineBroker

ACCEPTED = encode(Accepted())
REJECTED = encode(Rejected("amqp:not-allowed", "too hot"))
MESSAGES = [Message(str(number)).encode() for number in range(5)]
KEYS = ["a", "b", "a", "b", "a"]
PATIENCE = 30.0
IMPATIENCE = 2.0


class OutcomesByAddress(dict[str, bytes | None]):
    """Outcomes by address, in turn, then accepted. `cut`: lose the connections with the outcome."""

    def __init__(self, **states: list[bytes | None]) -> None:
        super().__init__()
        self._states = {address: deque(found) for address, found in states.items()}

    def get(self, address: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        states = self._states.get("discharge" if address == TRANSACTIONS else address)
        return states.popleft() if states else default


class DischargeOutcomes(OutcomesByAddress):
    """Outcomes of discharges in turn; a declare, which asks before each discharge, takes none."""

    def __init__(self, broker: EngineBroker, *states: bytes | None) -> None:
        super().__init__(discharge=list(states))
        self._broker = broker

    def get(self, address: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        if address == TRANSACTIONS and not self._broker.transactions:  # a declare
            return default
        return super().get(address, default)


@pytest.fixture
def broker() -> Iterator[EngineBroker]:
    with EngineBroker() as running:
        yield running


@pytest.fixture(params=[False, True], ids=["bulk", "ordered"])
def ordered(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def publisher(broker: EngineBroker, **changes: Any) -> TransactionalPublisher:
    options = {"url": broker.url, "address": "q", "timeout": PATIENCE, "transactions": True, **changes}
    return TransactionalPublisher(PublisherOptions(**options))


def publish(broker: EngineBroker, **changes: Any) -> TransactionalPublisher:
    """Send all messages, and return the publisher after it has finished."""
    with publisher(broker, **changes) as found:
        found.send(MessageBatch.of(MESSAGES), KEYS if changes.get("ordered") else ())
        found.finish()
        return found


def test_messages_become_visible_at_the_discharge(broker, ordered):
    with publisher(broker, ordered=ordered, most=2) as found:
        found.send(MessageBatch.of(MESSAGES), KEYS if ordered else ())
        assert found.accepted >= 3, "some wait for room only"
        assert not broker.queues["q"]
        found.finish()
    assert sorted(broker.queues["q"]) == MESSAGES
    assert (found.accepted, found.rejected, found.left) == (5, 0, 0)
    assert broker.discharged == [(b"t1", False)]


def test_task_without_messages_declares_no_transaction(broker):
    with publisher(broker) as found:
        found.finish()
    assert broker.declared == 0


def test_failed_task_is_rolled_back(broker):
    def fail() -> None:
        with publisher(broker, most=2) as found:
            found.send(MessageBatch.of(MESSAGES))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert broker.discharged == [(b"t1", True)]
    assert not broker.queues["q"]


def test_transactions_of_some_rows_are_committed_one_by_one(broker, ordered):
    publish(broker, transaction_rows=2, ordered=ordered)
    assert sorted(broker.queues["q"]) == MESSAGES
    assert broker.discharged == [(b"t1", False), (b"t2", False), (b"t3", False)]


def test_released_message_rolls_back_and_all_are_sent_again(broker, ordered):
    broker.outcomes = OutcomesByAddress(q=[ACCEPTED, encode(Modified(delivery_failed=True))])
    found = publish(broker, ordered=ordered)
    assert sorted(str(decode(each).body) for each in broker.queues["q"]) == ["0", "1", "2", "3", "4"]
    assert sorted(decode(each).delivery_count or 0 for each in broker.queues["q"]) == [0, 0, 0, 0, 1]
    assert (found.accepted, found.resent) == (5, 1)
    assert broker.discharged == [(b"t1", True), (b"t2", False)]


def test_messages_of_a_key_stay_in_order_after_a_rollback(broker):
    broker.outcomes = OutcomesByAddress(q=[ACCEPTED, ACCEPTED, encode(Released())])
    publish(broker, ordered=True)
    bodies = [str(decode(each).body) for each in broker.queues["q"]]
    assert [each for each in bodies if each in "024"] == ["0", "2", "4"]
    assert [each for each in bodies if each in "13"] == ["1", "3"]


def test_message_that_is_always_released_fails_at_the_time_limit(broker):
    broker.outcomes["q"] = encode(Released())
    with pytest.raises(PublishError, match=r"5 messages are left \(released by q\)"):
        publish(broker, timeout=IMPATIENCE)
    assert not broker.queues["q"]


def test_rejected_message_fails_and_rolls_back(broker):
    broker.outcomes = OutcomesByAddress(q=[ACCEPTED, REJECTED])
    with pytest.raises(PermanentPublishError, match="'q' was rejected: amqp:not-allowed: too hot"):
        publish(broker)
    assert not broker.queues["q"]
    assert broker.discharged == [(b"t1", True)]


@pytest.mark.parametrize(("how", "dead"), [("drop", None), ("deadletter", "dead")])
def test_rejected_message_is_left_out_of_the_next_transaction(broker, how, dead):
    broker.outcomes = OutcomesByAddress(q=[ACCEPTED, REJECTED])
    found = publish(broker, on_reject=how, dead_letters=dead)
    assert list(broker.queues["q"]) == [MESSAGES[0], *MESSAGES[2:]]
    assert list(broker.queues["dead"]) == ([MESSAGES[1]] if dead else [])
    assert (found.accepted, found.rejected) == (5 if dead else 4, 1)
    assert [fail for _, fail in broker.discharged] == [True, False]


@pytest.mark.parametrize("condition", ["rollback", "timeout", "unknown-id"])
def test_transaction_that_is_not_committed_is_sent_again(broker, condition):
    broker.outcomes = DischargeOutcomes(broker, encode(Rejected(f"amqp:transaction:{condition}", "no")))
    found = publish(broker)
    assert (list(broker.queues["q"]), found.accepted) == (MESSAGES, 5)
    assert broker.declared == 2


def test_transaction_that_is_never_committed_fails_at_the_time_limit(broker):
    broker.outcomes = DischargeOutcomes(broker, *[encode(Rejected("amqp:transaction:rollback", "full"))] * 100)
    with pytest.raises(PublishError, match="amqp:transaction:rollback: the transaction was not committed: full"):
        publish(broker, timeout=IMPATIENCE)
    assert not broker.queues["q"]


class CutAtDischarge(DischargeOutcomes):
    """Lose all connections at the first discharge, after it has taken effect."""

    def get(self, address: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        found = super().get(address, default)
        if found is None:
            for side in self._broker.sides:
                side.connection.transport_lost()
        return found


def test_lost_answer_to_discharge_sends_messages_twice_and_warns(broker, caplog):
    broker.outcomes = CutAtDischarge(broker, None)
    publish(broker)
    assert list(broker.queues["q"]) == MESSAGES * 2
    assert "if the broker has committed the transaction, its 5 messages arrive twice" in caplog.text


def test_copies_are_sent_without_transaction_to_broker_that_recognizes_them(broker):
    copy = encode(Rejected("failed", "Duplicate message detected - message will not be routed"))
    broker.outcomes = DischargeOutcomes(broker, copy)
    found = publish(broker, duplicate_ids=True)
    assert (list(broker.queues["q"]), found.accepted, broker.declared) == (MESSAGES, 5, 1)
    assert broker.discharged == [(b"t1", False)]


def test_copies_are_sent_in_a_transaction_if_broker_recognizes_none(broker):
    broker.outcomes = DischargeOutcomes(broker, encode(Rejected("failed", "Duplicate message detected")))
    publish(broker)
    assert broker.declared == 2


def test_lost_connection_sends_all_messages_in_another_transaction(broker, ordered):
    with publisher(broker, ordered=ordered, most=4) as found:
        found.send(MessageBatch.of(MESSAGES), KEYS if ordered else ())
        broker.cut()
        broker.transactions.clear()  # as the end of their connection rolls them back
        found.finish()
    assert (sorted(broker.queues["q"]), found.accepted) == (MESSAGES, 5)


def test_message_accepted_outside_of_transaction_fails(broker, ordered):
    broker.takes_part = False
    with pytest.raises(PermanentPublishError, match="accepted outside of its transaction"):
        publish(broker, ordered=ordered)
    assert len(broker.queues["q"]) == 1, "the others wait for the outcome of the first"


def test_refused_coordinator_fails_with_the_remedy(broker):
    broker.refused.add(TRANSACTIONS)
    with pytest.raises(PermanentPublishError, match=r"container 'server' refuses .* a linkRoute with prefix \$coord"):
        publish(broker)
