"""Floods from one end of a link route while the other end does not read.

The write buffer stays within its bound, and the peer receives the latest state when it reads again.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.testing.output import octets_waiting
from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.component.engine.routed_ends import ROUTED, ScriptedRouteContainer, link_route, transfer_out
from tests.peer.frames import ACCEPTED, Frame, rejected
from tests.peer.talk import (
    MANY,
    consumer,
    flow,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    start,
    transfer,
)
from tests.peer.types import Described, Symbol, ULong

OUTPUT_HIGH = 131_072  # octets in a write buffer above which nothing more is added (router/amqp/endpoint.pxd)
FRAME = 16_384  # octets of the longest frame
UNSENT_MOST = 16_777_216  # octets above which routed attaches are refused (ROUTED_UNSENT_MOST)
HANDLE = 40  # handle of the container's link
FLOWS = 2_000
PADDING = "y" * 12_000
CREDIT = 500


class RoutedLinkPair:
    """Client and container with one routed link. Both link routes exist, and a second pair for bystanders."""

    def __init__(self, router: InProcessRouter, *, sends: bool, link: bool = True) -> None:
        """sends: the client sends to the container. link: the client attaches a link."""
        self.router = router
        router.core.link_routes.replace(
            (link_route("in"), link_route("out"), link_route("in", "other"), link_route("out", "other"))
        )
        self.sends = sends
        last = len(router.workers) - 1
        self.container = ScriptedRouteContainer(router, last)
        self.client = self.connect(0)
        if link:
            self.client.feed(producer(0, "queue.a") if sends else consumer(0, "queue.a", 0))
            self.container.accept()
            router.settle()
        self.discard()

    def connect(self, worker: int) -> InProcessPeer:
        peer = self.router.connect(worker)
        peer.feed(start())
        self.router.settle()
        frames(peer)
        return peer

    def discard(self) -> None:
        frames(self.client)
        frames(self.container.peer)

    def end(self, reader: str) -> InProcessPeer:
        return self.client if reader == "client" else self.container.peer

    def flood(self, reader: str, octets: bytes) -> None:
        """Send octets from the other end of `reader`."""
        (self.container.peer if reader == "client" else self.client).feed(octets)
        self.router.settle()

    def flow(self, reader: str, credit: int, count: int = 0, **fields: Any) -> bytes:
        """Return a flow from the other end of `reader`."""
        if reader == "client":
            return flow(HANDLE, credit, delivery_count=count, channel=ROUTED, **fields)
        return flow(0, credit, delivery_count=count, **fields)

    def close(self) -> None:
        for peer in (self.client, self.container.peer):
            peer.blocked = False
            peer.lose()
        self.router.settle()


def fill(pair: RoutedLinkPair, reader: str) -> None:
    """Fill a reader's write buffer to its bound with messages that it does not read."""
    size = 2 * OUTPUT_HIGH // 8_000
    if reader == "client":
        pair.client.feed(flow(0, size))
        pair.router.settle()
        octets = b"".join(
            say("transfer", channel=ROUTED, payload=b"z" * 8_000, handle=HANDLE, delivery_id=n, delivery_tag=b"%d" % n,
                message_format=0, settled=True)
            for n in range(size)
        )  # fmt: skip
    else:
        pair.container.flow(HANDLE, size)
        octets = b"".join(transfer(0, n, b"z" * 8_000, settled=True) for n in range(size))
    pair.flood(reader, octets)


