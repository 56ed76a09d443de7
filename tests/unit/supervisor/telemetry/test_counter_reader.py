"""Rows of telemetry: increments of the counters in shared memory, by link, flow, worker and ring."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from sluice.router.ring.region import Region
from sluice.router.testing.interworker import RingEnd, claim_link, free_link, set_worker, write_sample
from sluice.supervisor.telemetry.counter_reader import CounterReader, KnownLink

WORKERS = 2
PRODUCER, CONSUMER = 1, 2  # values of LinkSlot.direction


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region.create(WORKERS, 10, 4, 4096)
    yield made
    made.close()


@pytest.fixture
def reader(region: Region) -> CounterReader:
    made = CounterReader(region, "boot")
    made.set_link_facts(0, 0, 7, KnownLink(1, 11, "q"))
    made.set_link_facts(1, 0, 8, KnownLink(2, 12, "q"))
    return made


def test_link_row_has_increments_and_facts(region: Region, reader: CounterReader) -> None:
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=5, octets=500, credit=20, capacity=250)
    (row,) = reader.look()["fact_link"]
    assert (row["link_id"], row["connection_id"], row["address"], row["dir"]) == (1, 11, "q", "in")
    assert (row["deliveries"], row["octets"], row["credit"], row["capacity"]) == (5, 500, 20, 250)
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=7, octets=900)
    (row,) = reader.look()["fact_link"]
    assert (row["boot_id"], row["deliveries"], row["octets"]) == ("boot", 2, 400)


def test_reused_slot_does_not_get_facts_of_earlier_link(region: Region, reader: CounterReader) -> None:
    claim_link(region, 0, 0, 9, direction=PRODUCER, deliveries=5)
    (row,) = reader.look()["fact_link"]
    assert (row["link_id"], row["connection_id"], row["address"]) == (0, 0, None)


def test_facts_of_ended_link_are_kept_until_its_last_row(region: Region, reader: CounterReader) -> None:
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=5, ended=7)
    free_link(region, 0, 0)
    (row,) = reader.look()["fact_link"]
    assert (row["link_id"], row["deliveries"]) == (1, 5)
    assert reader.state()[0]["links"] == [[1, 0, 8, 2, 12, "q"]]


def test_flow_names_only_producer_of_its_address(region: Region, reader: CounterReader) -> None:
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=5)
    claim_link(region, 1, 0, 8, direction=CONSUMER, deliveries=5, taken=(5, 0))
    (flow,) = reader.look()["fact_flow"]
    assert (flow["worker_in"], flow["worker_out"], flow["deliveries"]) == (0, 1, 5)
    assert (flow["link_in"], flow["link_out"], flow["connection_in"], flow["connection_out"]) == (1, 2, 11, 12)


@pytest.mark.parametrize("address", ["q", None])
def test_flow_names_no_producer_if_another_may_have_sent(
    region: Region, reader: CounterReader, address: str | None
) -> None:
    reader.set_link_facts(0, 1, 9, KnownLink(3, 13, address))
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=3)
    claim_link(region, 0, 1, 9, direction=PRODUCER, deliveries=2)
    claim_link(region, 1, 0, 8, direction=CONSUMER, deliveries=5, taken=(5, 0))
    (flow,) = reader.look()["fact_flow"]
    assert (flow["link_in"], flow["connection_in"], flow["deliveries"]) == (None, None, 5)


def test_deliveries_not_from_rings_flow_within_worker(region: Region, reader: CounterReader) -> None:
    claim_link(region, 1, 0, 8, direction=CONSUMER, deliveries=5, taken=(3, 0))
    flows = {flow["worker_in"]: flow["deliveries"] for flow in reader.look()["fact_flow"]}
    assert flows == {0: 3, 1: 2}


def test_delivery_taken_in_one_interval_and_sent_in_next_counts_once(region: Region, reader: CounterReader) -> None:
    claim_link(region, 1, 0, 8, direction=CONSUMER, deliveries=1, taken=(3, 0))
    assert [flow["deliveries"] for flow in reader.look()["fact_flow"]] == [3]
    claim_link(region, 1, 0, 8, direction=CONSUMER, deliveries=4, taken=(3, 0))
    flows = [(flow["worker_in"], flow["deliveries"]) for flow in reader.look()["fact_flow"]]
    assert flows == [(1, 1)], "two of three deliveries were owed to the ring"


def test_links_of_other_router_are_summed_by_connection(region: Region, reader: CounterReader) -> None:
    reader.set_peer(12, "B", 5)
    reader.set_link_facts(1, 1, 9, KnownLink(4, 12, None))
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=9)
    claim_link(region, 1, 0, 8, direction=CONSUMER, deliveries=3, octets=30, unsettled=1)
    claim_link(region, 1, 1, 9, direction=PRODUCER, deliveries=2, octets=20, unsettled=2, round_trip=70)
    (row,) = reader.look()["fact_internode"]
    assert (row["connection_id"], row["peer"], row["cost"]) == (12, "B", 5)
    assert (row["sent"], row["octets_sent"], row["received"], row["octets_received"]) == (3, 30, 2, 20)
    assert (row["unsettled"], row["rtt_us"]) == (3, 70)
    reader.remove_peer(12)
    claim_link(region, 1, 0, 8, direction=CONSUMER, deliveries=4)
    assert reader.look()["fact_internode"] == []


def test_worker_row_has_increments_and_present_values(region: Region, reader: CounterReader) -> None:
    set_worker(region, 0, pid=os.getpid(), wakes=10, ingress=4, connections=3)
    first = reader.look()["fact_worker"][0]
    assert (first["loop_turns"], first["ingress"], first["connections"]) == (10, 4, 3)
    assert first["rss"] > 0
    set_worker(region, 0, pid=os.getpid(), wakes=12, ingress=9, connections=2)
    second, other = reader.look()["fact_worker"]
    assert (second["loop_turns"], second["ingress"], second["connections"]) == (2, 5, 2)
    assert second["cpu_user_us"] <= first["cpu_user_us"] + 10_000_000, "CPU time since the last row only"
    assert (other["pid"], other["rss"], other["latency_hist"]) == (0, 0, None)


def test_ring_row_counts_written_octets(region: Region, reader: CounterReader) -> None:
    ring = RingEnd(region, 0, 1)
    assert ring.write(bytes(100))
    (row,) = reader.look()["fact_ring"]
    assert (row["worker_in"], row["worker_out"]) == (0, 1)
    assert row["bytes"] == row["used"] >= 100
    (waiting,) = reader.look()["fact_ring"]
    assert (waiting["bytes"], waiting["used"]) == (0, row["used"])
    assert RingEnd(region, 0, 1).read() == bytes(100)
    assert reader.look()["fact_ring"] == []


def test_sample_row_has_outcome_and_link(region: Region, reader: CounterReader) -> None:
    write_sample(region, 1, at=10**9, octets=5, link=0, generation=8, latency=3, settle=9, kind=0x25)
    (row,) = reader.look()["delivery_sample"]
    assert (row["link_id"], row["outcome"], row["octets"], row["latency_us"], row["settle_us"]) == (
        2, "rejected", 5, 3, 9,
    )  # fmt: skip
    assert reader.look()["delivery_sample"] == []


def test_successor_continues_without_repeating_counts(region: Region, reader: CounterReader) -> None:
    reader.set_peer(11, "B", 1)
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=5)
    set_worker(region, 0, ingress=5)
    write_sample(region, 1, at=10**9, link=0, generation=8)
    reader.look()
    plain, slots = reader.state()
    successor = CounterReader(region, "boot")
    successor.resume(json.loads(json.dumps(plain)), slots)
    claim_link(region, 0, 0, 7, direction=PRODUCER, deliveries=6)
    rows = successor.look()
    (link,) = rows["fact_link"]
    assert (link["deliveries"], link["address"]) == (1, "q")
    assert rows["fact_internode"][0]["peer"] == "B"
    assert (rows["fact_worker"][0]["ingress"], rows["delivery_sample"]) == (0, [])


@pytest.mark.parametrize("workers", [1, 3])
def test_state_of_region_with_other_workers_is_refused(region: Region, workers: int) -> None:
    other = Region.create(workers, 10, 4, 4096)
    plain, slots = CounterReader(other, "boot").state()
    other.close()
    with pytest.raises(ValueError, match="another region"):
        CounterReader(region, "boot").resume(plain, slots)
