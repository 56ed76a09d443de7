"""Operation GET-HISTORY: figures and events."""

from typing import Any

import pytest

from sluice.supervisor.history.figures import NAMES
from tests.unit.supervisor.history.readings import reading
from tests.unit.supervisor.management.managed_router import ManagedRouter

BEGIN = 1_000_000


@pytest.fixture
def past(router: ManagedRouter) -> ManagedRouter:
    """Return a router with three periods, the second without deliveries, and two events."""
    latency = [0] * 32
    for number in range(4):
        if number != 2:
            latency = [*latency[:5], latency[5] + 1, *latency[6:]]
        now = reading(5.0 * number, latency, deliveriesIngress=10 * number * number, linkCount=number)
        for ring in router.core.history.rings:
            ring.add(BEGIN + 5 * number, now)
    router.core.history.events.add(BEGIN + 2.5, "reload", "The configuration was reloaded")
    router.core.history.events.add(BEGIN + 12.5, "worker", "Worker 1 exited and is replaced")
    return router


def test_history_has_all_figures_and_events(past: ManagedRouter) -> None:
    body = past.ask("GET-HISTORY").body
    assert (body["step"], body["first"], set(body["figures"])) == (5, BEGIN + 5, set(NAMES))
    assert body["figures"]["deliveriesIngress"] == [2.0, 6.0, 10.0]
    assert body["figures"]["latencyP50Seconds"] == [32e-6, None, 32e-6]
    assert [event["text"] for event in body["events"]] == [
        "The configuration was reloaded", "Worker 1 exited and is replaced",
    ]  # fmt: skip
    assert body["events"][1] == {
        "time": BEGIN + 12.5, "kind": "worker", "text": "Worker 1 exited and is replaced", "count": 1,
        "last": BEGIN + 12.5,
    }  # fmt: skip


@pytest.mark.parametrize("since", [BEGIN + 10, str(BEGIN + 10)])
def test_history_since_a_time_has_later_periods_of_named_figures(past: ManagedRouter, since: int | str) -> None:
    body = past.ask("GET-HISTORY", since=since, names="linkCount, cpuSeconds").body
    assert (body["first"], body["figures"]) == (BEGIN + 15, {"linkCount": [3.0], "cpuSeconds": [0.0]})
    assert [event["kind"] for event in body["events"]] == ["worker"]


def test_history_of_other_periods_is_that_of_other_ring(past: ManagedRouter) -> None:
    body = past.ask("GET-HISTORY", step=60).body
    assert (body["step"], body["figures"]["linkCount"]) == (60, [])


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"step": 7}, "There are no periods of 7 seconds, but of 5, 60, 3600"),
        ({"names": "linkCount,none"}, "There is no figure 'none'"),
        ({"since": "yesterday"}, "'since' is not a number: 'yesterday'"),
    ],
)
def test_history_of_unknown_things_is_refused(router: ManagedRouter, properties: dict[str, Any], text: str) -> None:
    answer = router.ask("GET-HISTORY", **properties)
    assert (answer.status, answer.description) == (400, text)
