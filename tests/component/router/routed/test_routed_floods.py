"""Floods from one end of a link route while the other end does not read.

The write buffer stays within its bound, and the peer receives the latest state when it reads again.
"""

from typing import Any

import pytest

from sluice.router.testing.output import octets_waiting
from tests.component.engine.routed_ends import ROUTED, ScriptedRouteContainer, transfer_out
from tests.component.router.routed.link_pair import FRAME, HANDLE, PADDING, RoutedLinkPair, check_bounded
from tests.peer.frames import ACCEPTED, Frame, rejected
from tests.peer.talk import MANY, flow, frames, message, messages, of, producer, say, transfer
from tests.peer.types import Described, Symbol, ULong

UNSENT_MOST = 16_777_216  # octets above which routed attaches are refused (ROUTED_UNSENT_MOST)
WORKERS = [1, 3]


@pytest.mark.parametrize("settled", [True, False])
def test_transactional_state_precedes_transfer_that_discharges_it(routers, settled) -> None:
    pair = RoutedLinkPair(routers(1), sends=False)
    pair.client.feed(producer(1, "queue.b") + flow(0, 1))
    attach = pair.container.accept()
    pair.container.flow(40 + attach.handle, 10)
    pair.flood("client", say("transfer", channel=ROUTED, payload=message(b"x"), handle=HANDLE, delivery_id=0,
                             delivery_tag=b"t", message_format=0))  # fmt: skip
    pair.discard()
    state = Described(ULong(0x34), [b"transaction", ACCEPTED])
    pair.client.feed(say("disposition", role=True, first=0, settled=settled, state=state) + transfer(1, 0, b"z"))
    pair.router.settle()
    said = [frame.name for frame in frames(pair.container.peer) if frame.name in ("disposition", "transfer")]
    assert said == ["disposition", "transfer"]
    pair.close()


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("reader", ["client", "container"])
@pytest.mark.parametrize("settled", [False, True], ids=["states", "outcomes"])
def test_dispositions_for_blocked_peer_are_merged(routers, workers, reader, settled) -> None:
    """The reader gets the latest unsettled state of each delivery; outcomes replace states."""
    pair = RoutedLinkPair(routers(workers), sends=reader == "client")
    if reader == "client":
        pair.container.flow(HANDLE, MANY)
        octets = [transfer(0, number, message(b"x")) for number in range(2_000)]
        pair.client.feed(b"".join(octets))
    else:
        pair.client.feed(flow(0, MANY))
        pair.router.settle()
        pair.container.peer.feed(b"".join(transfer_out(number) for number in range(2_000)))
    pair.router.settle()
    pair.discard()
    stopped = pair.end(reader)
    stopped.blocked = True
    for time in range(30):
        octets = [
            say("disposition", channel=ROUTED if reader == "client" else 0, role=True, first=number,
                state=rejected("a:b", f"{time} {number} {'w' * 200}"))
            for number in range(2_000)
        ]  # fmt: skip
        pair.flood(reader, b"".join(octets))
        check_bounded(stopped)
    if settled:
        pair.flood(
            reader,
            say("disposition", channel=ROUTED if reader == "client" else 0, role=True, first=0, last=1_999,
                settled=True, state=ACCEPTED),
        )  # fmt: skip
        check_bounded(stopped)
    stopped.blocked = False
    pair.router.settle()
    last: dict[int, Any] = {}
    for each in of(frames(stopped), "disposition"):
        end = each.first if each.last is None else each.last
        last.update(dict.fromkeys(range(each.first, end + 1), each))
    assert len(last) == 2_000
    if settled:
        assert all(each.settled and each.state == ACCEPTED for each in last.values())
    pair.close()


def handles_of(received: list[Frame], name: str) -> set[Any]:
    return {each.handle for each in of(received, name)}


