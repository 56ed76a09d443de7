"""Metrics and status lines of a lander that landed messages from a small broker in this process."""

from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")
from prometheus_client import CollectorRegistry, generate_latest

from sluice.pipeline.metrics import COUNTERS, LanderCollector, StatusLine, lag
from sluice.pipeline.segments import Group, now
from sluice.router.client.message import Message
from tests.unit.pipeline.lander_run import LanderRun, put
from tests.unit.router.client.server import EngineBroker

MESSAGES = [Message(f"message {number}").encode() for number in range(3)]


@pytest.fixture
def run(tmp_path) -> Iterator[LanderRun]:
    """Lander that has landed all messages, rejected a long one, and ended."""
    with EngineBroker() as broker:
        put(broker, *MESSAGES, Message("x" * 500).encode())
        run = LanderRun(broker, tmp_path, max_message=400)
        run.until(lambda: len(broker.heard) == 4)
        yield run


def sample(run: LanderRun, name: str, *, labels: bool = True) -> float | None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LanderCollector(run.lander))
    return registry.get_sample_value(f"sluice_lander_{name}", {"address": "a"} if labels else {})


def test_counters_show_landed_and_rejected_deliveries(run):
    assert sample(run, "deliveries_total") == 3
    assert sample(run, "octets_total") == sum(map(len, MESSAGES))
    assert sample(run, "rejected_total") == 1
    assert [sample(run, f"{name}_total") for name in ("released", "lost")] == [0, 0]


def test_gauges_show_unread_segments(run):
    staged = sum(segment.octets for segment in run.lander.landing.listing("l/a").segments)
    assert sample(run, "staged_octets") == staged
    assert sample(run, "held", labels=False) == 0


def test_ended_link_counts_as_not_attached(run):
    assert (sample(run, "attached"), sample(run, "credit")) == (0, 0)


def test_lag_is_the_age_of_the_oldest_unread_segment(run):
    (link,) = run.lander.links
    link.counts.oldest = now() - 5000
    assert 5 <= lag(link) < 60
    link.counts.oldest = now() + 5000  # the clock went back
    assert lag(link) == 0
    link.counts.oldest = None
    assert lag(link) == 0


def test_lander_without_links_has_every_metric(run):
    run.lander.links.clear()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LanderCollector(run.lander))
    text = generate_latest(registry).decode()
    for name in (*(each[0] for each in COUNTERS), "rejected", "staged_octets", "held", "holds", "merge_failing"):
        assert f"# HELP sluice_lander_{name}" in text


def test_status_line_counts_progress_since_the_previous_line(run):
    line = StatusLine(run.lander)
    first, second = line.text(), line.text()
    assert first.startswith("3 landed, ")
    assert ", 0/s, " not in first
    assert second.startswith("3 landed, 0/s, ")
    assert "released" not in first
    assert "not attached: a" in first


def test_status_line_shows_trouble(run):
    run.lander.links[0].counts.released = 1234
    run.lander.held = True
    text = StatusLine(run.lander).text()
    assert "released 1,234" in text
    assert "no credit for the router: too much is staged" in text


def test_lag_of_each_group_is_a_gauge(run):
    (link,) = run.lander.links
    link.writer.landing.commit(Group("g", {link.writer.log.key: link.writer.number}))
    link.writer.landing.commit(Group("slow", {}))
    link.writer.staged()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LanderCollector(run.lander))

    def value(name: str, group: str) -> float | None:
        return registry.get_sample_value(f"sluice_lander_group_{name}", {"group": group, "address": "a"})

    assert [value("lag_rows", group) for group in ("g", "slow")] == [0, 3]
    assert value("lag_octets", "slow") == link.writer.staged() > 0
    assert [value("lag_seconds", "g"), value("lag_rows", "nobody")] == [0, None]
