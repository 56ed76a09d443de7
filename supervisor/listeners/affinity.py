"""Which worker a client that was here before should be on: the one that has the other ends of its addresses.

A worker is chosen when a connection is accepted, before its first octet. Its open says who the client is; what that
client sent to and received from before says whom it will talk to. Where these are on another worker, the connection
goes there before its open is answered, unless that worker would have more to do than others (decision 0043).
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Final

from router.addressing.address import MOBILE
from router.config.entities import ListenerConfig
from router.config.roles import NORMAL
from router.control.messages import Opened
from supervisor.addresses.record import Record
from supervisor.connections.connections import Connection
from supervisor.listeners.placement import Placements
from supervisor.processes.worker import Worker
from supervisor.subsystem import Subsystem

ENDS_MOST: Final = 8  # of a client, and of a connection: those that it attached last
LENGTH_MOST: Final = 256  # characters of a container id, a user or an address; longer ones are not remembered
# What a worker may have after a connection has come: connections more than the one with the fewest, as a share of the
# average and at least. A worker that has just replaced another one gets its part first.
MORE_SHARE: Final = 0.04
MORE_LEAST: Final = 2
LEAST_GAIN: Final = 0.25  # of the other ends of one address: for less no connection moves

# One end of an address: its key, and whether it receives.
End = tuple[str, bool]


class Affinity(Subsystem):
    """What clients did, and who is where now. Owner: supervisor."""

    def __init__(self, workers: Mapping[int, Worker], placements: Placements, most: int) -> None:
        """placements: those that an operator has made come first. most: clients remembered; 0: none, all stay."""
        self.moved = 0  # connections that went to another worker, ever
        self._workers = workers
        self._placements = placements
        self._most = most
        # Ends by container id and user, the client that was here last at the end, as its last end is.
        self._clients: OrderedDict[tuple[str, str | None], dict[End, None]] = OrderedDict()
        self._ends: dict[End, Counter[int]] = {}  # connections by worker
        self._counted: dict[int, tuple[int, set[End]]] = {}  # by connection: the worker, and the ends counted there
        self._moving: dict[int, tuple[int, int]] = {}  # by connection: from one worker to another
        self._coming: Counter[int] = Counter()  # connections on their way, by worker; below 0: from there

    @property
    def remembered(self) -> int:
        """Clients whose addresses are known."""
        return len(self._clients)

    # Connections whose open has come

    def place(self, connection: Connection) -> bool:
        """Whether a connection whose open has come is to leave its worker; `left` or `stays` follows."""
        known = self._clients.get((connection.container or "", connection.user))
        if known is None or connection.worker is None:
            return False
        self._clients.move_to_end((connection.container or "", connection.user))
        best = self._best(connection.worker, known) if self._movable(connection) else connection.worker
        self._count(connection, best, known)
        if best == connection.worker:
            return False
        self._moving[connection.number] = connection.worker, best
        self._coming[connection.worker] -= 1
        self._coming[best] += 1
        return True

    def left(self, connection: Connection) -> Worker | None:
        """A connection has left its worker: the one that it is for."""
        self.moved += 1
        return self._workers.get(self._arrive(connection))

    def stays(self, connection: Connection) -> None:
        """A connection could not leave its worker."""
        self._arrive(connection)

    def _arrive(self, connection: Connection) -> int:
        """It is not on its way any more; the worker that it was for, or -1."""
        before, to = self._moving.pop(connection.number, (-1, -1))
        if to >= 0:
            self._coming[before] += 1
            self._coming[to] -= 1
        return to

    def _movable(self, connection: Connection) -> bool:
        """Whether another worker can have it: no TLS or WebSocket, and no placement that decides."""
        origin = connection.origin
        return (
            origin.role == NORMAL
            and isinstance(origin, ListenerConfig)
            and origin.ssl_profile is None
            and not origin.http
            and self._placements.worker(origin.name, connection.peer.rpartition(":")[0]) is None
        )

    def _best(self, now: int, known: Mapping[End, None]) -> int:
        """The worker with most of the other ends, of those that have room."""
        near: defaultdict[int, float] = defaultdict(float)  # other ends, in those of one address
        for key, receives in known:
            others = self._ends.get((key, not receives))
            if others is not None:
                whole = others.total()
                for worker, count in others.items():
                    near[worker] += count / whole
        if not near:
            return now
        loads = {each.index: self._load(each) for each in self._workers.values() if each.takes_connections}
        average = sum(loads.values()) / max(len(loads), 1)
        most = min(loads.values(), default=0) + max(MORE_LEAST, MORE_SHARE * average)
        least = near[now] + LEAST_GAIN
        fitting = [each for each, load in loads.items() if load < most and each != now and near[each] >= least]
        return max(fitting, key=lambda each: (near[each], -loads[each]), default=now)

    def _load(self, worker: Worker) -> int:
        return len(worker.connections) + self._coming[worker.index]

    # What clients do

    def attached(self, connection: Connection, record: Record, receives: bool) -> None:
        """A client has attached a link."""
        client = connection.container or "", connection.user
        texts = (record.key, client[0], client[1] or "")
        if (
            not self._most
            or connection.origin.role != NORMAL
            or connection.worker is None
            or record.inproc
            or not record.key.startswith(MOBILE)
            or max(map(len, texts)) > LENGTH_MOST
        ):
            return
        end = record.key, receives
        known = self._clients.setdefault(client, {})
        self._clients.move_to_end(client)
        known.pop(end, None)
        known[end] = None
        if len(known) > ENDS_MOST:
            del known[next(iter(known))]
        if len(self._clients) > self._most:
            self._clients.popitem(last=False)
        self._count(connection, connection.worker, (end,))

    def _count(self, connection: Connection, worker: int, ends: Mapping[End, None] | tuple[End, ...]) -> None:
        """Count ends of a connection on a worker, the one that it is on or is going to."""
        before = self._counted.get(connection.number)
        if before is not None and before[0] != worker:
            self._discount(connection)
            ends = {**dict.fromkeys(before[1]), **dict.fromkeys(ends)}
        counted = self._counted.setdefault(connection.number, (worker, set()))[1]
        for end in ends:
            if end not in counted and len(counted) < ENDS_MOST:
                counted.add(end)
                self._ends.setdefault(end, Counter())[worker] += 1

    def _discount(self, connection: Connection) -> None:
        worker, ends = self._counted.pop(connection.number, (-1, set()))
        for end in ends:
            counts = self._ends[end]
            counts[worker] -= 1
            if not counts[worker]:
                del counts[worker]
            if not counts:
                del self._ends[end]

    # Subsystem

    def connection_opened(self, connection: Connection, message: Opened) -> None:
        """It is where it will be."""
        if connection.number in self._counted and connection.worker is not None:
            self._count(connection, connection.worker, ())

    def connection_closed(self, connection: Connection) -> None:
        self._arrive(connection)
        self._discount(connection)
