"""Pages of metrics on their way to the export process, of a router whose workers are only counters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sluice.router.log import ProcessLog
from sluice.supervisor.children.json_messages import Message
from sluice.supervisor.otlp.metric_pages import MetricPages, MetricSource, Piece
from sluice.supervisor.telemetry.metric_pieces import MetricPieces
from tests.unit.supervisor.telemetry.metrics_router import QUIET, MetricsRouter


class SentPages:
    """Pages of a source, with the messages that were sent and the counts of pages."""

    def __init__(self, make: Callable[[], MetricSource]) -> None:
        self.messages: list[Message] = []
        self.counts: list[tuple[int, bool]] = []
        self.refuse = 1 << 30  # number of messages that are accepted
        self.log = ProcessLog(QUIET)
        self._make = make
        self.changed = asyncio.Event()
        self.pages = MetricPages(asyncio.get_running_loop(), self.make, self.send, self.count, self.log)

    async def make(self, pause: Callable[[], Awaitable[None]]) -> MetricSource:
        return self._make()

    def send(self, message: Message) -> bool:
        self.messages.append(message)
        return len(self.messages) <= self.refuse

    def count(self, points: int, sent: bool) -> None:
        self.counts.append((points, sent))
        self.changed.set()

    async def next_count(self) -> tuple[int, bool]:
        await asyncio.wait_for(self.changed.wait(), 30.0)
        self.changed.clear()
        return self.counts[-1]


def test_page_has_all_metrics_between_begin_and_time() -> None:
    router = MetricsRouter()

    async def pause() -> None:
        await asyncio.sleep(0)

    async def run() -> SentPages:
        sent = SentPages(lambda: MetricPieces(router.collector, router.builder, pause))
        sent.pages.use(3600)
        await sent.next_count()
        sent.pages.use(None)
        return sent

    try:
        sent = asyncio.run(run())
    finally:
        router.close()
    first, *families, last = sent.messages
    assert first == {"page": None}
    assert last["page"] > 0
    names = [each["family"][0] for each in families]
    assert {"qdr_connections_total", "sluice_deliveries_total", "sluice_delivery_seconds"} <= set(names)
    kinds = {each["family"][0]: each["family"][1] for each in families}
    assert (kinds["qdr_connections_total"], kinds["sluice_deliveries_total"]) == ("gauge", "counter")
    points = sum(1 if each["family"][1] == "histogram" else len(each["family"][3]) for each in families)
    assert sent.counts == [(points, True)]


class TwoPieces:
    """Source of a page with two data points."""

    async def page(self) -> AsyncIterator[Piece]:
        for name in ("a", "b"):
            yield "m", "gauge", "About.", [("m", {"n": name}, 1.0)]


def test_page_that_does_not_reach_process_is_dropped_as_a_whole() -> None:
    async def run() -> list[Any]:
        sent = SentPages(TwoPieces)
        sent.refuse = 2
        sent.pages.use(3600)
        await sent.next_count()
        sent.pages.use(None)
        return [sent.counts, sent.messages]

    counts, messages = asyncio.run(run())
    assert counts == [(2, False)]
    assert [next(iter(each)) for each in messages] == ["page", "family", "family"]


def test_last_page_is_sent_at_the_end() -> None:
    async def run() -> list[tuple[int, bool]]:
        sent = SentPages(TwoPieces)
        await sent.pages.finish()
        assert not sent.counts, "no pages are sent"
        sent.pages.use(3600)
        await sent.next_count()
        await sent.pages.finish()
        return sent.counts

    assert asyncio.run(run()) == [(2, True), (2, True)]


def test_fault_of_source_is_logged_and_pages_go_on() -> None:
    class Faulty:
        def __init__(self) -> None:
            self.asked = 0

        async def page(self) -> AsyncIterator[Piece]:
            self.asked += 1
            if self.asked == 1:
                raise ValueError("broken")
            yield "m", "gauge", "About.", [("m", {}, 1.0)]

    async def run() -> SentPages:
        source = Faulty()
        sent = SentPages(lambda: source)
        sent.pages.use(1)
        await sent.next_count()
        sent.pages.use(None)
        return sent

    sent = asyncio.run(run())
    assert sent.counts == [(1, True)]
    assert sent.log.counters()["SERVER"]["critical"] == 1
