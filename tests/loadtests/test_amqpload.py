"""amqpload through the byte relay: exact counts, order, windows, framing, pace and throttles."""

import pytest

from loadtests.processes import Relay
from tests.loadtests.conftest import AmqpLoadRun, amqpload

CLEAN = ("lost", "duplicates", "disordered", "corrupt", "misrouted", "settled_twice", "aborted")


def through(relay: Relay, **options: object) -> AmqpLoadRun:
    """Run amqpload with both ends on the relay. The run must be without fault."""
    run = amqpload(port=relay.sender_port, receiver_port=relay.receiver_port, direct=True, **options)
    assert run.status == 0, run.complaints
    assert run.report["failed"] is False
    assert {name: run.report[name] for name in CLEAN} == dict.fromkeys(CLEAN, 0)
    return run


def test_unsettled_messages_are_counted_exactly(relay: Relay) -> None:
    report = through(relay, count=30_000).report
    assert report["sent"] == report["received"] == report["settled"] == report["accepted"] == 30_000
    assert report["rejected"] == report["released"] == report["modified"] == report["no_outcome"] == 0
    assert report["bytes"] == 30_000 * (100 + 8)  # eight octets of section header
    latency = report["latency_us"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]


def test_relays_can_be_chained(relay: Relay) -> None:
    """The first relay connects to the second for each of its connections."""
    with Relay(relay) as first:
        assert first.sender_port != relay.sender_port
        assert through(first, pairs=3, distinct=True, count=1_000).report["accepted"] == 3_000


def test_presettled_messages_have_no_outcome(relay: Relay) -> None:
    report = through(relay, count=30_000, presettled=True).report
    assert report["received"] == 30_000
    assert report["settled"] == 0


@pytest.mark.parametrize(
    ("size", "max_frame"), [(16, 512), (475, 512), (476, 512), (5_000, 512), (100_000, 4_096), (3_000_000, 65_536)]
)
def test_bodies_of_any_number_of_frames_arrive_whole(relay: Relay, size: int, max_frame: int) -> None:
    report = through(relay, count=20, size=size, max_frame=max_frame).report
    assert report["received"] == 20
    assert report["bytes"] == 20 * (size + 8)


def test_small_windows_and_wrapping_ids_are_handled(relay: Relay) -> None:
    first = 2**32 - 50
    report = through(relay, count=500, size=2_000, max_frame=512, session_window=3, credit=2, first_id=first).report
    assert report["accepted"] == 500


def test_pairs_keep_to_their_own_addresses(relay: Relay) -> None:
    report = through(relay, pairs=40, distinct=True, count=300).report
    assert report["received"] == report["accepted"] == 40 * 300


@pytest.mark.parametrize("max_frame", [512, 65_536])
def test_messages_of_anonymous_senders_name_their_address(relay: Relay, max_frame: int) -> None:
    """Properties take 16 octets plus the address."""
    run = through(relay, pairs=2, distinct=True, anonymous=True, count=300, size=5_000, max_frame=max_frame)
    assert run.report["bytes"] == 2 * 300 * (5_000 + 8 + 16 + len("bench.0"))


def test_rate_is_kept(relay: Relay) -> None:
    report = through(relay, rate=2_000, count=1_000).report
    assert report["received"] == 1_000
    assert report["seconds"] >= 999 / 2_000  # the last message is due then, however late it may be


def test_time_limit_of_run_is_kept(relay: Relay) -> None:
    report = through(relay, seconds=0.3).report
    assert report["seconds"] >= 0.29
    assert report["sent"] == report["accepted"] > 1_000


@pytest.mark.parametrize("throttle", ["read", "window"])
def test_slow_receiver_takes_its_rate(relay: Relay, throttle: str) -> None:
    rate, size, count = 10_000_000, 5_000_000, 2
    report = through(
        relay, size=size, count=count, read_rate=rate, throttle=throttle, session_window=16, credit=2
    ).report
    burst = 0.2  # seconds: 0.1 of the rate may be taken at the start, and the clocks start at different times
    assert report["seconds"] >= size * count / rate - burst


def test_report_includes_given_processes(relay: Relay) -> None:
    report = through(relay, count=20_000, pid=relay.pid).report
    assert report["router_memory_kib"]["pss_peak"] >= report["router_memory_kib"]["pss_before"] > 0
    assert report["router_cpu"]["us_per_delivery"] >= 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "--port"),
        ({"port": 1, "size": 15}, "from 16 to"),
        ({"port": 1, "count": "many"}, "--count many"),
        ({"port": 1, "count": "1.5"}, "whole number"),
        ({"port": 1, "direct": True}, "--receiver-port"),
        ({"port": 1, "senders": 2, "distinct": True}, "as many senders as receivers"),
        ({"port": 1, "place": "apart"}, "--pid"),
        ({"port": 1, "throttle": "brake"}, "read or window"),
    ],
)
def test_wrong_usage_is_named(options: dict[str, object], complaint: str) -> None:
    run = amqpload(**options)
    assert run.status == 2
    assert complaint in run.complaints


def test_connection_to_closed_port_is_a_fault() -> None:
    with Relay() as ended:
        port = ended.sender_port
    run = amqpload(port=port, count=1)
    assert run.status == 1
    assert "Connection refused" in run.complaints
