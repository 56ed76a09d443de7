"""The router itself as a receiver and sender of messages. No input or output here.

Workers hand over messages to in-process addresses (`local`), and get those that the router itself sends (`send`). What
is in between is bounded: a worker stops connections whose messages it has not been told to be dealt with (`taken`), and
messages of a worker wait here while it has too much of ours to forward (`forwarded`).
"""
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from router.ipc.control import CONTROL, SEND, TAKEN, Message
from router.log import DEBUG, WARNING, Log
from router.routing.settings import CLOSEST, DEFAULT_OVERFLOW
from supervisor.table import Record, Table
from supervisor.worker import Stage, Worker

# Messages handled before other events have their turn.
MESSAGES_A_TURN: Final = 8
# Octets given to a worker to be forwarded: from here on its requests wait …
UNCONFIRMED_OCTETS: Final = 8 << 20
# … and beyond this nothing more is sent by way of it (a single larger message is, when there is nothing else).
UNCONFIRMED_MOST: Final = 64 << 20


class LocalMessage(NamedTuple):
    """A message for the router itself. `octets`: all of it, as its sender wrote it."""

    worker_index: int
    connection_number: int | None  # None: not from a client
    octets: bytes


Handler = Callable[[LocalMessage], None]


# Whether a handler takes another message of a connection now.
Ready = Callable[[int], bool]


def always(connection: int) -> bool:
    """Of a handler that has done with a message when it returns."""
    del connection
    return True


class InProcess:
    """In-process addresses, the messages that wait for their handlers, and the way out. Owner: the core.

    `changed` is called when messages of the router itself wait to be sent; the service sets it.
    """

    def __init__(
        self, table: Table, workers: Mapping[int, Worker], find: Callable[[str], Record | None], log: Log
    ) -> None:
        """workers: the current generation of each. find: the record for an address text."""
        self._table = table
        self._workers = workers
        self._find = find
        self._log = log
        self._handlers: dict[str, tuple[Handler, Ready]] = {}
        # Messages with their keys by connection: one of each is handled in turn, so that none holds up the others.
        self._waiting: OrderedDict[tuple[Worker, int], deque[tuple[str, bytes]]] = OrderedDict()
        self._taken: dict[Worker, dict[int, list[int]]] = {}  # connection -> it, messages, octets; to be told
        self._working = False
        self.changed: Callable[[], None] = lambda: None
        self.first: Callable[[], bool] = lambda: False  # what is done before messages are handled; True: there is more

    def open(self, record_key: str, *, rejects: bool = False) -> None:
        """Make an address one of the router itself: it takes messages from now on, or rejects them. Raises
        TableFullError.
        """
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

        While `ready(connection)` is false those of a connection wait here, where nobody waits longer for somebody
        else's; call `go_on` when it is true again.
        """
        self.open(record_key)
        self._handlers[record_key] = (handler, ready)

    def go_on(self) -> None:
        """A handler that was not ready is."""
        if self._waiting and not self._working:
            self.changed()

    def send(self, address_text: str, octets: bytes, near: int | None = None) -> bool:
        """Send a whole message, presettled, to whoever consumes the address; `near`: the worker to prefer.

        False: nobody does (the router itself does not count: it says nothing to itself), or the workers have not
        forwarded what they were given before.
        """
        record = self._find(address_text)
        if record is None or record.inproc:
            return False
        worker = self._choose(record, near)
        if worker is None:
            return False
        if worker.unconfirmed and worker.unconfirmed + len(octets) > UNCONFIRMED_MOST:
            text = f"Message of the router to {address_text} dropped: {worker} is behind"
            self._log.repeated(WARNING, "ROUTER_CORE", "message dropped", text)
            return False
        worker.unconfirmed += len(octets)
        worker.sends.append(({"t": SEND, "key": record.key, "epoch": self._table.pending_epoch}, octets))
        if not self._working:
            self.changed()
        return True

    def send_control(self, index: int, conn: int, octets: bytes) -> bool:
        """Send a message on the control link of a connection that worker `index` has. False as for `send`."""
        worker = self._workers.get(index)
        if worker is None or not worker.live:
            return False
        if worker.unconfirmed and worker.unconfirmed + len(octets) > UNCONFIRMED_MOST:
            text = f"[C{conn}] Control message dropped: {worker} is behind"
            self._log.repeated(WARNING, "ROUTER", "control dropped", text)
            return False
        worker.unconfirmed += len(octets)
        worker.sends.append(({"t": CONTROL, "conn": conn}, octets))
        if not self._working:
            self.changed()
        return True

    def _choose(self, record: Record, near: int | None) -> Worker | None:
        """A live worker that has a consumer; any, where all know the way to one: of an exchange, whose consumers are
        those of other addresses, and of an address at other routers."""
        having = self._live(record)
        if not having and (record.exchange is not None or record.remotes):
            having = [worker.index for worker in self._workers.values() if worker.live]
        if not having and record.fallback is not None:
            return self._choose(record.fallback, near)
        if not having:
            return None
        return self._workers[near if near is not None and near in having else having[0]]

    def _live(self, record: Record) -> list[int]:
        found = dict.fromkeys(self._table.consumer_workers(record))
        return [index for index in found if index in self._workers and self._workers[index].live]

    # Messages for the router itself

    def receive(self, worker: Worker, message: Message, octets: bytes) -> None:
        """A `local` message: it waits for `work`."""
        self._waiting.setdefault((worker, message["conn"]), deque()).append((message["key"], octets))

    def work(self) -> bool:
        """Handle waiting messages, as many as are fair; True: more can be handled now.

        What a handler raises comes out of here; its message is dealt with.
        """
        self._working = True
        more = False
        try:
            more = self.first()
            for _ in range(MESSAGES_A_TURN):
                if not self._handle_next():
                    return more
        finally:
            self._working = False
            self._tell_taken()
        return more or self._next() is not None

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
        count = self._taken.setdefault(worker, {}).setdefault(connection, [connection, 0, 0])
        count[1] += 1
        count[2] += len(octets)
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

    def _tell_taken(self) -> None:
        for worker, counts in self._taken.items():
            if worker.stage is not Stage.DEAD:
                worker.outbox.append({"t": TAKEN, "counts": list(counts.values())})
        self._taken.clear()
