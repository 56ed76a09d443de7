"""Frames of `sluice top`: rates between two samples, busiest rows, and blocked links."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.cli.client import NotImplementedStatus, Row
from sluice.router.cli.top_line import frame_lines
from sluice.router.cli.top_view import (
    BLOCKED_AFTER,
    MAX_ROWS,
    OTHER_VHOSTS,
    RouterSample,
    rate,
    render_frame,
    take_sample,
)

ROUTER: Row = {
    "id": "A", "mode": "standalone", "version": "1", "uptimeSeconds": 5, "connectionCount": 1, "linkCount": 2,
    "addrCount": 3, "linksBlocked": 0, "deliveriesStuck": 0, "memoryUsage": 1 << 20, "deliveriesIngress": 0,
    "deliveriesEgress": 0, "acceptedDeliveries": 0, "rejectedDeliveries": 0, "releasedDeliveries": 0,
    "modifiedDeliveries": 0, "presettledDeliveries": 0, "droppedPresettledDeliveries": 0,
}  # fmt: skip
WORKER: Row = {
    "worker": 0, "state": "ready", "pid": 77, "generation": 1, "cpuSeconds": 1.0, "residentOctets": 1 << 20,
    "connections": 1, "links": 2, "deliveriesIngress": 0, "deliveriesEgress": 0, "wakes": 0, "bufferedOctets": 0,
    "rings": [], "dropped": {}, "latencyHistogram": [0] * 32,
}  # fmt: skip


def link(number: int, **more: Any) -> Row:
    row = {
        "identity": str(number), "connectionId": "1", "linkDir": "in", "owningAddr": f"M0q{number}", "deliveryCount": 0,
        "unsettledCount": 0, "undeliveredCount": 0, "creditAvailable": 0, "zeroCreditSeconds": 0, "settleRate": 0,
        "linkName": f"name{number}",
    }  # fmt: skip
    return {**row, **more}


def sample(
    at: float, *links: Row, router: Row | None = None, worker: Row | None = None, vhosts: dict[str, Row] | None = None
) -> RouterSample:
    workers = {0: {**WORKER, **(worker or {})}}
    rows = {row["identity"]: row for row in links}
    return RouterSample(at, {**ROUTER, **(router or {})}, workers, {}, rows, vhosts or {})


def frame(now: RouterSample, before: RouterSample, rows: int = 10) -> list[str]:
    """Return the lines of a frame."""
    return [line.text for line in frame_lines(render_frame(now, before, rows), 200)]


def cells(lines: list[str], first: str) -> list[str]:
    """Return the cells of the first line that begins with this cell."""
    return next(line.split() for line in lines if line.split()[:1] == [first])


@pytest.mark.parametrize(
    ("now", "before", "seconds", "expected"),
    [(30, 10, 2.0, 10.0), (30, None, 2.0, None), (30, 10, 0.0, None), (5, 10, 2.0, 0.0), (None, 10, 1.0, 0.0)],
)
def test_rate_is_growth_per_second(now: int | None, before: int | None, seconds: float, expected: float | None) -> None:
    earlier = None if before is None else {"n": before}
    assert rate({"n": now}, earlier, "n", seconds) == expected


def test_head_shows_rates_of_router() -> None:
    lines = frame(sample(12.0, router={"deliveriesIngress": 3000}), sample(10.0))
    assert lines[0].startswith("A  standalone  version 1  up ")
    assert "in 1,500  out 0" in lines[2]


def test_truncated_sample_is_said_to_be() -> None:
    few, many = sample(1.0), sample(1.0, router={"linkCount": MAX_ROWS + 1})
    text = "only the first 2,000 addresses and links are looked at"
    assert text not in frame(few, few)
    assert text in frame(many, many)


def test_restarted_worker_has_no_rates() -> None:
    before = sample(10.0, worker={"deliveriesIngress": 100})
    running = frame(sample(11.0, worker={"deliveriesIngress": 130, "cpuSeconds": 1.5}), before)
    assert cells(running, "0")[4:10] == ["50", "1.00", "MiB", "1", "2", "30"]
    restarted = frame(sample(11.0, worker={"generation": 2, "deliveriesIngress": 130}), before)
    assert cells(restarted, "0")[4:10] == ["-", "1.00", "MiB", "1", "2", "-"]


def test_busiest_links_come_first() -> None:
    before = sample(10.0, link(1, deliveryCount=1000), link(2), link(3, deliveryCount=5))
    now = sample(11.0, link(1, deliveryCount=1000), link(2, deliveryCount=7), link(3, deliveryCount=5))
    shown = [line.split()[0] for line in frame(now, before, rows=2) if "name" in line and "link" not in line]
    assert shown == ["2", "1"], "by rate, then by total; only as many rows as there is room for"


def test_blocked_links_are_listed_longest_first() -> None:
    short, long, longest = (link(n, zeroCreditSeconds=BLOCKED_AFTER + more) for n, more in ((1, 0), (2, 1), (3, 9)))
    lines = frame(sample(1.0, short, long, longest), sample(0.0))
    at = lines.index(next(line for line in lines if line.startswith("Blocked links: 2")))
    assert [line.split()[0] for line in lines[at + 2 :]] == ["3", "2"]
    assert not any(line.startswith("Blocked") for line in frame(sample(1.0, short), sample(0.0)))


def test_vhosts_are_shown_only_with_policy() -> None:
    lines = frame(sample(1.0, vhosts={"v": vhost()}), sample(0.0))
    assert cells(lines, "v") == ["v", "4", "5", "6", "-", "-", "-", "-", "-", "-"]
    assert not any(line.startswith("Vhosts") for line in frame(sample(1.0), sample(0.0)))


def vhost(**more: Any) -> Row:
    use = {"connections": 4, "links": 5, "addresses": 6, "messages": None, "octets": None, "bufferedOctets": None}
    counted = dict.fromkeys(("deliveriesIn", "deliveriesOut", "octetsIn", "octetsOut"))
    return {**use, "creditHeldBack": None, **counted, **more}


def test_vhost_without_limits_has_rates() -> None:
    counted = {"deliveriesIn": 10, "deliveriesOut": 0, "octetsIn": 1000, "octetsOut": 0}
    grown = {"deliveriesIn": 30, "deliveriesOut": 4, "octetsIn": 3000, "octetsOut": 400}
    lines = frame(sample(2.0, vhosts={"v": vhost(**grown)}), sample(0.0, vhosts={"v": vhost(**counted)}))
    assert cells(lines, "v") == ["v", "4", "5", "6", "10", "2", "1,000", "200", "-", "-"]


class CountingRouter:
    """Management client of a router with a vhost that it counts, one that a limit counts, and others."""

    known = True

    def rows(self, short_type: str, columns: list[str] | None, limit: int) -> list[Row]:
        use = {"linksCurrent": 1, "addressesCurrent": 1, "connectionsCurrent": 1, "groupState": {}}
        stats = [{"hostname": "v", **use}, {"hostname": "limited", **use, "messages": 7, "octets": 70}]
        return {"router": [ROUTER], "vhostStats": stats}.get(short_type, [])

    def node_call(self, operation: str, properties: dict[str, Any] | None = None) -> Any:
        if operation == "GET-WORKERS":
            return [WORKER]
        if operation == "GET-HISTORY" or not self.known:
            raise NotImplementedStatus(501, "Not Implemented")
        traffic = {"deliveriesIn": 1, "deliveriesOut": 2, "octetsIn": 3, "octetsOut": 4}
        use = {"connections": 1, "linksIn": 1, "linksOut": 2, **traffic}
        return [{"vhost": "v", **use}, {"vhost": "other", **use}]


def test_sample_has_deliveries_of_vhosts() -> None:
    found = take_sample(CountingRouter()).vhosts  # type: ignore[arg-type]
    assert list(found) == ["v", "limited", OTHER_VHOSTS]
    assert [found[name]["deliveriesIn"] for name in found] == [1, 7, 1]
    assert [found[name]["octetsOut"] for name in found] == [4, None, 4]
    assert found[OTHER_VHOSTS]["links"] == 3


def test_sample_of_router_without_usage_has_counts_of_limits() -> None:
    router = CountingRouter()
    router.known = False
    found = take_sample(router).vhosts  # type: ignore[arg-type]
    assert [(name, row["deliveriesIn"]) for name, row in found.items()] == [("v", None), ("limited", 7)]


class HostileRouter:
    """Management client of a router whose texts have control characters. It has one vhost with two groups."""

    def rows(self, short_type: str, columns: list[str] | None, limit: int) -> list[Row]:
        assert limit == MAX_ROWS
        group = {"links": 1, "addresses": 1}
        stats = {
            "hostname": "v\x1b[2J", "connectionsCurrent": 2, "linksCurrent": 3, "addressesCurrent": 4,
            "groupState": {"g\n": {"connections": 1, **group}, "idle": {"connections": 0, **group}},
        }  # fmt: skip
        idle = {**stats, "hostname": "idle", "connectionsCurrent": 0}
        found = {"router": [{**ROUTER, "id": "\x1b[31m"}], "router.link": [link(1)], "vhostStats": [stats, idle]}
        return found.get(short_type, [])

    def node_call(self, operation: str, properties: dict[str, Any] | None = None) -> list[Row] | Row:
        if operation == "GET-HISTORY":
            return {"figures": {}, "events": [{"text": "\x1b[2J"}]}
        if operation == "GET-USAGE":
            return []
        return [{**WORKER, "state": "\u202eready"}]


def test_sample_has_escaped_texts_and_used_groups() -> None:
    found = take_sample(HostileRouter())  # type: ignore[arg-type]
    assert found.router["id"] == "\\x1b[31m"
    assert found.workers[0]["state"] == "\\u202eready"
    assert found.history is not None
    assert found.history["events"] == [{"text": "\\x1b[2J"}]
    assert list(found.vhosts) == ["v\\x1b[2J", "v\\x1b[2J, g\\n"]
    assert (found.vhosts["v\\x1b[2J"]["links"], found.vhosts["v\\x1b[2J, g\\n"]["links"]) == (3, 1)
