"""Choice of a worker for returning clients: the worker that has the other ends of the client's addresses.

A worker is chosen when a connection is accepted, before its first octet. The open identifies the client, and the
addresses that the client sent to and received from before predict its traffic. If the other ends of these addresses
are on another worker, the connection moves there before its open is answered, unless that worker would become busier
than others (decision 0043).
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Final

from router.addressing.address import MOBILE
from router.config.entities import ListenerConfig
from router.config.roles import NORMAL
from router.control.messages import Opened
from supervisor.addresses.record import AddressRecord
from supervisor.children.worker import WorkerProcess
from supervisor.connections.connections import RegisteredConnection
from supervisor.listeners.placement import Placements
from supervisor.subsystem import Subsystem

# limit of ends remembered for a client, and counted for a connection; the latest attached are kept
ENDS_MOST: Final = 8
LENGTH_MOST: Final = 256  # characters; longer container ids, users and addresses are not remembered
# Limit of connections on a worker that a connection may move to, above the worker with the fewest: a share of the
# average, at least MORE_LEAST. A replaced worker therefore fills up first.
MORE_SHARE: Final = 0.04
MORE_LEAST: Final = 2
LEAST_GAIN: Final = 0.25  # minimal gain for a move, as a share of the other ends of one address

# End of an address: the address key, and whether it receives.
End = tuple[str, bool]


class Affinity(Subsystem):
    """Ends that clients used before, and ends in use on each worker. Owner: supervisor."""

    def __init__(self, workers: Mapping[int, WorkerProcess], placements: Placements, most: int) -> None:
        """placements: the operator's placements, which take precedence. most: number of clients to remember; 0: no
        connection moves.
        """
        self.moved = 0  # total number of connections that moved to another worker
        self._workers = workers
        self._placements = placements
        self._most = most
        # Ends by container id and user; clients, and each client's ends, are ordered from least to most recently used.
        self._clients: OrderedDict[tuple[str, str | None], dict[End, None]] = OrderedDict()
        self._ends: dict[End, Counter[int]] = {}  # connections by worker
        self._counted: dict[int, tuple[int, set[End]]] = {}  # by connection: its worker and the ends counted there
        self._moving: dict[int, tuple[int, int]] = {}  # by connection: old and new worker
        # net number of moving connections by new worker; negative: more are leaving
        self._coming: Counter[int] = Counter()

    @property
    def remembered(self) -> int:
        """Return the number of remembered clients."""
        return len(self._clients)

    # Connections that sent their open

    def place(self, connection: RegisteredConnection) -> bool:
        """Return whether a connection that sent its open is to move to another worker.

        If it is, a call of `left` or `stays` follows.
        """
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

    def left(self, connection: RegisteredConnection) -> WorkerProcess | None:
        """Return the new worker of a connection that has left its old one; None if that worker has exited."""
        self.moved += 1
        return self._workers.get(self._arrive(connection))

    def stays(self, connection: RegisteredConnection) -> None:
        """Cancel the move of a connection that could not leave its worker."""
        self._arrive(connection)

    def _arrive(self, connection: RegisteredConnection) -> int:
        """End the move of a connection, and return the index of its new worker, or -1 if it was not moving."""
        before, to = self._moving.pop(connection.number, (-1, -1))
        if to >= 0:
            self._coming[before] += 1
            self._coming[to] -= 1
        return to

    def _movable(self, connection: RegisteredConnection) -> bool:
        """Return whether a connection may move: it uses neither TLS nor WebSocket, and no placement applies."""
        origin = connection.origin
        return (
            origin.role == NORMAL
            and isinstance(origin, ListenerConfig)
            and origin.ssl_profile is None
            and not origin.http
            and self._placements.worker(origin.name, connection.peer.rpartition(":")[0]) is None
        )

    def _best(self, now: int, known: Mapping[End, None]) -> int:
        """Return the worker with most of the other ends, among those with room."""
        near: defaultdict[int, float] = defaultdict(float)  # other ends by worker, as a sum of shares per address
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

    def _load(self, worker: WorkerProcess) -> int:
        return len(worker.connections) + self._coming[worker.index]

    # Links of clients

    def attached(self, connection: RegisteredConnection, record: AddressRecord, receives: bool) -> None:
        """Remember the end of an address that a newly attached link of a client uses."""
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

    def _count(self, connection: RegisteredConnection, worker: int, ends: Mapping[End, None] | tuple[End, ...]) -> None:
        """Count ends of a connection on its present or future worker."""
        before = self._counted.get(connection.number)
        if before is not None and before[0] != worker:
            self._discount(connection)
            ends = {**dict.fromkeys(before[1]), **dict.fromkeys(ends)}
        counted = self._counted.setdefault(connection.number, (worker, set()))[1]
        for end in ends:
            if end not in counted and len(counted) < ENDS_MOST:
                counted.add(end)
                self._ends.setdefault(end, Counter())[worker] += 1

    def _discount(self, connection: RegisteredConnection) -> None:
        worker, ends = self._counted.pop(connection.number, (-1, set()))
        for end in ends:
            counts = self._ends[end]
            counts[worker] -= 1
            if not counts[worker]:
                del counts[worker]
            if not counts:
                del self._ends[end]

    # Subsystem

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        """Move the counts of a connection to the worker on which it opened."""
        if connection.number in self._counted and connection.worker is not None:
            self._count(connection, connection.worker, ())

    def connection_closed(self, connection: RegisteredConnection) -> None:
        self._arrive(connection)
        self._discount(connection)
