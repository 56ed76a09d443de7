"""Floods of messages for a broker that is absent, beside clients that wait for the same broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.peer.message import message
from tests.peer.peer import AmqpPeer
from tests.system.links.test_broker_absence import (
    QUEUE,
    TEXTS,
    WORKER_COUNTS,
    AbsenceRouter,
    bodies,
    broker,
    queue_up,
    start_router,
)

__all__ = ["WORKER_COUNTS", "broker", "start_router"]

pytestmark = pytest.mark.adversarial

LINKS = 10
EACH = 100  # messages of a link
LONG = b"x" * 100_000  # octets of a message that is not streamed
STREAMED = b"x" * 300_000
FLAPS = 2


def flood(peer: AmqpPeer, *, settled: bool) -> None:
    """Send messages on many links without a target, and the beginning of one on each, which never ends."""
    links = [peer.sender() for _ in range(LINKS)]
    for _ in range(EACH):
        for link in links:
            link.send(message(LONG, to=QUEUE), settled=settled)
    for link in links:
        link.send(message(STREAMED, to=QUEUE), settled=settled, more=True)
    peer.barrier()


@pytest.mark.parametrize("settled", [False, True])
def test_flood_for_absent_broker_leaves_what_others_sent(
    start_router: Callable[..., AbsenceRouter], settled: bool
) -> None:
    own = start_router()
    own.connect()
    senders = own.senders()
    ids = queue_up(senders)
    own.clients[0].barrier()
    own.drop()
    own.wait_logged("wait up to")
    hostile = AmqpPeer.opened(own.router.ports["clients"], container_id="hostile")
    flood(hostile, settled=settled)
    for _ in range(FLAPS):
        own.connect()
        own.drop()
    hostile.drop()
    link = own.connect()
    link.flow(len(senders) * len(TEXTS) + LINKS * EACH)
    waited: list[bytes] = []
    while len(waited) < len(senders) * len(TEXTS):
        waited += [text for text in bodies(link, 1) if len(text) < len(LONG)]
    assert sorted(waited) == sorted([message(text) for text in TEXTS] * len(senders))
    if len(senders) == 1:
        assert waited == [message(text) for text in TEXTS], "the order of one sender"
    assert [senders[0].outcome(number).name for number in ids] == ["accepted"] * len(TEXTS)
