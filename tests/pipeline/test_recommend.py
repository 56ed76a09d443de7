"""Placement plans, and the plans that `apply` refuses."""

import json
import random
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import recommend
from pipeline.commands.apply import read_plan
from pipeline.errors import PipelineError
from pipeline.jobs.percentiles import merge_histograms, percentile, rate_percentile
from pipeline.recommend import MOST_LOAD, TrafficFlow, assign_workers, placement_plan

NOW = datetime(2026, 3, 2, tzinfo=timezone.utc)  # noqa: UP017


def host(number):
    return "amqp", f"10.0.0.{number}"


def pairs(count, workers, across=True):
    """Return flows of `count` pairs of clients, each pair on two workers."""
    return [
        TrafficFlow(host(2 * n), host(2 * n + 1), n % workers, (n + across) % workers, 100 + n % 3)
        for n in range(count)
    ]


def test_placement_joins_communicating_pairs():
    found = assign_workers(pairs(40, 4), 4)
    assert (found.share_before, found.share_after) == (1.0, 0.0)
    assert found.skew_after <= MOST_LOAD
    assert all(found.workers[host(2 * n)] == found.workers[host(2 * n + 1)] for n in range(40))


def test_placement_without_gain_moves_nothing():
    assert placement_plan("R", pairs(40, 4, across=False), 4) == []
    assert placement_plan("R", pairs(40, 4), 1) == []
    assert placement_plan("R", [], 4) == []


def test_placement_does_not_load_a_single_worker():
    assert placement_plan("R", [TrafficFlow(host(1), host(2), 0, 1, 1000)], 2) == []


def test_placement_leaves_unknown_clients():
    flows = [*pairs(20, 2), TrafficFlow(None, host(1), 0, 1, 1000)]
    found = assign_workers(flows, 2)
    assert found.share_after == pytest.approx(1000 / sum(flow.deliveries for flow in flows))


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 8))
def test_placement_keeps_workers_near_the_mean(seed, workers):
    """A worker may get more only if a single client exceeds its share."""
    source = random.Random(seed)
    flows = [
        TrafficFlow(host(source.randrange(40)), host(source.randrange(40)), source.randrange(workers),
             source.randrange(workers), 1 + int(source.paretovariate(1.2)))
        for _ in range(source.randrange(1, 80))
    ]  # fmt: skip
    found = assign_workers(flows, workers)
    sums = [0] * workers
    for node, worker in found.workers.items():
        sums[worker] += found.evidence[node]
    # The last group goes to the least loaded worker, whose load is at most the mean.
    mean = sum(sums) / workers
    assert max(sums) <= mean + max(MOST_LOAD * mean, max(found.evidence.values()))


def plan_file(tmp_path, **changes):
    rules = placement_plan("R", pairs(10, 2), 2)
    made = recommend.make_plan(rules, [], NOW - timedelta(days=1), NOW, NOW)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**made, **changes}))
    return str(path)


def test_plan_file_is_read(tmp_path):
    plan = read_plan(plan_file(tmp_path), NOW)
    assert len(plan["rules"]) == len(plan["inverse"]) == 20
    assert plan["rules"][0]["gain"]["cross_worker_before"] == 1.0


@pytest.mark.parametrize(
    ("changes", "when", "text"),
    [
        ({"version": 2}, NOW, "plan version 2 is not supported, only 1"),
        ({"rules": []}, NOW, "was edited after it was made"),
        ({}, NOW + timedelta(days=8), "expired on 2026-03-09"),
        ({"expires_at": 7}, NOW, "is not a plan"),
    ],
)
def test_invalid_plan_file_is_refused(tmp_path, changes, when, text):
    with pytest.raises(PipelineError, match=text):
        read_plan(plan_file(tmp_path, **changes), when)


def test_capacity_advice_follows_littles_law():
    assert recommend.capacity_advice(1250, 200_000, 250) == 376
    assert recommend.capacity_advice(100, 200_000, 250) is None


@pytest.mark.parametrize(
    ("rate", "held_back", "each", "needed"),
    [
        (3.0, 0.5, 2.0, 4),  # 6 would be sent, with a reserve of a fifth
        (1.0, 0.0, 10.0, 1),
        (10.0, 0.0, 2.0, 6),
        (1.0, 1.0, 1.0, 12),  # demand of producers without any credit is unknown: ten times the rate is assumed
    ],
)
def test_demand_gives_needed_consumers(rate, held_back, each, needed):
    assert recommend.AddressDemand(rate, held_back, 1, each).needed == needed


def test_connections_advice_leaves_room():
    assert recommend.connections_advice(100, None) == 151
    assert recommend.connections_advice(1, 65_535) == 10
    assert recommend.connections_advice(100, 1000) is None


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 31), st.integers(1, 1000), min_size=1), st.integers(1, 100))
def test_percentiles_lie_in_their_bucket(histogram, percent):
    found = percentile(histogram, percent)
    assert found is not None
    values = sorted(bucket for bucket, count in histogram.items() for _ in range(count))
    bucket = values[max(0, -(-len(values) * percent // 100) - 1)]
    assert (0 if bucket == 0 else 2 ** (bucket - 1)) <= found <= 2**bucket


def test_percentiles_without_values_are_empty():
    assert percentile({}, 50) is None
    assert rate_percentile([], 50) == 0.0
    assert (rate_percentile([3, 1, 2], 50), rate_percentile([3, 1, 2], 99)) == (2, 3)
    assert merge_histograms([(1, 2), (3, 4), (1, 5)]) == {1: 7, 3: 4}
