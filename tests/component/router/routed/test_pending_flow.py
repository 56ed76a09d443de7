"""Flows from one end of a link route while the other end does not read: merged into the latest state."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.router.testing.output import octets_waiting
from tests.component.router.routed.link_pair import FRAME, OUTPUT_HIGH, PADDING, RoutedLinkPair, check_bounded, fill
from tests.peer.talk import frames, of, producer, transfer
from tests.peer.types import Symbol

FLOWS = 2_000
CREDIT = 500
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
