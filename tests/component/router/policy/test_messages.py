"""Rules for the messages of a connection: addresses of anonymous senders and user-ids (security.md P-50, P-51)."""

from typing import Any

import pytest

from sluice.router.delivery.anonymous_handler import AnonymousHandler
from sluice.router.delivery.producer_origin import ProducerOrigin
from sluice.router.policy.messages import MessageRules
from sluice.router.policy.names import NameList
from tests.peer.frames import REJECTED
from tests.peer.talk import consumer, frames, message, messages, of, producer, start, transfer

USER = "alice"
SHOWN = 200  # octets of a refused address in a report


class RuledProducer:
    """Anonymous sender whose messages must obey rules, and a consumer of "balanced.a"."""

    def __init__(self, routers: Any) -> None:
        self.router = routers()
        self.receiving = self.router.connect()
        self.receiving.feed(start() + consumer(0, "balanced.a"))
        self.router.settle()
        self.sending = self.router.connect()
        self.sending.feed(start() + producer(0, None))
        self.router.settle()
        self.denials = 0
        self.rules = MessageRules(NameList(["balanced.*"]), USER, False, self.on_denied)
        (record,) = self.sending.client.links.by_number.values()
        record.link.use(AnonymousHandler(self.router.workers[0].table, ProducerOrigin(rules=self.rules)))
        self.sent = 0

    def on_denied(self) -> None:
        self.denials += 1

    def send(self, to: str = "balanced.a", user: bytes | None = None) -> str | None:
        """Send a message. Return the condition with which it is rejected, or None if it arrives."""
        octets = message(b"%d" % self.sent, to=to, user=user)
        self.sending.feed(transfer(0, self.sent, octets))
        self.sent += 1
        self.router.settle()
        arrived = messages(frames(self.receiving))
        refused = [
            each for each in of(frames(self.sending), "disposition") if each.state.descriptor == REJECTED.descriptor
        ]
        assert len(arrived) + len(refused) == 1
        return str(refused[0].state.value[0].value[0]) if refused else None


@pytest.fixture
def ruled(routers):
    return RuledProducer(routers)


def test_message_to_forbidden_address_is_rejected(ruled):
    assert ruled.send("balanced.a") is None
    assert ruled.send("closest.a") == "amqp:unauthorized-access"


@pytest.mark.parametrize("user", [None, b"", b"alice"])
def test_message_may_name_its_own_user_or_none(ruled, user):
    assert ruled.send(user=user) is None


@pytest.mark.parametrize("user", [b"alic", b"alice2", b"Alice", b"alice\x00"])
def test_message_of_other_user_is_rejected(ruled, user):
    assert ruled.send(user=user) == "amqp:unauthorized-access"


def test_first_refusal_after_each_report_is_notified(ruled):
    """A client whose messages are all refused causes one report at a time."""
    for _ in range(3):
        ruled.send("closest.a")
    ruled.send(user=b"bob")
    assert ruled.denials == 1
    assert ruled.rules.take() == (3, 1, "closest.a")
    assert ruled.rules.take() == (0, 0, None)
    ruled.send("closest.b")
    assert ruled.denials == 2


def test_refused_address_is_shortened_in_report(ruled):
    ruled.send("closest." + "x" * 1000)
    _, _, address = ruled.rules.take()
    assert address == ("closest." + "x" * 1000)[:SHOWN]


def test_changed_rules_hold_for_links_in_use(ruled):
    """Neither the address nor the user of a message is remembered as allowed."""
    for _ in range(3):
        assert ruled.send(user=b"alice") is None
    ruled.rules.change(NameList(["closest.*"]), False, None)
    assert ruled.send(user=b"alice") == "amqp:unauthorized-access"
    ruled.rules.change(NameList(["balanced.*"]), True, None)
    assert ruled.send(user=b"anybody") is None
