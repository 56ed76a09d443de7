"""Memory of a message's chunks, which follows the octets received."""

from typing import Any

import sluice.router.testing.engine as engine
from tests.peer.talk import producer, say, start


def test_unfinished_messages_of_few_octets_take_little_memory(routers):
    """A chunk's capacity follows the octets received: the meter counts octets."""
    router = routers()
    peer = router.connect()
    peer.feed(start())
    router.settle()
    before = engine.live_objects()[2]
    for handle in range(20):
        peer.feed(producer(handle, "balanced.a"))
    router.settle()
    for handle in range(20):
        fields: dict[str, Any] = {
            "handle": handle,
            "delivery_id": handle,
            "delivery_tag": b"%d" % handle,
            "message_format": 0,
        }
        peer.feed(say("transfer", payload=bytes(64), more=True, **fields))
        peer.feed(3 * say("transfer", payload=bytes(1), handle=handle, more=True))
    router.settle()
    assert 20 * 67 < engine.live_objects()[2] - before <= 20 * 512
