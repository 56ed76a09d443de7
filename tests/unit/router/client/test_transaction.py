"""Transactions of the blocking client, against a small broker in this process."""

from collections.abc import Iterator

import pytest

from sluice.router.amqp import codec
from sluice.router.client import (
    Accepted,
    Message,
    Rejected,
    Released,
    SyncConnection,
    Transactional,
    TransactionError,
    UnsettledError,
    connect,
    outcome,
)
from sluice.router.client.attach import COORDINATOR, TARGET, Coordinator, Terminus
from sluice.router.client.blocking import SyncTransaction
from sluice.router.client.transaction import read_transactional
from tests.unit.router.client.server import TRANSACTIONS, EngineBroker

PATIENCE = 20.0


@pytest.fixture
def broker() -> Iterator[EngineBroker]:
    with EngineBroker() as running:
        yield running


@pytest.fixture
def connection(broker: EngineBroker) -> Iterator[SyncConnection]:
    with connect(broker.url, timeout=PATIENCE) as found:
        yield found


def begin(connection: SyncConnection) -> SyncTransaction:
    return connection.coordinator(timeout=PATIENCE).declare(PATIENCE)


def test_committed_messages_become_visible_together(broker, connection):
    sender = connection.sender("q", timeout=PATIENCE)
    with begin(connection) as transaction:
        for body in ("a", "b"):
            assert sender.send(Message(body), transaction=transaction, timeout=PATIENCE) == Accepted()
        assert not broker.queues["q"]
    assert list(broker.queues["q"]) == [Message("a").encode(), Message("b").encode()]
    assert broker.discharged == [(transaction.txn_id, False)]


def test_block_left_by_exception_rolls_back(broker, connection):
    sender = connection.sender("q", timeout=PATIENCE)
    transaction = begin(connection)

    def fail() -> None:
        with transaction:
            sender.send(Message("a"), transaction=transaction, timeout=PATIENCE)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert broker.discharged == [(transaction.txn_id, True)]
    assert not broker.queues["q"]


def test_message_of_several_frames_is_in_transaction(broker, connection):
    sender = connection.sender("q", timeout=PATIENCE)
    with begin(connection) as transaction:
        sender.send(Message(bytes(100_000)), transaction=transaction, timeout=PATIENCE)
        assert not broker.queues["q"]
    assert list(broker.queues["q"]) == [Message(bytes(100_000)).encode()]


def test_outcome_in_transaction_is_returned(broker, connection):
    broker.outcomes["q"] = outcome.encode(Rejected("a:b", "why"))
    sender = connection.sender("q", timeout=PATIENCE)
    transaction = begin(connection)
    assert sender.send(Message("a"), transaction=transaction, timeout=PATIENCE) == Rejected("a:b", "why")


def test_message_accepted_outside_of_transaction_is_an_error(broker, connection):
    broker.takes_part = False
    sender = connection.sender("q", timeout=PATIENCE)
    with pytest.raises(TransactionError, match=r"accepted outside of its transaction.*needs a linkRoute"):
        sender.send(Message("a"), transaction=begin(connection), timeout=PATIENCE)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Transactional(b"t", Accepted()), Accepted()),
        (Transactional(b"t"), Released()),
        (Released(), Released()),
        (Rejected("a:b"), Rejected("a:b")),
        (Transactional(b"other", Accepted()), None),
        (Accepted(), None),
    ],
)
def test_outcome_counts_in_its_transaction_only(found, expected):
    if expected is None:
        with pytest.raises(TransactionError, match="outside of its transaction"):
            read_transactional(found, b"t")
    else:
        assert read_transactional(found, b"t") == expected


@pytest.mark.parametrize("condition", ["amqp:transaction:rollback", "amqp:transaction:timeout"])
def test_transaction_that_cannot_be_committed_is_an_error(broker, connection, condition):
    broker.outcomes[TRANSACTIONS] = outcome.encode(Rejected(condition, "too slow"))
    with pytest.raises(TransactionError, match=f"{condition}: the transaction was not committed: too slow"):
        begin(connection).commit(PATIENCE)


def test_unknown_transaction_is_an_error(connection):
    transaction = SyncTransaction(connection.coordinator(timeout=PATIENCE), b"unknown")
    with pytest.raises(TransactionError, match="amqp:transaction:unknown-id: the rollback failed"):
        transaction.rollback(PATIENCE)


def test_lost_answer_of_discharge_is_reported_as_unknown(broker, connection):
    broker.outcomes[TRANSACTIONS] = None
    transaction = begin(connection)
    coordinator = transaction.coordinator.state
    sending = coordinator.discharge(transaction.txn_id, False)
    connection.wait(lambda: broker.discharged, PATIENCE)
    broker.cut()
    with pytest.raises(UnsettledError, match="the outcome is unknown"):
        connection.wait(lambda: sending.done and sending.result(), PATIENCE)


def test_refused_coordinator_names_container_and_remedy(broker, connection):
    broker.refused.add(TRANSACTIONS)
    with pytest.raises(TransactionError) as caught:
        connection.coordinator(timeout=PATIENCE)
    assert str(caught.value) == (
        "amqp:not-found: container 'server' refuses the transaction coordinator: no (coordinator). Transactions need a "
        "broker that has them, and through a router a linkRoute with prefix $coordinator to that broker"
    )


def test_received_message_is_accepted_with_its_transaction(broker, connection):
    broker.queues["q"].append(Message("a").encode())
    delivery = connection.receiver("q", timeout=PATIENCE).receive(PATIENCE)
    with begin(connection) as transaction:
        transaction.accept(delivery)
    connection.wait(lambda: broker.heard, PATIENCE)
    assert outcome.decode(broker.heard[0][1]) == Transactional(transaction.txn_id, Accepted())


def test_coordinator_is_encoded_in_place_of_target():
    code, fields = codec.described_list(Coordinator().encode(TARGET))
    assert (code, codec.decode_one(fields[0])) == (COORDINATOR, ["amqp:local-transactions"])


def test_outcomes_of_source_are_encoded():
    _, fields = codec.described_list(Terminus("a", outcomes=("amqp:accepted:list",)).encode(0x28))
    assert codec.decode_one(fields[9]) == ["amqp:accepted:list"]


def test_state_that_does_not_fit_into_a_transfer_is_refused(connection):
    sender = connection.sender("q", timeout=PATIENCE)
    connection.wait(lambda: sender.state.ready, PATIENCE)
    with pytest.raises(ValueError, match="has at most 128 octets here, not 129"):
        sender.state.send(b"", state=bytes(129))
