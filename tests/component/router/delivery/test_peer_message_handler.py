"""Messages for the router itself on a link of an edge connection: each is taken whole (inter-router.md 14)."""

from collections.abc import Callable
from typing import Any

import pytest

from sluice.router.delivery.peer_message_handler import PeerMessageHandler
from tests.component.engine.host import InProcessPeer, configuration
from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import frames, message, of, producer, start, transfer

MOST = 1 << 20  # octets of a message


class PeerMessageLink:
    """Link whose messages go to `take`, as on edge connections."""

    def __init__(self, routers: Any, take: Callable[[bytes], bool]) -> None:
        self.router = routers(text=configuration(listener=f"maxFrameSize: {4 * MOST}"))
        self.peer: InProcessPeer = self.router.connect()
        self.peer.feed(start() + producer(0, "balanced.a"))
        self.router.settle()
        (record,) = self.peer.client.links.by_number.values()
        self.handler = PeerMessageHandler(take)
        record.link.use(self.handler)

    def send(self, number: int, octets: bytes, **fields: Any) -> list[Any]:
        """Send a message. Return the outcomes that the router reports."""
        self.peer.feed(transfer(0, number, octets, **fields))
        self.router.settle()
        return [frame.state for frame in of(frames(self.peer), "disposition") if frame.settled]


@pytest.fixture
def taken() -> list[bytes]:
    return []


@pytest.mark.parametrize("part", [100, 16_000, MOST])
def test_message_is_taken_once_and_whole(routers, taken, part):
    link = PeerMessageLink(routers, lambda octets: taken.append(octets) is None)
    octets = message(bytes(50_000))
    assert link.send(0, octets, part=part) == [ACCEPTED]
    assert link.send(1, octets, part=part, settled=True) == []
    assert taken == [octets, octets]


def test_message_that_is_not_taken_is_released(routers):
    link = PeerMessageLink(routers, lambda octets: False)
    assert link.send(0, message(b"x")) == [RELEASED]


def test_message_after_drop_is_released(routers, taken):
    link = PeerMessageLink(routers, lambda octets: taken.append(octets) is None)
    link.handler.drop()
    assert link.send(0, message(b"x")) == [RELEASED]
    assert taken == []


@pytest.mark.parametrize("part", [16_000, 2 * MOST], ids=["frames", "frame"])
def test_message_beyond_bound_is_rejected_and_link_continues(routers, taken, part):
    link = PeerMessageLink(routers, lambda octets: taken.append(octets) is None)
    (state,) = link.send(0, message(bytes(MOST)), part=part)
    assert state.value[0].value[0] == "amqp:link:message-size-exceeded"
    assert link.send(1, message(bytes(MOST)), part=part, settled=True) == []
    assert link.send(2, message(b"next")) == [ACCEPTED]
    assert taken == [message(b"next")]
