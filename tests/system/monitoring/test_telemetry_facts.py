"""Telemetry of octets, of single deliveries, and of other routers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peer import frames, message
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.monitoring.telemetry import rows, total, wait_total
from tests.system.networks import RouterView, interior
from tests.system.router import SETTINGS, Section, listener, poll

SAMPLE_EVERY = 1024


def telemetry(path: Path) -> Section:
    return "telemetry", {"path": path, "interval": 1, "fileSeconds": 1}


def test_octets_equal_those_of_the_messages(start: Start, tmp_path: Path, workers: int) -> None:
    """Messages of one and several frames, settled and unsettled, to one and several consumers."""
    router = start([listener(), *SETTINGS, telemetry(tmp_path)], workers)
    payloads = [message.message("x" * size) for size in (0, 100, 10_000, 200_000, 3)]
    whole = sum(map(len, payloads))
    for address, consumers in (("balanced/o", 1), ("multicast/o", 3)):
        receivers = [AmqpPeer.opened(router.port).receiver(address, 100) for _ in range(consumers)]
        sender = AmqpPeer.opened(router.port).sender(address)
        for number, payload in enumerate(payloads):
            delivery = sender.send(payload, settled=number % 2 == 0)
            for receiver in receivers:
                got = receiver.next()
                assert len(got.payload) == len(payload)
                got.settle()
            if number % 2:
                sender.outcome(delivery)
    router.stop()
    links = rows(tmp_path, "fact_link")
    for address, consumers in (("balanced/o", 1), ("multicast/o", 3)):
        assert total(links, "octets", address=address, dir="in") == whole
        assert total(links, "octets", address=address, dir="out") == consumers * whole


@pytest.mark.parametrize("settled", [False, True])
def test_delivery_sample_is_taken_every_1024_deliveries(
    start: Start, tmp_path: Path, workers: int, settled: bool
) -> None:
    router = start([listener(), *SETTINGS, telemetry(tmp_path)], workers)
    receiver = AmqpPeer.opened(router.port).receiver("balanced/s", 3 * SAMPLE_EVERY)
    sender = AmqpPeer.opened(router.port).sender("balanced/s")
    payload = message.message("x" * 100)
    for _ in range(2 * SAMPLE_EVERY // 128):
        last = [sender.send(payload, settled=settled) for _ in range(128)][-1]
        for delivery in receiver.receive(128):
            if not settled:
                delivery.settle()
        if not settled:
            sender.outcome(last)
    router.stop()
    found = [row for row in rows(tmp_path, "delivery_sample") if row["address"] == "balanced/s" and row["every"] > 1]
    assert [row["every"] for row in found] == [SAMPLE_EVERY] * 2, "beside those of slow deliveries"
    links = {row["link_id"]: row for row in rows(tmp_path, "dim_link")}
    for row in found:
        assert row["octets"] == len(payload)
        assert row["outcome"] == ("presettled" if settled else "accepted")
        assert 0 <= row["latency_us"] < 60_000_000
        assert (row["settle_us"] is None) == settled
        assert settled or row["latency_us"] <= row["settle_us"]
        assert links[row["link_id"]]["dir"] == "out"
        assert links[row["link_id"]]["connection_id"] == row["connection_id"]


def test_rejected_and_modified_deliveries_are_samples(start: Start, tmp_path: Path) -> None:
    router = start([listener(), *SETTINGS, telemetry(tmp_path)])
    receiver = AmqpPeer.opened(router.port).receiver("balanced/b", 100)
    sender = AmqpPeer.opened(router.port).sender("balanced/b")
    outcomes = [frames.ACCEPTED, frames.rejected("a:b"), frames.modified(True), frames.RELEASED, frames.rejected("a:b")]
    for outcome in outcomes:
        delivery = sender.send(message.message("x"))
        receiver.next().settle(outcome)
        sender.outcome(delivery)
    router.stop()
    found = [row for row in rows(tmp_path, "delivery_sample") if row["address"] == "balanced/b" and row["every"] == 1]
    assert [row["outcome"] for row in found] == ["rejected", "modified", "rejected"]


@pytest.mark.long
def test_samples_survive_killed_process_without_loss_or_repetition(start: Start, tmp_path: Path) -> None:
    router = start([listener(), *SETTINGS, telemetry(tmp_path)])
    receiver = AmqpPeer.opened(router.port).receiver("balanced/d", 100)
    sender = AmqpPeer.opened(router.port).sender("balanced/d")
    for number in range(3):
        delivery = sender.send(message.message("x"))
        receiver.next().settle(frames.rejected("a:b"))
        sender.outcome(delivery)
        wait_total(tmp_path, "delivery_sample", "every", number + 1, outcome="rejected")
        (process,) = (each for each in router.family() if each.name().endswith("-tel"))
        process.kill()
        router.wait_log("telemetry process is restarted")
    router.stop()
    assert total(rows(tmp_path, "delivery_sample"), "every", outcome="rejected") == 3


def test_octets_and_round_trips_between_routers_are_recorded(start: Start, tmp_path: Path) -> None:
    first = start([*interior("A"), telemetry(tmp_path)])
    second = start(interior("B", to=[first.ports["net"]]))
    RouterView(first).wait_nodes(B=1)
    RouterView(second).wait_nodes(A=1)
    receiver = AmqpPeer.opened(second.port).receiver("far", 100)
    sender = AmqpPeer.opened(first.port).sender("far")
    payloads = [message.message("x" * size) for size in (10, 1000, 100_000)]
    for payload in payloads:
        delivery = sender.send(payload)
        receiver.next().settle()
        sender.outcome(delivery)

    def known() -> bool:
        found = rows(tmp_path, "fact_internode")
        octets = sum(row["octets_sent"] for row in found)
        return octets > sum(map(len, payloads)) and any(row["rtt_us"] for row in found)

    poll(known, "octets to the other router, and the round trip")
    found = rows(tmp_path, "fact_internode")
    assert {row["peer"] for row in found} == {"B"}
    assert all(0 < row["rtt_us"] < 10_000_000 for row in found if row["rtt_us"] is not None)
