"""Messages for and from the router itself (routing-semantics 10), by way of the endpoints for tests (option -T)."""

from __future__ import annotations

import pytest

from tests.peer import message
from tests.peer.peer import Receiver
from tests.system.fixtures import Connect

OPTIONS = ["-T"]
ECHO = "org.apache.qpid.dispatch.router/test/echo"
PREFIXES = ["", "/", "amqp:/", "amqp://anything/"]


def reply_link(connect: Connect, credit: int = 10) -> Receiver:
    return connect().receiver(dynamic=True, credit=credit)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("anonymous", [False, True], ids=["targeted", "anonymous"])
@pytest.mark.parametrize("settled", [None, True], ids=["unsettled", "presettled"])
def test_a_message_is_handed_over_and_answered(
    connect: Connect, prefix: str, anonymous: bool, settled: bool | None
) -> None:
    replies = reply_link(connect)
    sender = connect().sender(None if anonymous else prefix + ECHO)
    number = sender.send(
        message.message("hello", to=prefix + ECHO, reply_to=replies.address, correlation_id=7), settled=settled
    )
    if not settled:
        outcome = sender.outcome(number)
        assert (outcome.name, outcome.settled) == ("accepted", True)
    delivery = replies.next()
    assert delivery.settled
    assert message.body(delivery.payload) == "hello"
    assert message.section_of(delivery.payload, message.PROPERTIES)[2:6] == [replies.address, None, None, 7]
