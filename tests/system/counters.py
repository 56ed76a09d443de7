"""A router's counters, read from its shared memory: totals, links, gauges, and the balance of deliveries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sluice.router.ring.layout import DROP_NAMES
from sluice.router.ring.region import MEMFD_NAME, Region
from tests.system.router import RouterProcess, poll

#: Ends of a delivery from a client, each counted once. Drops of presettled deliveries are counted in addition.
ENDS = (
    *("ended_accepted", "ended_rejected", "ended_released", "ended_modified", "settled_no_state", "presettled"),
    *("dropped.producerLost", "dropped.unfinished"),
)
#: Counters that a test accounts for. All other counters of a worker's slot describe the worker.
COUNTED = (
    *("ingress", "egress", "transit", "to_container", "from_container", "redirected"),
    *("accepted", "rejected", "released", "modified", "settled_no_state", "presettled", "dropped_presettled"),
    *(f"dropped.{name}" for name in DROP_NAMES),
    "checks_failed",
)
#: Seconds for the router to become idle on a busy machine.
REST_TIMEOUT = 10.0


class Counters:
    """The mapped region of a running router; a context manager."""

    def __init__(self, router: RouterProcess) -> None:
        self._region = Region.attach(_open_region(router.pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._region.close()

    def totals(self) -> dict[str, int]:
        """Return COUNTED and ENDS, summed over the workers; drops by reason as `dropped.<reason>`."""
        found = self._region.router_totals()
        found.update({f"dropped.{name}": found["dropped"][number] for number, name in enumerate(DROP_NAMES)})
        return {name: found[name] for name in dict.fromkeys((*COUNTED, *ENDS))}

    def totals_of(self, name: str) -> int:
        """Return one counter of the workers' slots, summed over the workers."""
        return int(self._region.router_totals()[name])

    def latency(self) -> list[int]:
        """Return the number of settled deliveries by age: bucket n holds ages from 2**(n-1) to below 2**n µs."""
        return list(self._region.router_totals()["latency"])

    def worker(self, index: int) -> dict[str, Any]:
        """Return all fields of one worker's slot."""
        return self._region.worker_counters(index)

    def links(self) -> list[dict[str, Any]]:
        """Return the slots of all present links, with `worker` and `index`."""
        return [{"worker": worker, "index": index, **link} for worker, index, link in self._slots()]

    def _slots(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        for worker in range(self._region.workers):
            for index in range(self._region.worker_counters(worker)["links_used_high"]):
                link = self._region.link_counters(worker, index)
                if link is not None:
                    yield worker, index, link

    def gauges(self) -> dict[str, int]:
        """Return connections, links, octets held and octets in rings, and sums over the gauges of all links."""
        totals = self._region.router_totals()
        found = {name: int(totals[name]) for name in ("connections", "links", "buffered")}
        links = self.links()
        found.update({name: sum(int(link[name]) for link in links) for name in ("undelivered", "unsettled", "busy")})
        pairs = [(a, b) for a in range(self._region.workers) for b in range(self._region.workers) if a != b]
        found["in_rings"] = sum(self._region.ring_state(a, b)["used"] for a, b in pairs)
        return found

    def wait_gauges(self, what: str, timeout: float = REST_TIMEOUT, **expected: int | None) -> None:
        """Wait until the gauges named are as expected (None: any value), and unnamed gauges of deliveries are zero."""
        at_rest: dict[str, int | None] = dict.fromkeys(("buffered", "undelivered", "unsettled", "busy", "in_rings"), 0)
        wanted = {name: value for name, value in {**at_rest, **expected}.items() if value is not None}
        last: dict[str, int] = {}

        def arrived() -> bool:
            last.update(self.gauges())
            return all(last[name] == value for name, value in wanted.items())

        try:
            poll(arrived, what, timeout)
        except AssertionError:
            wrong = {name: (last[name], value) for name, value in wanted.items() if last[name] != value}
            links = [link for link in self.links() if link["undelivered"] or link["held"] or link["busy"]]
            raise AssertionError(f"{what}: gauges (is, should be) {wrong}; links not at rest: {links[:5]}") from None

    @contextmanager
    def expect(self, timeout: float = REST_TIMEOUT, **expected: int) -> Iterator[None]:
        """Check that the block adds exactly `expected` to COUNTED, and zero to all other counters.

        Drops by reason are given with a prefix: dropped_overflow=1.
        """
        wanted = dict.fromkeys(COUNTED, 0)
        for name, value in expected.items():
            wanted[_counter(name)] = value
        before = self.totals()
        yield
        self.wait_counted(before, wanted, timeout)

    def wait_counted(self, before: dict[str, int], wanted: dict[str, int], timeout: float = REST_TIMEOUT) -> None:
        """Wait until the counters have grown by `wanted` since `before`."""

        def counted() -> bool:
            grown = self.since(before)
            return all(grown[name] == wanted[name] for name in COUNTED)

        try:
            poll(counted, "counters", timeout)
        except AssertionError:
            grown = self.since(before)
            wrong = {name: (grown[name], wanted[name]) for name in COUNTED if grown[name] != wanted[name]}
            raise AssertionError(f"counters (are, should be): {wrong}") from None

    def since(self, before: dict[str, int]) -> dict[str, int]:
        """Return the growth of COUNTED and ENDS since `before`."""
        return {name: value - before[name] for name, value in self.totals().items()}

    def wait_balance(self, before: dict[str, int], timeout: float = REST_TIMEOUT) -> dict[str, int]:
        """Wait until as many deliveries have ended since `before` as were received; return all growth."""
        grown: dict[str, int] = {}

        def balanced() -> bool:
            grown.update(self.since(before))
            return sum(grown[name] for name in ENDS) == grown["ingress"]

        try:
            poll(balanced, "as many deliveries end as have come", timeout)
        except AssertionError:
            ends = {name: grown[name] for name in ENDS}
            raise AssertionError(f"{grown['ingress']} came, {sum(ends.values())} ended: {ends}") from None
        return grown


def _counter(name: str) -> str:
    reason = name.removeprefix("dropped_")
    return f"dropped.{reason}" if reason != name and reason in DROP_NAMES else name


def _open_region(supervisor: int) -> int:
    """Return a descriptor of the memory shared by the router's processes, found by its name in /proc."""
    for entry in Path(f"/proc/{supervisor}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue  # closed in the meantime
        if target.startswith(f"/memfd:{MEMFD_NAME}"):
            return os.open(entry, os.O_RDWR | os.O_CLOEXEC)
    raise AssertionError(f"process {supervisor} has no shared memory named {MEMFD_NAME}")
