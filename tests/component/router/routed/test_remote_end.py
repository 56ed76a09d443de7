"""Routed links whose ends are on two workers: records for slots of other links, lost workers, late deltas."""

import gc

import pytest

import sluice.router.testing.engine as engine
from tests.component.engine.host import InProcessWorker
from tests.component.engine.routed_ends import LOST, ScriptedRouteContainer, link_route, sending
from tests.peer.frames import RELEASED
from tests.peer.talk import (
    consumer,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    start,
    transfer,
)


@pytest.mark.parametrize("settled", [None, True], ids=["unsettled", "presettled"])
def test_transfer_for_slot_of_replaced_link_is_released(routers, settled):
    """The record names a consumer whose slot has since been reused for the client's routed link."""
    router = routers(workers=2)
    router.core.link_routes.replace((link_route("out"),))
    container = ScriptedRouteContainer(router, 1)
    sender, client = router.connect(1), router.connect(0)
    client.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sender.feed(start() + producer(0, "balanced.a"))
    router.settle()
    (slot,) = router.workers[0].links
    frames(sender)
    # The record is in the ring when the consumer detaches. Its worker reads it when the slot belongs to another link.
    engine.hold_ring(router.workers[0].ports[1], True)
    sender.feed(transfer(0, 0, message(b"x"), settled=settled))
    client.feed(say("detach", handle=0, closed=True))
    client.feed(consumer(1, "queue.a"))
    container.accept()
    gc.collect()
    (record,) = client.client.links.by_number.values()
    assert record.slot.index == slot, "the slot is used again"
    assert engine.linked_slots(router.workers[0].link_table) == []
    engine.hold_ring(router.workers[0].ports[1], False)
    router.settle()
    assert messages(frames(client)) == []
    assert [frame.state for frame in of(frames(sender), "disposition")] == ([] if settled else [RELEASED])


def test_lost_worker_detaches_other_end(routers):
    router = routers(workers=2)
    router.core.link_routes.replace((link_route("in"),))
    container = ScriptedRouteContainer(router, 1)
    client = router.connect(0)
    client.feed(start())
    sending((router, container, client))
    frames(client)
    router.lose_worker()
    router.settle()
    (detach,) = frames(client)
    assert (detach.closed, detach.error.value[1]) == (True, LOST)


class DelayedDeltaWorker(InProcessWorker):
    """Worker whose deltas arrive after the messages that rely on them, since deltas have their own socket."""

    def __init__(self, router, number):
        super().__init__(router, number)
        self.held = []

    def on_delta(self, epoch, ops):
        self.held.append((epoch, ops))

    def release(self):
        for delta in self.held:
            super().on_delta(*delta)


@pytest.mark.parametrize("delayed", ["container", "client"])
@pytest.mark.parametrize("gone", [False, True])
def test_order_that_overtakes_delta_of_other_worker_waits(routers, delayed, gone):
    router = routers(workers=2, worker_types=(InProcessWorker, DelayedDeltaWorker))
    router.core.link_routes.replace((link_route("in"),))
    container = ScriptedRouteContainer(router, 1 if delayed == "container" else 0)
    client = router.connect(0 if delayed == "container" else 1)
    client.feed(start())
    router.settle()
    frames(client)
    client.feed(producer(0, "queue.a"))
    router.settle()
    assert frames(client) == []
    if gone:
        client.lose()
        router.settle()
    router.workers[1].release()
    if gone:
        router.settle()
        assert of(frames(container.peer), "attach") == []
    else:
        container.accept()
        (answer,) = of(frames(client), "attach")
        assert answer.target is not None
