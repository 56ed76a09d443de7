"""Core whose workers are only counters in a real memory region, with its metrics page."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from sluice.router.addressing.address import MOBILE, key
from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.router.ring.region import Region
from sluice.router.stats.sums import AddressCounters
from sluice.router.testing.interworker import claim_link, set_address
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.telemetry.collect import MetricsCollector, MetricsSnapshot
from sluice.supervisor.telemetry.families import MetricsBuilder
from sluice.supervisor.telemetry.health import Health, Lag, ListenerState
from sluice.supervisor.telemetry.page import render
from sluice.supervisor.telemetry.usage import Usage
from sluice.supervisor.web.http_counts import HttpCounts
from tests.unit.supervisor.harness import attach, configuration_text

QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
GENERATION = 1 << 20
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class MetricsRouter:
    """Router with clients as far as the supervisor sees them, and its metrics page."""

    def __init__(self, workers: int = 2, addresses: int = 4000, links: int = 4000) -> None:
        self.configuration = load_text("router.conf", configuration_text(workers))
        self.region = Region.create(workers, links, addresses, 4096)
        self.counters = AddressCounters(self.region)
        self.core = RouterCore(self.configuration, ProcessLog(QUIET), addresses, self.counters.reset)
        self.lag = Lag()
        self.states = [ListenerState("main", "127.0.0.1:1", "normal", http=False, up=True)]
        self.draining = False
        self.health = Health(self.core, self.lag, lambda: self.states, lambda: self.draining)
        self.pauses = 0
        self.usage = Usage(self.configuration, self.region, self.core.policy.vhost_of)
        self.core.policy.denials.when_refused(self.usage.refused)
        self.core.events.add(self.usage)
        self.rows_lost = 0
        self.collector = MetricsCollector(self.core, self.region, self.counters, self.usage, self._pause)
        self.builder = MetricsBuilder(
            self.configuration.router,
            "0.0",
            self.core,
            self.region,
            self.health,
            lambda: HttpCounts({}, {}, 0, 0.0),
            lambda: self.rows_lost,
            dict,
        )
        self._slots = itertools.count()
        for index in range(workers):
            worker = self.core.workers[index] = WorkerProcess(index, 1)
            worker.stage = WorkerStage.SERVING
            self.core.journal.join(index, 0)
        self.settle()

    def close(self) -> None:
        self.region.close()

    async def _pause(self) -> None:
        self.pauses += 1
        await asyncio.sleep(0)

    def settle(self) -> None:
        """Let all workers acknowledge all changes."""
        while self.core.take_delta() is not None:
            self.acknowledge()
        self.core.take_delta()

    def acknowledge(self) -> None:
        for index in self.core.workers:
            self.core.journal.acknowledge(index, self.core.journal.epoch)

    def client(self, worker: int = 0) -> RegisteredConnection:
        owner = self.core.workers[worker]
        return self.core.connections.adopt(owner, self.configuration.listeners[0], "127.0.0.1:1", "127.0.0.1:2")

    def link(
        self, client: RegisteredConnection, direction: str, address: str | None, worker: int = 0, **fields: Any
    ) -> int:
        """Attach a link whose slot has these fields; return its number."""
        slot = next(self._slots)
        claim_link(self.region, worker, slot, GENERATION + slot, direction=1 if direction == "in" else 2, **fields)
        message = attach(slot, direction, address, conn=client.number)
        self.core.receive(self.core.workers[worker], message)
        self.settle()
        return slot

    def detach(self, client: RegisteredConnection, link: int, worker: int = 0) -> None:
        message = messages.Detach(conn=client.number, link=link)
        self.core.receive(self.core.workers[worker], message)
        self.settle()

    def record(self, address: str) -> AddressRecord:
        return self.core.table.records[key(MOBILE, address)]

    def count(self, address: str, worker: int = 0, **fields: int) -> None:
        """Set counters of an address in a worker."""
        set_address(self.region, worker, self.record(address).id, **fields)

    def snapshot(self) -> MetricsSnapshot:
        return asyncio.run(self.collector.collect())

    def pauses_of_a_page(self) -> int:
        """Return how often a page yields to other events."""
        self.pauses = 0
        self.text()
        return self.pauses

    def text(self) -> str:
        async def make() -> bytes:
            snapshot = await self.collector.collect()
            return await render(self.builder.build(snapshot), self._pause)

        return asyncio.run(make()).decode()

    def page(self) -> Samples:
        """Return all samples of the page by name and labels."""
        samples: Samples = {}
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                identity = (sample.name, frozenset(sample.labels.items()))
                assert identity not in samples, f"{identity} twice"
                samples[identity] = sample.value
        return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return one sample."""
    return samples[name, frozenset(labels.items())]
