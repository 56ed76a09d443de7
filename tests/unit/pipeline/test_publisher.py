"""Publisher against a small broker in this process: outcomes, refusals, lost connections and time limits."""

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator

import pytest

from sluice.pipeline.bulk_sender import MessageBatch
from sluice.pipeline.errors import PermanentPublishError, PublishError
from sluice.pipeline.publisher import RESEND, Publisher, PublisherOptions
from sluice.router.client.message import Message, decode
from sluice.router.client.outcome import Accepted, Modified, Rejected, Released, encode
from tests.unit.router.client.server import BrokerConnection, EngineBroker
from tests.unit.supervisor.auth.waiting import until

ACCEPTED = encode(Accepted())
REJECTED = encode(Rejected("amqp:not-allowed", "too hot"))
MESSAGES = [Message(str(number)).encode() for number in range(3)]
PATIENCE = 20.0
IMPATIENCE = 0.3


class OutcomesInTurn(dict[str, bytes | None]):
    """Outcomes of one address: the given ones in turn, then accepted."""

    def __init__(self, *states: bytes) -> None:
        super().__init__()
        self._states = deque(states)

    def get(self, address: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        return self._states.popleft() if self._states else default


@pytest.fixture
def broker() -> Iterator[EngineBroker]:
    with EngineBroker() as running:
        yield running


def publisher(broker: EngineBroker, **changes: object) -> Publisher:
    options = {"url": broker.url, "address": "q", "timeout": PATIENCE, **changes}
    return Publisher(PublisherOptions(**options))  # type: ignore[arg-type]


def publish(broker: EngineBroker, **changes: object) -> Publisher:
    """Send all messages, and return the publisher after it has finished."""
    with publisher(broker, **changes) as found:
        found.send(MessageBatch.of(MESSAGES))
        found.finish()
        return found


def test_finish_returns_after_all_messages_are_accepted(broker):
    found = publish(broker)
    assert list(broker.queues["q"]) == MESSAGES
    assert (found.accepted, found.rejected, found.resent, found.left) == (3, 0, 0, 0)


def test_settled_messages_count_as_accepted_when_written(broker):
    found = publish(broker, settled=True)
    assert (found.accepted, found.left) == (3, 0)
    until(lambda: list(broker.queues["q"]) == MESSAGES)


@pytest.mark.parametrize(
    ("state", "count"), [(Released(), None), (Modified(), None), (Modified(delivery_failed=True), 1)]
)
def test_released_or_modified_message_is_sent_again(broker, state, count):
    broker.outcomes = OutcomesInTurn(encode(state))
    found = publish(broker)
    assert (found.accepted, found.rejected, found.resent) == (3, 0, 1)
    *first, again = broker.queues["q"]
    assert first == MESSAGES
    assert decode(again) == Message("0", delivery_count=count)


def test_message_that_fails_again_counts_its_deliveries_and_waits_longer(broker):
    broker.outcomes = OutcomesInTurn(*[encode(Modified(delivery_failed=True))] * 3)
    began = time.monotonic()
    with publisher(broker) as found:
        found.send(MessageBatch.of(MESSAGES[:1]))
        found.finish()
    assert [decode(each).delivery_count for each in broker.queues["q"]] == [None, 1, 2, 3]
    assert time.monotonic() - began > sum(RESEND.delay(attempt) or 0 for attempt in range(3))


def test_undeliverable_message_is_rejected(broker):
    broker.outcomes = OutcomesInTurn(encode(Modified(undeliverable_here=True)))
    with pytest.raises(PermanentPublishError, match="a message to 'q' was rejected: modified, undeliverable-here"):
        publish(broker)


def test_released_dead_letter_waits_before_it_is_sent_again(broker):
    broker.outcomes = {"q": REJECTED, "dead": encode(Released())}
    with pytest.raises(PublishError, match=r"3 messages are left \(released by dead\)"):
        publish(broker, on_reject="deadletter", dead_letters="dead", timeout=0.5)
    assert len(broker.queues["dead"]) <= 3 * 3


def test_rejected_message_is_named_by_its_id(broker):
    broker.outcomes["q"] = REJECTED
    with publisher(broker) as found:
        found.send(MessageBatch.of([Message("x", message_id="m7").encode()]))
        with pytest.raises(PermanentPublishError, match="message 'm7' to 'q' was rejected"):
            found.finish()


def test_router_that_does_not_attach_is_named(broker, monkeypatch):
    monkeypatch.setattr(BrokerConnection, "on_attach", lambda *_: None)
    with pytest.raises(PublishError, match=r"3 messages are left \(the router does not attach the link to 'q'\)"):
        publish(broker, timeout=IMPATIENCE)


def test_router_that_does_not_answer_is_named():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}"
        with Publisher(PublisherOptions(url, "q", timeout=IMPATIENCE)) as found:
            found.send(MessageBatch.of(MESSAGES))
            with pytest.raises(PublishError, match=r"3 messages are left \(the router does not answer\)"):
                found.finish()