def check_bounded(peer: InProcessPeer) -> None:
    assert octets_waiting(peer.connection) <= OUTPUT_HIGH + FRAME


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "properties": {"properties": {Symbol("x"): PADDING}},
    "echo": {"echo": True},
    "drain": {"drain": True},
}
WORKERS = [1, 3]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("reader", ["client", "container"])
@pytest.mark.parametrize("sends", [True, False], ids=["in", "out"])
@pytest.mark.parametrize("kind", KINDS)
def test_flows_for_blocked_peer_are_merged(routers, workers, reader, sends, kind) -> None:
    pair = RoutedLinkPair(routers(workers), sends=sends)
    stopped = pair.end(reader)
    stopped.blocked = True
    times = 300 if kind == "properties" else FLOWS
    for first in range(0, times, 50):
        for number in range(first, first + 50):
            fields: dict[str, Any] = dict(KINDS[kind])
            if "properties" in fields:
                fields["properties"] = {Symbol("x"): PADDING, Symbol("n"): number}
            # Each wake writes its flows, so send one flow per wake.
            pair.flood(reader, pair.flow(reader, 1 + number, **fields))
        check_bounded(stopped)
    pair.flood(reader, pair.flow(reader, CREDIT))
    check_bounded(stopped)
    stopped.blocked = False
    pair.router.settle()
    received = [each for each in of(frames(stopped), "flow") if each.handle is not None]
    assert received[-1].link_credit == CREDIT
    assert not received[-1].drain
    if kind == "properties":
        carried = [each.properties for each in received if each.properties]
        assert carried[-1]["n"] == times - 1
        assert len(received) * len(PADDING) <= OUTPUT_HIGH + 3 * FRAME
    if kind == "drain":
        assert any(each.drain for each in received)
    if kind == "echo":
        assert any(each.echo for each in received)
    assert octets_waiting(stopped.connection) == 0
    pair.close()


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
@pytest.mark.parametrize("sends", [True, False], ids=["in", "out"])
def test_flow_properties_for_reading_peer_are_all_relayed(routers, workers, reader, sends) -> None:
    pair = RoutedLinkPair(routers(workers), sends=sends)
    pair.flood(reader, b"".join(pair.flow(reader, 10 + n, properties={Symbol("n"): n}) for n in range(4)))
    received = [each for each in of(frames(pair.end(reader)), "flow") if each.handle is not None]
    assert [(each.link_credit, each.properties["n"]) for each in received] == [(10 + n, n) for n in range(4)]
    pair.close()


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("asked", [{"echo": True}, {"drain": True}], ids=["echo", "drain"])
def test_request_behind_full_buffer_is_kept_until_written(routers, workers, asked) -> None:
    pair = RoutedLinkPair(routers(workers), sends=False)
    # The container sends. The client's other link fills the container's write buffer.
    other = producer(1, "queue.b")
    pair.client.feed(other)
    attach = pair.container.accept()
    handle = 40 + attach.handle
    pair.container.flow(handle, 100)
    pair.discard()
    stopped = pair.container.peer
    stopped.blocked = True
    pair.client.feed(b"".join(transfer(1, n, b"z" * 8_000, settled=True) for n in range(40)))
    pair.router.settle()
    check_bounded(stopped)
    requests: list[dict[str, Any]] = [{}, asked, {}, {}]
    for fields in requests:
        pair.flood("container", pair.flow("container", 7, **fields))
    pair.flood("container", pair.flow("container", 9))
    stopped.blocked = False
    pair.router.settle()
    received = [each for each in of(frames(stopped), "flow") if each.handle == attach.handle - 1]
    (name,) = asked
    assert [bool(each.fields.get(name)) for each in received] == ([True] if name == "echo" else [True, False])
    assert [each.link_credit for each in received] == ([9] if name == "echo" else [7, 9])
    pair.close()


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("reader", ["client", "container"])
def test_credit_is_exact_after_flood(routers, workers, reader) -> None:
    """The link sends to the reader; the deliveries are counted, in order with the flows."""
    pair = RoutedLinkPair(routers(workers), sends=reader == "container")
    stopped = pair.end(reader)
    stopped.blocked = True
    fill(pair, reader)
    check_bounded(stopped)
    size = 2 * OUTPUT_HIGH // 8_000
    for number in range(200):
        pair.flood(reader, pair.flow(reader, number, count=size, properties={Symbol("n"): number}))
    check_bounded(stopped)
    stopped.blocked = False
    pair.router.settle()
    received = frames(stopped)
    assert len(of(received, "transfer")) == size
    last = of(received, "flow")[-1]
    assert received.index(last) > received.index(of(received, "transfer")[-1])
    assert (last.delivery_count, last.link_credit, last.properties) == (size, 199, {"n": 199})
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


FLOW = st.tuples(
    st.integers(0, 50),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(0, 5),
    st.booleans(),
)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("reader", ["client", "container"])
@given(st.lists(FLOW, min_size=1, max_size=20), st.integers(0, 20))
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocked_reader_ends_in_state_of_reading_one(routers, workers, reader, flows, full_at) -> None:
    """Flows are random. From one of them on the reader does not read and its buffer is full."""
    router = routers(workers)
    results = []
    for stops in (False, True):
        pair = RoutedLinkPair(router, sends=True)
        stopped = pair.end(reader)
        state: dict[str, Any] = {}
        for number, (credit, drain, echo, properties, available) in enumerate(flows):
            if stops and number == min(full_at, len(flows) - 1):
                stopped.blocked = True
                for _ in range(12):
                    pair.flood(reader, pair.flow(reader, 3, properties={Symbol("x"): PADDING}))
            fields: dict[str, Any] = {"drain": drain or None, "echo": echo or None}
            if properties is not None:
                fields["properties"] = {Symbol("n"): properties}
            if available:
                fields["available"] = credit
            pair.flood(reader, pair.flow(reader, credit, **fields))
        check_bounded(stopped)
        stopped.blocked = False
        router.settle()
        for each in of(frames(stopped), "flow"):
            if each.handle is not None:
                state["credit"] = (each.delivery_count or 0) + each.link_credit
                state["drain"] = bool(each.drain)
                if each.properties and "n" in each.properties:
                    state["n"] = each.properties["n"]
        results.append(state)
        pair.close()
    assert results[0] == results[1]


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
