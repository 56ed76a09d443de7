"""Last hour in `sluice top`: bars and events."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.cli.client import NotImplementedStatus
from sluice.router.cli.top_history import HOUR, bars, read_history, render_history
from sluice.router.cli.top_line import frame_lines


class FakeClient:
    """Client of a router with this answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: dict[str, Any] = {}

    def node_call(self, operation: str, properties: dict[str, Any]) -> Any:
        self.asked = properties
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ""), ([0, 0], "▁▁"), ([8, 4, None, 1, 0], "█▅ ▂▁"), ([None, None], "  "), ([0.001, 0.002], "▅█")],
)
def test_bars_are_relative_to_greatest_value(values: list[float | None], expected: str) -> None:
    assert bars(values) == expected


def shown(history: dict[str, Any] | None) -> str:
    return "\n".join(line.text for line in frame_lines([*render_history(history)], 120))


def test_last_hour_shows_figures_and_latest_events() -> None:
    events = [{"time": 60.0 * n, "kind": "worker", "text": f"event {n}", "count": n, "last": 0.0} for n in range(5)]
    figures = {"deliveriesIngress": [500, 1000], "latencyP99Seconds": [None, None], "cpuSeconds": [0.25, 0.5]}
    lines = shown({"figures": figures, "events": events}).splitlines()
    assert [line.split() for line in lines[2:4]] == [
        ["in/s", "▅█", "500", "1,000"], ["worker", "cpu", "%", "▅█", "25", "50"],
    ]  # fmt: skip
    assert [line.partition("  ")[2].rstrip() for line in lines[4:]] == [
        "event 2 (2 times)", "event 3 (3 times)", "event 4 (4 times)",
    ]  # fmt: skip


def test_router_without_periods_shows_events_only() -> None:
    event = {"time": 0.0, "kind": "start", "text": "The router started", "count": 1, "last": 0.0}
    assert "figure" not in shown({"figures": {"cpuSeconds": []}, "events": [event]})
    assert shown(None).strip() == ""


def test_history_is_that_of_last_hour_by_minute() -> None:
    client: Any = FakeClient({"figures": {}, "events": []})
    assert read_history(client) == {"figures": {}, "events": []}
    assert client.asked["step"] == 60
    assert HOUR == 3600


def test_router_without_history_has_none() -> None:
    client: Any = FakeClient(NotImplementedStatus("no such operation"))
    assert read_history(client) is None
