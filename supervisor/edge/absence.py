"""Messages that wait at an edge router for another uplink after the loss of one (docs/internals/edge.md). No I/O."""

from typing import Final

from sluice.router.addressing.address import MOBILE
from sluice.router.control.messages import Resume
from sluice.router.log import WARNING, ProcessLog
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.runtime.waker import Cancellable, Waker


class _LostSender:
    """Sender on a lost uplink, whose worker keeps the messages that wait. Owner: the uplink absence."""

    __slots__ = ("expiry", "generation", "listed", "record", "slot", "waiting", "worker")

    def __init__(self, worker: WorkerProcess, link: RegisteredLink, record: AddressRecord, waiting: int) -> None:
        self.worker: Final = worker
        self.slot: Final = link.slot
        self.generation: Final = link.generation
        self.record: Final = record
        self.waiting: Final = waiting  # messages at the time of the loss
        self.listed = False  # still a consumer of its address, which has no other one
        self.expiry: Cancellable | None = None


class UplinkAbsence:
    """Suspended senders of lost uplinks, by key of their address. Owner: the attachments."""

    def __init__(self, seconds: int, table: AddressTable, journal: Journal, waker: Waker, log: ProcessLog) -> None:
        """seconds: time for which messages wait; 0: they are released at once."""
        self.seconds: Final = seconds
        self._table: Final = table
        self._journal: Final = journal
        self._waker: Final = waker
        self._log: Final = log
        self._lost: dict[str, list[_LostSender]] = {}
        self._ended = False  # no further uplink is expected
        if seconds:
            table.watch_users(self._users_changed)

    def suspended(self, worker: WorkerProcess, link: RegisteredLink, waiting: int) -> None:
        """Wait for another uplink in place of the lost one of a sender that its worker has suspended.

        waiting: number of deliveries. While the address has no other consumer, the sender remains its consumer, and
        producers get no credit.
        """
        record = link.record or self._table.records.get(link.owner or "")
        is_consumer = link.record is not None and self._table.has_consumer(
            link.record, worker.index, link.slot, link.generation
        )
        link.suspended = True
        if record is None or self._ended or not (is_consumer or waiting):
            if is_consumer and link.record is not None:
                self._table.remove_consumer(link.record, worker.index, link.slot, link.generation)
            self._journal.call_when_acknowledged(lambda: worker.outbox.append(Resume(link.slot, link.generation)))
            return
        lost = _LostSender(worker, link, record, waiting)
        self._lost.setdefault(record.key, []).append(lost)
        lost.expiry = self._waker.later(self.seconds, lambda: self._expire(lost))
        if is_consumer:
            lost.listed = True
            self._table.suspend_consumer(record, worker.index, link.slot, link.generation)
            self._users_changed(record)

    def resume(self, record: AddressRecord, link: RegisteredLink) -> None:
        """Send what waits to a link of the new uplink, which is a consumer of the address by now."""
        for lost in self._lost.pop(record.key, ()):
            here = lost.worker.index == link.worker
            self._end(
                lost,
                Resume(lost.slot, lost.generation, link.connection.number, link.number)
                if here
                else Resume(lost.slot, lost.generation, other=(link.worker, link.slot, link.generation)),
            )

    def end(self) -> None:
        """Release what waits, now and in future: the router drains, so there will be no other uplink."""
        self._ended = True
        waiting, self._lost = self._lost, {}
        for senders in waiting.values():
            for lost in senders:
                self._end(lost, Resume(lost.slot, lost.generation))

    def worker_lost(self, worker: WorkerProcess) -> None:
        """Forget the messages of a worker that has ended."""
        for key, senders in list(self._lost.items()):
            for lost in [each for each in senders if each.worker is worker]:
                self._forget(key, lost)
                self._stop(lost)

    def _users_changed(self, record: AddressRecord) -> None:
        """Let further messages go to the other consumers of an address, if there are any by now."""
        for lost in self._lost.get(record.key, ()):
            if lost.listed and not record.is_suspended_alone:
                self._unlist(lost)

    def _expire(self, lost: _LostSender) -> None:
        key = lost.record.key
        mobile = key[0] == MOBILE
        if mobile or lost.waiting:  # nothing may ever be sent to addresses that this router does not know
            where = f"to '{key[2:]}'" if mobile else "of anonymous senders"
            text = f"No other uplink for messages {where} within {self.seconds} s: those that waited are released"
            self._log.repeated(WARNING, "ROUTER_CORE", "messages that waited for an uplink", text)
        self._forget(key, lost)
        self._end(lost, Resume(lost.slot, lost.generation))
        self._waker.wake()

    def _end(self, lost: _LostSender, order: Resume) -> None:
        """Stop the wait, and send the order about the messages once no worker sends to the lost link."""
        self._stop(lost)
        self._journal.call_when_acknowledged(lambda: lost.worker.outbox.append(order))

    def _stop(self, lost: _LostSender) -> None:
        if lost.expiry is not None:
            lost.expiry.cancel()
            lost.expiry = None
        self._unlist(lost)

    def _unlist(self, lost: _LostSender) -> None:
        if lost.listed:
            lost.listed = False
            self._table.remove_consumer(lost.record, lost.worker.index, lost.slot, lost.generation)

    def _forget(self, key: str, lost: _LostSender) -> None:
        senders = self._lost[key]
        senders.remove(lost)
        if not senders:
            del self._lost[key]
