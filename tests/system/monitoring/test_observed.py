"""Measurements of workers for management: stuck deliveries, links without credit, latency, and the ends of links."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.system.counters import Counters
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, listener, poll

#: Seconds within which the test hooks, on a busy machine, find deliveries older than 3 s; they look every 5 s.
SCAN_SECONDS = 20.0
#: Upper bound in µs for a message and its settlement on a busy machine; histogram buckets below it are searched.
BUSY_US = 1 << 20


@pytest.fixture
def router_with_hooks(start: Start, workers: int) -> RouterProcess:
    """Router started with -T, which looks for stuck deliveries every 5 s."""
    return start([listener()], workers=workers, options=["-T"])


def pair(router: RouterProcess, peers: list[AmqpPeer], address: str, credit: int) -> tuple[Any, Any]:
    consuming, sending = AmqpPeer.opened(router.port), AmqpPeer.opened(router.port)
    peers.extend((consuming, sending))
    receiver = consuming.receiver(address, credit)
    return sending.sender(address), receiver


def test_stuck_deliveries_and_blocked_links_are_counted_and_logged(
    router_with_hooks: RouterProcess, peers: list[AmqpPeer]
) -> None:
    assert (
        "Stuck delivery detection: Scan interval: 5 seconds, Delivery age threshold: 3 seconds" in router_with_hooks.log
    )
    assert "Streaming link scrubber: Scan interval: 5 seconds, max free pool: 2 links" in router_with_hooks.log
    sender, receiver = pair(router_with_hooks, peers, "a", credit=2)
    with Counters(router_with_hooks) as counters:
        for _ in range(3):
            sender.send(message.message("stuck"))
        deliveries = [receiver.next(), receiver.next()]
        poll(lambda: counters.totals_of("stuck") == 6, "three stuck deliveries on two links", SCAN_SECONDS)
        poll(lambda: counters.totals_of("blocked") == 1, "a consumer without credit", SCAN_SECONDS)
        links = {link["direction"]: link for link in counters.links()}
        assert {direction: link["stuck"] for direction, link in links.items()} == {1: 3, 2: 3}
        router_with_hooks.wait_log(
            r"ROUTER_CORE \(info\) \[C\d+\]\[L\d+\] Link blocked with zero credit for \d+ seconds"
        )
        router_with_hooks.wait_log(
            r"ROUTER_CORE \(info\) \[C\d+\]\[L\d+\] Stuck delivery: At least one delivery on this link has been "
            "undelivered/unsettled for more than 3 seconds"
        )
        receiver.flow(5)
        deliveries.append(receiver.next())
        poll(lambda: counters.totals_of("blocked") == 0, "credit has come", SCAN_SECONDS)
        for delivery in deliveries:
            delivery.settle()
        poll(lambda: counters.totals_of("stuck") == 0, "all deliveries are settled", SCAN_SECONDS)
        assert [link["accepted"] for link in counters.links()] == [3, 3]
    lost = router_with_hooks.lines
    sender.detach()
    router_with_hooks.wait_log(
        r"ROUTER_CORE \(info\) \[C\d+\]\[L\d+\] Link closed: del=3 presett=0 psdrop=0 acc=3 rej=0 rel=0 mod=0 "
        r"delay1=3 delay10=0 blocked=no"
    )
    receiver.peer.drop()
    router_with_hooks.wait_log(r"Link lost: del=3 presett=0 psdrop=0 acc=3 .* blocked=no")
    router_with_hooks.wait_log(r"\[C\d+\] Connection Closed")
    closed = next(index for index, line in enumerate(lost) if "Connection Closed" in line)
    assert any("Link lost" in line for line in lost[:closed])


def test_latency_is_measured_in_microseconds(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = start([listener()], workers=workers)
    sender, receiver = pair(router, peers, "a", credit=100)
    with Counters(router) as counters:
        for _ in range(50):
            number = sender.send(message.message("quick"))
            receiver.next().settle()
            sender.outcome(number)
        latency = counters.latency()
        assert sum(latency) == 50
        most = sum(count << bucket for bucket, count in enumerate(latency))  # each bucket's bounds differ by a factor 2
        assert most // 2 - latency[0] <= counters.totals_of("latency_sum") < most
        assert sum(latency[: BUSY_US.bit_length()]) == 50
        assert sum(latency[1:10]) > 0, latency  # some deliveries took less than 512 µs
        slots = counters.links()
        assert all(slot["finished"] == 50 and slot["last_delivery"] > 0 for slot in slots)
        assert all(0 < slot["rate"] <= 10 for slot in slots)
        poll(lambda: all(slot["rate"] == 0 for slot in counters.links()), "five seconds without a delivery", 10.0)
