"""The router itself as a receiver and sender of messages. No input or output here.

routing-semantics.md 10.

Workers pass on messages to in-process addresses (`local`), and get those that the router itself sends (`send`). Both
are bounded: a worker does not read connections with too many unhandled messages (`taken` acknowledges them), and
requests of a worker wait here while it has too many octets to forward (`forwarded`).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from router.addressing.settings import CLOSEST, DEFAULT_OVERFLOW
from router.control.handlers import Handlers
from router.control.messages import Control, Count, Forwarded, Local, Send, Taken
from router.log import DEBUG, WARNING, Log
from supervisor.addresses.record import Record
from supervisor.addresses.table import Table
from supervisor.processes.worker import Stage, Worker
from supervisor.subsystem import CompositionError, RawHandler, Subsystem

# Messages handled before other events.
MESSAGES_A_TURN: Final = 8
# Octets that a worker has still to forward: from here on its requests wait …
UNCONFIRMED_OCTETS: Final = 8 << 20
# … and beyond this nothing more is sent through it (except a single larger message).
UNCONFIRMED_MOST: Final = 64 << 20


class LocalMessage(NamedTuple):
    """A message for the router itself. `octets`: all of it, as its sender wrote it."""

    worker_index: int
    connection_number: int | None  # None: not from a client
    octets: bytes


Handler = Callable[[LocalMessage], None]
# Takes a message: worker, number of the connection, octets.
Diverted = Callable[[Worker, int, bytes], None]

# Whether a handler accepts another message of a connection now.
Ready = Callable[[int], bool]


def always(connection: int) -> bool:
    """For a handler that has finished with a message when it returns."""
    del connection
    return True


class InProcess(Subsystem):
    """In-process addresses, the messages that wait for their handlers, and messages to send. Owner: the core."""

    def __init__(
        self,
        table: Table,
        workers: Mapping[int, Worker],
        find: Callable[[str], Record | None],
        log: Log,
        wake: Callable[[], object],
    ) -> None:
        """workers: the current generation of each. find: the record for an address text. wake(): called when messages
        of the router itself wait to be sent, or can be handled.
        """
        self._table = table
        self._workers = workers
        self.find = find
        self._log = log
        self._handlers: dict[str, tuple[Handler, Ready]] = {}
        # Messages with their keys by connection: one of each is handled in turn, so that none holds up the others.
        self._waiting: OrderedDict[tuple[Worker, int], deque[tuple[str, bytes]]] = OrderedDict()
        self._taken: dict[Worker, dict[int, Count]] = {}  # by connection; to be sent
        self._working = False
        self._wake = wake
        self._diverted: dict[str, Diverted] = {}

    def open(self, record_key: str, *, rejects: bool = False) -> None:
        """Make an address in-process: from now on the router accepts or rejects its messages. Raises TableFullError."""
        record = self._table.records.get(record_key)
        if record is None:
            record = self._table.create(record_key, CLOSEST, None, DEFAULT_OVERFLOW)
        if not record.inproc:
            record.inproc = True
            record.rejects = rejects
            self._table.hold(record)
            self._table.announce(record)

    def serve(self, record_key: str, handler: Handler, ready: Ready = always) -> None:
        """Hand messages to the address `record_key` (`M0$management`) to `handler`. Raises TableFullError.

        While `ready(connection)` is false, messages of a connection wait here, and delay no other connection; call
        `go_on` when it is true again.
        """
        self.open(record_key)
        self._handlers[record_key] = (handler, ready)

    def handle(self, service: str, handler: Handler) -> None:
        """Hand messages to `handler` that come on links for a service of the router alone, which has no address."""
        if service in self._handlers:
            raise CompositionError(f"messages for {service!r} go to somebody already")
        self._handlers[service] = (handler, always)

    def divert(self, record_key: str, receive: Diverted) -> None:
        """Pass messages with a key that is not of an address to `receive` as they arrive."""
        if record_key in self._diverted:
            raise CompositionError(f"messages for {record_key!r} go to somebody already")
        self._diverted[record_key] = receive

    def go_on(self) -> None:
        """A handler is ready again."""
        if self._waiting and not self._working:
            self._wake()

    def send(self, address_text: str, octets: bytes, preferred: int | None = None) -> bool:
        """Send a whole message, presettled, to the consumers of an address; `preferred`: the worker to prefer.

        False: there is no consumer (the router sends nothing to itself), or too much waits in the worker.
        """
        record = self.find(address_text)
        if record is None or record.inproc:
            return False
        worker = self._choose(record, preferred)
        if worker is None:
            return False
        if worker.unconfirmed and worker.unconfirmed + len(octets) > UNCONFIRMED_MOST:
            text = f"Message of the router to {address_text} dropped: {worker} is behind"
            self._log.repeated(WARNING, "ROUTER_CORE", "message dropped", text)
            return False
        worker.unconfirmed += len(octets)
        worker.sends.append((Send(record.key, self._table.pending_epoch), octets))
        if not self._working:
            self._wake()
        return True

    def send_control(self, index: int, conn: int, octets: bytes, link: int | None = None) -> bool:
        """Send a message on the control link of a connection that worker `index` has, or on the link that it knows by
        this number. False as for `send`."""
        worker = self._workers.get(index)
        if worker is None or not worker.live:
            return False
        if worker.unconfirmed and worker.unconfirmed + len(octets) > UNCONFIRMED_MOST:
            text = f"[C{conn}] Control message dropped: {worker} is behind"
            self._log.repeated(WARNING, "ROUTER", "control dropped", text)
            return False
        worker.unconfirmed += len(octets)
        worker.sends.append((Control(conn, link), octets))
        if not self._working:
            self._wake()
        return True

    def _choose(self, record: Record, preferred: int | None) -> Worker | None:
        """A live worker that has a consumer; any live worker for an exchange, whose consumers are those of other
        addresses, and for an address at other routers."""
        having = self._live(record)
        if not having and (record.exchange is not None or record.remotes):
            having = [worker.index for worker in self._workers.values() if worker.live]
        if not having and record.fallback is not None:
            return self._choose(record.fallback, preferred)
        if not having:
            return None
        return self._workers[preferred if preferred is not None and preferred in having else having[0]]

    def _live(self, record: Record) -> list[int]:
        found = dict.fromkeys(self._table.consumer_workers(record))
        return [index for index in found if index in self._workers and self._workers[index].live]

    # Messages for the router itself

    def messages(self, handlers: Handlers[Worker]) -> None:
        handlers.on(Forwarded, self._forwarded)

    def raw_messages(self) -> Mapping[type[Local], RawHandler]:
        return {Local: self.receive}

    @staticmethod
    def _forwarded(worker: Worker, message: Forwarded) -> None:
        worker.unconfirmed -= message.octets

    def receive(self, worker: Worker, message: Local, octets: bytes) -> None:
        """A `local` message: it waits for `work`."""
        diverted = self._diverted.get(message.key)
        if diverted is not None:
            diverted(worker, message.conn, octets)
            return
        self._waiting.setdefault((worker, message.conn), deque()).append((message.key, octets))

    def work(self) -> bool:
        """Handle waiting messages for a limited time; True: more can be handled now.

        An exception of a handler is passed on; its message counts as handled.
        """
        self._working = True
        try:
            for _ in range(MESSAGES_A_TURN):
                if not self._handle_next():
                    return False
        finally:
            self._working = False
            self._report_taken()
        return self._next() is not None

    def _handle_next(self) -> bool:
        """Handle one message of the connection whose turn it is."""
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

    def _next(self) -> tuple[Worker, int] | None:
        """The connection whose turn it is; None when nothing waits that can be handled now."""
        for source, queue in self._waiting.items():
            if not self._behind(source[0]):
                served = self._handlers.get(queue[0][0])
                if served is None or served[1](source[1]):
                    return source
        return None

    @staticmethod
    def _behind(worker: Worker) -> bool:
        """Whether answers to what the worker's clients ask would queue up."""
        return worker.live and worker.unconfirmed >= UNCONFIRMED_OCTETS

    def _handle(self, record_key: str, message: LocalMessage) -> None:
        served = self._handlers.get(record_key)
        if served is None:
            if self._log.enabled("ROUTER_CORE", DEBUG):
                self._log.debug("ROUTER_CORE", f"Message for {record_key} ignored: nobody serves it")
            return
        served[0](message)

    def _report_taken(self) -> None:
        for worker, counts in self._taken.items():
            if worker.stage is not Stage.DEAD:
                worker.outbox.append(Taken(list(counts.values())))
        self._taken.clear()