def test_rejected_message_fails_with_reason_by_default(broker):
    broker.outcomes["q"] = REJECTED
    with pytest.raises(PublishError, match="a message to 'q' was rejected: amqp:not-allowed: too hot"):
        publish(broker)


def test_rejected_message_is_dropped_on_request(broker):
    broker.outcomes = OutcomesInTurn(REJECTED)
    found = publish(broker, on_reject="drop")
    assert (found.accepted, found.rejected, found.left) == (2, 1, 0)


def test_rejected_message_goes_to_dead_letters_on_request(broker):
    broker.outcomes["q"] = REJECTED
    found = publish(broker, on_reject="deadletter", dead_letters="dead")
    assert sorted(broker.queues["dead"]) == MESSAGES
    assert (found.accepted, found.rejected) == (3, 3)


def test_rejected_dead_letter_fails(broker):
    broker.outcomes = {"q": REJECTED, "dead": REJECTED}
    with pytest.raises(PublishError, match="dead letters to 'dead' are rejected: amqp:not-allowed: too hot"):
        publish(broker, on_reject="deadletter", dead_letters="dead")


def test_refused_address_fails_at_once(broker):
    broker.refused = {"q"}
    with pytest.raises(PublishError, match="the router refuses address 'q': amqp:not-found: no q"):
        publish(broker)
    assert broker.connected == 1


def test_refused_dead_letter_address_is_named(broker):
    broker.outcomes["q"] = REJECTED
    broker.refused = {"dead"}
    with pytest.raises(PublishError, match="the router refuses address 'dead': amqp:not-found: no dead"):
        publish(broker, on_reject="deadletter", dead_letters="dead")


def test_connection_closed_with_permanent_error_fails(broker):
    broker.outcomes["q"] = None
    with publisher(broker) as found:
        found.send(MessageBatch.of(MESSAGES))

        def close() -> None:
            until(lambda: len(broker.queues["q"]) == 3)
            broker.say("amqp:unauthorized-access", "no longer")

        closing = threading.Thread(target=close)
        closing.start()
        with pytest.raises(PublishError, match="the router refuses the connection: amqp:unauthorized-access"):
            found.finish()
        closing.join()


def test_messages_in_flight_on_lost_connection_are_sent_again(broker):
    broker.outcomes["q"] = None

    def lose() -> None:
        until(lambda: len(broker.queues["q"]) == 3)
        with broker.lock:
            broker.outcomes["q"] = ACCEPTED
        broker.cut()

    losing = threading.Thread(target=lose)
    losing.start()
    found = publish(broker)
    losing.join()
    assert broker.connected == 2
    assert list(broker.queues["q"]) == MESSAGES * 2
    assert found.accepted == 3


def test_receiver_without_credit_ends_the_wait():
    with EngineBroker(credit=0) as broker:
        text = r"no message to 'q' was settled within 0\.3 s; 3 messages are left \(no receiver gives credit\)"
        with pytest.raises(PublishError, match=text):
            publish(broker, timeout=IMPATIENCE)


def test_missing_router_ends_the_wait_with_its_reason():
    with EngineBroker() as gone:
        url = gone.url
    with Publisher(PublisherOptions(url, "q", timeout=IMPATIENCE)) as found:
        found.send(MessageBatch.of(MESSAGES))
        with pytest.raises(PublishError, match=r"3 messages are left \(.*refused"):
            found.finish()


def test_send_waits_while_too_many_messages_are_left(broker):
    broker.outcomes["q"] = None
    with (
        publisher(broker, most=2, timeout=IMPATIENCE) as found,
        pytest.raises(PublishError, match="3 messages are left"),
    ):
        found.send(MessageBatch.of(MESSAGES))
    assert list(broker.queues["q"]) == MESSAGES[:2]


def test_send_returns_at_once_while_few_messages_are_left(broker):
    with publisher(broker, most=4) as found:
        found.send(MessageBatch.of(MESSAGES))
        assert found.left == 3
        assert broker.connected == 0
