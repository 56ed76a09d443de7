"""Messages in the order of their keys, sent to a small broker in this process that accepts not all of them."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluice.pipeline.bulk_sender import MessageBatch
from sluice.pipeline.errors import PermanentPublishError, PublishError
from sluice.pipeline.publisher import Publisher, PublisherOptions
from sluice.router.client.message import Message, decode
from sluice.router.client.outcome import Modified, Rejected, Released, encode
from tests.unit.router.client.server import ACCEPTED, EngineBroker
from tests.unit.supervisor.auth.waiting import until

PATIENCE = 20.0
IMPATIENCE = 1.0
KEYS = ("a", "b", "c")
ROWS = 5  # of each key
#: Body and key of each row. Keys take turns.
TABLE = [(f"{key}{number}", key) for number in range(ROWS) for key in KEYS]


class OutcomesByBody(dict[str, bytes | None]):
    """Outcomes of a broker that looks at the bodies of the messages: `decide` returns one for each delivery."""

    def __init__(self, broker: EngineBroker, decide: Callable[[str, int], bytes | None]) -> None:
        super().__init__()
        self._broker, self._decide = broker, decide
        self._seen: defaultdict[str, int] = defaultdict(int)

    def get(self, address: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        body = str(decode(self._broker.queues[address][-1]).body)
        self._seen[body] += 1
        return self._decide(body, self._seen[body])


@pytest.fixture
def broker() -> Iterator[EngineBroker]:
    with EngineBroker() as running:
        yield running


def publish(broker: EngineBroker, table: list[tuple[str, Any]], **changes: Any) -> Publisher:
    options = {"url": broker.url, "address": "q", "timeout": PATIENCE, "ordered": True, **changes}
    with Publisher(PublisherOptions(**options)) as found:
        found.send(MessageBatch.of([Message(body).encode() for body, _ in table]), [key for _, key in table])
        found.finish()
    return found


def bodies(broker: EngineBroker, key: str = "") -> list[str]:
    """Return the bodies that arrived, of one key or of all."""
    return [body for octets in broker.queues["q"] if (body := str(decode(octets).body)).startswith(key)]


def accept_from_second(outcome: bytes, *named: str) -> Callable[[str, int], bytes]:
    """Return a decision: an outcome for the first delivery of the named bodies, accepted for all others."""
    return lambda body, seen: outcome if body in named and seen == 1 else ACCEPTED


def test_messages_without_releases_arrive_in_order_of_each_key(broker):
    found = publish(broker, TABLE)
    assert (found.accepted, found.left, found.resent) == (len(TABLE), 0, 0)
    for key in KEYS:
        assert bodies(broker, key) == [f"{key}{number}" for number in range(ROWS)]


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True)])
def test_released_message_is_sent_again_before_its_successors(broker, outcome):
    broker.outcomes = OutcomesByBody(broker, accept_from_second(encode(outcome), "a1", "a3"))
    found = publish(broker, TABLE)
    assert (found.accepted, found.resent) == (len(TABLE), 2)
    assert bodies(broker, "a") == ["a0", "a1", "a1", "a2", "a3", "a3", "a4"]


def test_released_key_does_not_hold_other_keys(broker):
    """All messages of other keys arrive while one is released again and again."""

    def decide(body: str, seen: int) -> bytes:
        others = sum(not each.startswith("a") for each in bodies(broker))
        return encode(Released()) if body == "a0" and others < 2 * ROWS else ACCEPTED

    broker.outcomes = OutcomesByBody(broker, decide)
    publish(broker, TABLE)
    assert len(bodies(broker, "b")) == len(bodies(broker, "c")) == ROWS
    copies = bodies(broker, "a")[: -ROWS + 1]
    assert set(copies) == {"a0"}
    assert len(copies) > 1


def test_unsettled_message_holds_its_key_only(broker):
    broker.outcomes = OutcomesByBody(broker, lambda body, seen: None if body == "b0" else ACCEPTED)
    with pytest.raises(PublishError, match=r"5 messages are left \(no receiver settles messages in flight\)"):
        publish(broker, TABLE, timeout=IMPATIENCE)
    assert bodies(broker, "b") == ["b0"]
    assert len(bodies(broker, "a")) == len(bodies(broker, "c")) == ROWS


@pytest.mark.parametrize(("on_reject", "dead"), [("drop", None), ("deadletter", "dead")])
def test_rejected_message_frees_its_key(broker, on_reject, dead):
    rejected = encode(Rejected("amqp:not-allowed", "too hot"))
    decide = accept_from_second(rejected, "a1")
    broker.outcomes = OutcomesByBody(broker, decide)
    found = publish(broker, TABLE, on_reject=on_reject, dead_letters=dead)
    assert (found.rejected, found.left) == (1, 0)
    assert bodies(broker, "a") == [f"a{number}" for number in range(ROWS)]
    assert [decode(each).body for each in broker.queues["dead"]] == (["a1"] if dead else [])


def test_rejected_message_fails_the_write_by_default(broker):
    broker.outcomes["q"] = encode(Rejected("amqp:not-allowed", "too hot"))
    with pytest.raises(PermanentPublishError, match="was rejected: amqp:not-allowed: too hot"):
        publish(broker, TABLE)


def test_messages_in_flight_on_a_lost_connection_are_sent_again_first(broker):
    broker.outcomes = OutcomesByBody(broker, lambda body, seen: None if body.endswith("1") and seen == 1 else ACCEPTED)

    def lose() -> None:
        until(lambda: len(bodies(broker)) == 2 * len(KEYS))
        broker.cut()

    losing = threading.Thread(target=lose)
    losing.start()
    found = publish(broker, TABLE)
    losing.join()
    assert (broker.connected, found.accepted) == (2, len(TABLE))
    for key in KEYS:
        assert bodies(broker, key) == [f"{key}{number}" for number in (0, 1, 1, 2, 3, 4)]


def test_messages_without_key_do_not_wait_for_each_other(broker):
    broker.outcomes["q"] = None
    table = [(str(number), None) for number in range(10)]
    with pytest.raises(PublishError, match="10 messages are left"):
        publish(broker, table, timeout=IMPATIENCE)
    assert bodies(broker) == [body for body, _ in table]


def test_messages_in_flight_keep_within_the_limit(broker):
    broker.outcomes["q"] = None
    with pytest.raises(PublishError, match="10 messages are left"):
        publish(broker, [(str(number), number) for number in range(10)], most=4, timeout=IMPATIENCE)
    assert len(bodies(broker)) == 4


def test_send_waits_while_messages_of_one_key_are_too_many(broker):
    """Memory is bounded: a key that makes no progress stops the sender at the limit of waiting messages."""
    broker.outcomes["q"] = encode(Released())
    options = PublisherOptions(broker.url, "q", timeout=IMPATIENCE, ordered=True, most=4)
    with Publisher(options) as found:
        for number in range(3):
            found.send(MessageBatch.of([Message(str(number)).encode()]), ["key"])
        with pytest.raises(PublishError, match="4 messages are left"):
            found.send(MessageBatch.of([Message("3").encode()]), ["key"])
    assert set(bodies(broker)) == {"0"}


def test_receiver_with_little_credit_gets_all_messages():
    with EngineBroker(credit=2) as broker:
        publish(broker, TABLE)
        for key in KEYS:
            assert bodies(broker, key) == [f"{key}{number}" for number in range(ROWS)]