@pytest.mark.parametrize("workers", WORKERS)
def test_detaches_for_blocked_peer_wait_with_their_error(routers, workers) -> None:
    pair = RoutedLinkPair(routers(workers), sends=True)
    handles = []
    for number in range(1, 60):
        pair.client.feed(producer(number, "queue.a"))
        handles.append(40 + pair.container.accept().handle)
    pair.router.settle()
    pair.discard()
    stopped = pair.client
    stopped.blocked = True
    error = Described(ULong(0x1D), [Symbol("a:b"), "e" * 12_000])
    for handle in handles:
        # A flow that waits for a detached link is dropped.
        pair.container.flow(handle, 1, properties={Symbol("x"): PADDING})
        pair.container.say("detach", handle=handle, closed=True, error=error)
        check_bounded(stopped)
    # The reader's own detaches cross the waiting ones.
    stopped.feed(b"".join(say("detach", handle=handle, closed=True) for handle in range(30, 60)))
    pair.router.settle()
    check_bounded(stopped)
    stopped.blocked = False
    pair.router.settle()
    received = frames(stopped)
    assert handles_of(received, "detach") == set(range(1, 60))
    assert all(each.error.value[1] == "e" * 12_000 for each in of(received, "detach"))
    for handle in handles_of(received, "detach"):
        assert [each.name for each in received if each.fields.get("handle") == handle][-1] == "detach"
    stopped.feed(b"".join(say("detach", handle=handle, closed=True) for handle in range(1, 30)))
    pair.router.settle()
    assert len(of(frames(pair.container.peer), "detach")) == 59
    pair.close()
    pair.router.check_empty()


@pytest.mark.parametrize("workers", WORKERS)
def test_attaches_for_blocked_container_are_refused(routers, workers) -> None:
    """Clients attach and detach, with long properties, until too much output waits for the container."""
    router = routers(workers, links=4_096)
    pair = RoutedLinkPair(router, sends=True)
    stopped = pair.container.peer
    stopped.blocked = True
    padding = {Symbol("p"): "q" * 15_000}
    refused: list[Frame] = []
    number = 0
    while not refused:
        number += 1
        assert number * 15_000 < UNSENT_MOST + 40 * FRAME
        pair.client.feed(producer(number, "queue.a", properties=padding) + say("detach", handle=number, closed=True))
        router.settle()
        refused = of(frames(pair.client), "detach")
        assert octets_waiting(stopped.connection) <= UNSENT_MOST + FRAME
    assert refused[0].error.value[0] == "amqp:resource-limit-exceeded"
    assert "does not read" in refused[0].error.value[1]
    # The container reads again: it receives the attaches and their detaches, and the next attach is relayed.
    stopped.blocked = False
    router.settle()
    received = frames(stopped)
    assert len(of(received, "attach")) == len(of(received, "detach")) == number - 1
    pair.client.feed(producer(number + 1, "queue.a"))
    router.settle()
    assert len(of(frames(stopped), "attach")) == 1
    pair.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_bystander_link_is_served_during_flood(routers, workers) -> None:
    router = routers(workers)
    pair = RoutedLinkPair(router, sends=False)
    bystander = ScriptedRouteContainer(router, len(router.workers) - 1)
    # The next attach goes to the container with fewer links. Until a link exists the containers take turns.
    sender = pair.connect(0)
    for number in range(2):
        sender.feed(producer(number, "queue.i"))
    router.settle()
    bystander.accept()
    router.settle()
    bystander.flow(HANDLE, 10_000)
    mine = of(frames(sender), "flow")[-1].handle
    pair.container.peer.blocked = True
    properties: dict[str, Any] = {"properties": {Symbol("x"): PADDING}}
    for number in range(60):
        pair.flood("container", pair.flow("container", 1 + number, **properties))
        sender.feed(transfer(mine, number, message(b"%d" % number)))
        router.settle()
        bystander.say("disposition", role=True, first=number, settled=True, state=ACCEPTED)
        assert messages(frames(bystander.peer)) == [message(b"%d" % number)]
        assert [each.first for each in of(frames(sender), "disposition")] == [number]
    check_bounded(pair.container.peer)
    pair.close()


def test_settlement_by_sender_waits_with_queued_deliveries(routers) -> None:
    """The sender settles deliveries that its receiver has not read yet."""
    pair = RoutedLinkPair(routers(1), sends=False)
    pair.client.feed(flow(0, MANY))
    pair.router.settle()
    stopped = pair.client
    stopped.blocked = True
    pair.container.peer.feed(b"".join(transfer_out(number) for number in range(8_000)))
    pair.router.settle()
    check_bounded(stopped)
    container = say("disposition", channel=ROUTED, role=False, first=0, last=7_999, settled=True, state=ACCEPTED)
    pair.container.peer.feed(container)
    pair.router.settle()
    check_bounded(stopped)
    stopped.blocked = False
    pair.router.settle()
    assert len(messages(frames(stopped))) == 8_000
    pair.close()
