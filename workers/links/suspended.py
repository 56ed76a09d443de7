"""Suspended links: consumers whose peer is lost and awaited, with the deliveries that wait for its return.

docs/internals/links.md, "Suspended links".
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable
from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.ring.moved_copies import move_waiting
from sluice.workers.slots import Slot

if TYPE_CHECKING:
    from sluice.workers.links.record import LinkRecord
    from sluice.workers.worker import WorkerRuntime

RELEASED_AT_ONCE: Final = 1024  # deliveries, in one step
STEP_MS: Final = 1


class SuspendedLink(NamedTuple):
    """Link that is suspended."""

    link: ConsumerLink
    slot: Slot
    conn: int  # number of its connection, which has ended
    number: int  # number of the link


class SuspendedLinks:
    """Suspended links of a worker, by slot. Owner: the worker."""

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker = worker
        self._links: dict[tuple[int, int], SuspendedLink] = {}  # by slot index and generation

    def messages(self, handlers: HandlerTable[bytes | None]) -> None:
        """Register the handler of the order that ends a suspension."""
        handlers.on(control.Resume, self._on_resume)

    def add(self, record: "LinkRecord") -> None:
        """Keep the link and the slot of a record that ends, and report it. The link stays in the worker's table."""
        slot, link = record.slot, record.consumer_link
        self._links[slot.index, slot.generation] = SuspendedLink(link, slot, record.client.number, record.number)
        waiting = self._worker.region.link_counters(self._worker.setup.worker, slot.index)
        count = 0 if waiting is None else waiting["undelivered"]
        self._worker.control.send_event(control.Suspended(record.client.number, record.number, count))

    def _on_resume(self, octets: bytes | None, order: control.Resume) -> None:
        del octets
        found = self._links.pop((order.slot, order.gen), None)
        if found is None:
            return
        if order.other is not None:
            self._move(found.link, found.slot, order.other)
            return
        successor = self._successor(order)
        if successor is None:
            self._release(found.link, found.slot)
            return
        successor.take_over(found.link)
        self._worker.release_slot(found.slot)

    def _successor(self, order: control.Resume) -> ConsumerLink | None:
        """Return the link that an order names; it may be suspended by now."""
        client = self._worker.clients.get(order.conn)
        record = None if client is None else client.links.by_number.get(order.link)
        if record is not None and isinstance(record.link, ConsumerLink):
            return record.link
        place = (order.conn, order.link)
        return next((each.link for each in self._links.values() if (each.conn, each.number) == place), None)

    def _move(self, link: ConsumerLink, slot: Slot, other: tuple[int, int, int]) -> None:
        """Send the deliveries that wait to a link of another worker, in steps; then release the slot.

        other: worker, slot and generation. If that worker has ended meanwhile, the deliveries are released.
        """
        worker, index, generation = other
        port = self._worker.ports[worker]
        if not port.alive:
            self._release(link, slot)
        elif move_waiting(link, port.outgoing, index, generation, RELEASED_AT_ONCE):
            self._worker.release_slot(slot)
        else:
            loop = self._worker.loop
            loop.call_at(loop.scheduler.now + STEP_MS, lambda: self._move(link, slot, other))

    def _release(self, link: ConsumerLink, slot: Slot) -> None:
        """Release the deliveries that wait, in steps, then the slot. No worker has the consumer in its table."""
        if link.release_suspended(RELEASED_AT_ONCE):
            self._worker.release_slot(slot)
            return
        loop = self._worker.loop
        loop.call_at(loop.scheduler.now + STEP_MS, lambda: self._release(link, slot))
