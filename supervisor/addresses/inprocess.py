"""In-process addresses: the router itself as receiver and sender of messages (routing-semantics.md 10).

Workers pass messages to in-process addresses to the supervisor (`local`), and forward messages that the supervisor
sends (`send`). Both directions are bounded. A worker stops reading a connection with too many unhandled messages;
`taken` acknowledges handled ones. Requests from a worker's clients wait here while the worker has too many octets to
forward; `forwarded` reports progress. No input or output here.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sluice.router.addressing.settings import CLOSEST, DEFAULT_OVERFLOW
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import Control, Count, Forwarded, Local, Send, Taken
from sluice.router.log import DEBUG, WARNING, ProcessLog
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import CompositionError, RawHandler, Subsystem

# Maximum number of messages handled before other events.
LOCAL_MESSAGES_PER_WAKE: Final = 8
# Octets sent to a worker and not yet forwarded from which on requests from its clients wait.
UNCONFIRMED_OCTETS: Final = 8 << 20
# Maximum octets sent to a worker and not yet forwarded; a single message may be larger. Further messages are dropped.
MAX_UNCONFIRMED_OCTETS: Final = 64 << 20


class LocalMessage(NamedTuple):
    """Message for the router itself. octets: the complete encoded message, unchanged."""

    worker_index: int
    connection_number: int | None  # None: the message is not from a client
    octets: bytes


Handler = Callable[[LocalMessage], None]
# Receiver of diverted messages: (worker, number of the connection, octets).
DivertedHandler = Callable[[WorkerProcess, int, bytes], None]

# Predicate of a connection number: True if the handler accepts another message from that connection now.
Ready = Callable[[int], bool]


def always_ready(connection: int) -> bool:
    """Return True: readiness of a handler that has finished with a message when it returns."""
    del connection
    return True


class InProcessAddresses(Subsystem):
    """In-process addresses, messages waiting for their handlers, and sending for the router. Owner: the core."""

    def __init__(
        self,
        table: AddressTable,
        journal: Journal,
        workers: Mapping[int, WorkerProcess],
        find: Callable[[str], AddressRecord | None],
        log: ProcessLog,
        wake: Callable[[], object],
    ) -> None:
        """Create without any in-process address.

        workers: the current generation of each worker, by index. find: return the record for an address text. wake:
        called when messages from the router itself wait to be sent, or waiting messages can be handled.
        """
        self._table = table
        self._journal = journal
        self._workers = workers
        self.find = find
        self._log = log
        self._handlers: dict[str, tuple[Handler, Ready]] = {}
        # Waiting messages with their record keys, by connection. Connections are served round robin, so that none
        # delays the others.
        self._waiting: OrderedDict[tuple[WorkerProcess, int], deque[tuple[str, bytes]]] = OrderedDict()
        self._taken: dict[WorkerProcess, dict[int, Count]] = {}  # handled messages by connection, not yet reported
        self._working = False
        self._wake = wake
        self._diverted: dict[str, DivertedHandler] = {}

    def open(self, record_key: str, *, rejects: bool = False) -> None:
        """Make an address in-process: the router itself accepts or rejects its messages. Raises TableFullError."""
        record = self._table.records.get(record_key)
        if record is None:
            record = self._table.create(record_key, CLOSEST, None, DEFAULT_OVERFLOW)
        if not record.inproc:
            record.inproc = True
            record.rejects = rejects
            self._table.hold(record)
            self._table.announce(record)

    def serve(self, record_key: str, handler: Handler, ready: Ready = always_ready) -> None:
        """Pass messages to the address with key `record_key` (`M0$management`) to `handler`. Raises TableFullError.

        While `ready(connection)` is false, messages from that connection wait here without delaying other
        connections. Call `go_on` when it is true again.
        """
        self.open(record_key)
        self._handlers[record_key] = (handler, ready)

    def handle(self, service: str, handler: Handler) -> None:
        """Pass messages on links for a service of the router that has no address to `handler`."""
        if service in self._handlers:
            raise CompositionError(f"messages for service {service!r} already have a handler")
        self._handlers[service] = (handler, always_ready)

    def divert_messages(self, record_key: str, receive: DivertedHandler) -> None:
        """Pass messages whose key is not that of an address to `receive` on arrival, without queueing them."""
        if record_key in self._diverted:
            raise CompositionError(f"messages with key {record_key!r} already have a receiver")
        self._diverted[record_key] = receive

    def go_on(self) -> None:
        """Resume waiting messages, because a handler is ready again."""
        if self._waiting and not self._working:
            self._wake()

    def send(self, address_text: str, octets: bytes, preferred: int | None = None) -> bool:
        """Send a complete message, presettled, to the consumers of an address.

        preferred: index of the preferred worker. Returns False if there is no consumer (the router sends nothing to
        itself), or if too many octets wait in the worker.
        """
        record = self.find(address_text)
        if record is None or record.inproc:
            return False
        worker = self._choose(record, preferred)
        if worker is None:
            return False
        if worker.unconfirmed and worker.unconfirmed + len(octets) > MAX_UNCONFIRMED_OCTETS:
            text = f"A message from this router to {address_text} is dropped: {worker} has too many unsent octets"
            self._log.repeated(WARNING, "ROUTER_CORE", "message dropped", text)
            return False
        worker.unconfirmed += len(octets)
        worker.sends.append((Send(record.key, self._journal.pending_epoch), octets))
        if not self._working:
            self._wake()
        return True

    def send_control(self, index: int, conn: int, octets: bytes, link: int | None = None) -> bool:
        """Send a message on the control link of connection `conn` of worker `index`, or on its link `link` if given.

        Returns False if that worker is not live, or if too many octets wait in it.
        """
        worker = self._workers.get(index)
        if worker is None or not worker.live:
            return False
        if worker.unconfirmed and worker.unconfirmed + len(octets) > MAX_UNCONFIRMED_OCTETS:
            text = f"[C{conn}] A message from this router to its peer is dropped: {worker} has too many unsent octets"
            self._log.repeated(WARNING, "ROUTER", "control dropped", text)
            return False
        worker.unconfirmed += len(octets)
        worker.sends.append((Control(conn, link), octets))
        if not self._working:
            self._wake()
        return True

    def _choose(self, record: AddressRecord, preferred: int | None) -> WorkerProcess | None:
        """Return a live worker that has a consumer, if possible the preferred one; None if there is none.

        Any live worker serves for an exchange, whose consumers belong to other addresses, and for an address with
        destinations at other routers only. An address without consumers uses its fallback.
        """
        having = self._live(record)
        if not having and (record.exchange is not None or record.remotes):
            having = [worker.index for worker in self._workers.values() if worker.live]
        if not having and record.fallback is not None:
            return self._choose(record.fallback, preferred)
        if not having:
            return None
        return self._workers[preferred if preferred is not None and preferred in having else having[0]]

    def _live(self, record: AddressRecord) -> list[int]:
        """Return the indexes of live workers that have a consumer of this address."""
        found = dict.fromkeys(self._table.consumer_workers(record))
        return [index for index in found if index in self._workers and self._workers[index].live]

    # Messages for the router itself

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(Forwarded, self._forwarded)

    def raw_messages(self) -> Mapping[type[Local], RawHandler]:
        return {Local: self.receive}

    @staticmethod
    def _forwarded(worker: WorkerProcess, message: Forwarded) -> None:
        worker.unconfirmed -= message.octets

    def receive(self, worker: WorkerProcess, message: Local, octets: bytes) -> None:
        """Queue a `local` message for `work`, unless its key is diverted."""
        diverted = self._diverted.get(message.key)
        if diverted is not None:
            diverted(worker, message.conn, octets)
            return
        self._waiting.setdefault((worker, message.conn), deque()).append((message.key, octets))

    def work(self) -> bool:
        """Handle at most LOCAL_MESSAGES_PER_WAKE waiting messages. Returns True if more can be handled now.

        An exception of a handler propagates; its message counts as handled.
        """
        if not self._waiting:
            return False
        self._working = True
        try:
            for _ in range(LOCAL_MESSAGES_PER_WAKE):
                if not self._handle_next():
                    return False
        finally:
            self._working = False
            self._report_taken()
        return self._next() is not None

    def _handle_next(self) -> bool:
        """Handle one message of the next connection. Returns False if no message can be handled now."""
        source = self._next()
        if source is None:
            return False
        worker, connection = source
        queue = self._waiting[source]
        record_key, octets = queue.popleft()
        if queue:
            self._waiting.move_to_end(source)
        else:
            del self._waiting[source]
        counts = self._taken.setdefault(worker, {})
        _, messages, size = counts.get(connection, (connection, 0, 0))
        counts[connection] = (connection, messages + 1, size + len(octets))
        self._handle(record_key, LocalMessage(worker.index, connection, octets))
        return True

    def _next(self) -> tuple[WorkerProcess, int] | None:
        """Return the next connection with a message that can be handled now; None if there is none."""
        for source, queue in self._waiting.items():
            if not self._behind(source[0]):
                served = self._handlers.get(queue[0][0])
                if served is None or served[1](source[1]):
                    return source
        return None

    @staticmethod
    def _behind(worker: WorkerProcess) -> bool:
        """True if the worker has so many octets to forward that responses to its clients would queue up."""
        return worker.live and worker.unconfirmed >= UNCONFIRMED_OCTETS

    def _handle(self, record_key: str, message: LocalMessage) -> None:
        served = self._handlers.get(record_key)
        if served is None:
            if self._log.enabled("ROUTER_CORE", DEBUG):
                self._log.debug("ROUTER_CORE", f"Message for {record_key} ignored: the address has no handler")
            return
        served[0](message)

    def _report_taken(self) -> None:
        """Queue `taken` for each worker whose messages were handled."""
        for worker, counts in self._taken.items():
            if worker.stage is not WorkerStage.DEAD:
                worker.outbox.append(Taken(list(counts.values())))
        self._taken.clear()
