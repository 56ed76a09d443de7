"""Replacement of a link object when its attach is routed, whatever frames its peer sends meanwhile."""

import pytest

from sluice.router.testing.write_lists import check_turns
from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.peer.frames import Frame
from tests.peer.talk import MANY, consumer, flow, frames, message, messages, of, say, start, transfer

FLOWS = {
    "drain": flow(0, 5, drain=True),
    "credit": flow(0, 5),
    "echo": flow(0, 0, echo=True),
    "drain and echo": flow(0, 0, drain=True, echo=True),
}


def broker_answers(received: list[Frame]) -> bytes:
    """Return the broker's answers to the session and the link that the router has begun."""
    (begun,) = [frame for frame in of(received, "begin") if frame.fields.get("remote_channel") is None]
    (attach,) = of(received, "attach")
    return say(
        "begin", channel=1, remote_channel=begun.channel, next_outgoing_id=0, incoming_window=MANY, outgoing_window=MANY
    ) + say(
        "attach", channel=1, name=attach.fields["name"], handle=0, role=False, source=attach.source,
        target=attach.target, initial_delivery_count=0,
    )  # fmt: skip


def advance(router: InProcessRouter, client: InProcessPeer, octets: bytes) -> None:
    """Run the supervisor and each worker once, so that octets of the client and orders of the supervisor meet in one
    wake."""
    router.supervise()
    client.put(octets)
    for worker in router.workers:
        router.wake(worker)
        check_turns(client.connection)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("flow_frame", FLOWS.values(), ids=FLOWS.keys())
@pytest.mark.parametrize("first", [0, 1], ids=["orders-first", "client-first"])
def test_flows_during_routed_attach_leave_no_stale_link(routers, workers: int, flow_frame: bytes, first: int) -> None:
    router = routers(workers)
    for worker in router.workers:
        worker.poller.first = first
    broker = router.connect(workers - 1, "broker")
    broker.feed(start())
    router.settle()
    frames(broker)
    client = router.connect(0)
    client.feed(start())
    router.settle()
    client.put(consumer(0, "routed.a", 0) + flow_frame)
    for _ in range(8):
        advance(router, client, flow_frame)
    broker.put(broker_answers(frames(broker)))
    for _ in range(8):
        advance(router, client, flow_frame)
    router.settle()
    client.feed(flow(0, 5))
    router.settle()
    broker.feed(transfer(0, 0, message(b"x"), settled=True, channel=1))
    router.settle()
    check_turns(client.connection)
    assert messages(frames(client)) == [message(b"x")]
