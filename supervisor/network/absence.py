"""Messages that wait at an interior router for a path to routers that are unreachable (docs/internals/network.md).

No input or output.
"""

import time
from collections.abc import Mapping
from typing import Final, Protocol

from sluice.router.control.messages import Resume
from sluice.router.control.ops import NextHopGone, NextHopOp, Op, RouterOp
from sluice.router.log import NOTICE, WARNING, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.runtime.waker import Cancellable, Waker


class RemoteRouter:
    """Another router, as the workers' tables have it now or after the next epochs. Owner: Routers."""

    __slots__ = ("announced", "awaited", "cost", "gone", "id", "index", "links", "origins")

    def __init__(self, index: int, router_id: str) -> None:
        self.index = index
        self.id = router_id
        self.links: tuple[int, ...] = ()  # connections to its next hop; empty: unreachable
        self.awaited: tuple[int, ...] = ()  # last ones of an unreachable router for which messages wait
        self.cost = 0
        self.origins = 0
        self.announced = False  # announced to the workers
        self.gone = False

    def op(self) -> Op:
        """Return the op that announces the router."""
        awaited = bool(self.awaited) and not self.links
        links = list(self.awaited if awaited else self.links)
        return RouterOp(self.index, self.id, links, self.cost, f"{self.origins:x}", awaited)


class NextHopConnection(Protocol):
    """Open inter-router connection, as far as messages may leave by it."""

    connection: RegisteredConnection
    links: list[RegisteredLink | None]  # outgoing data links by priority
    hop: bool  # the workers' tables have it as a next hop


class _LostHop:
    """Next hop of a lost connection, with its suspended links. Owner: the absent routers."""

    __slots__ = ("links", "op", "peer", "routers", "worker")

    def __init__(
        self, op: NextHopOp, peer: str | None, worker: WorkerProcess, links: list[RegisteredLink],
        routers: list[RemoteRouter],
    ) -> None:  # fmt: skip
        self.op: Final = op
        self.peer: Final = peer  # id of the neighbour
        self.worker: Final = worker
        self.links: Final = links
        self.routers: Final = routers  # routers whose path began with the hop


class AbsentRouters:
    """Unreachable routers for which messages wait, and the lost next hops that keep these. Owner: the core.

    A router that becomes unreachable keeps its last path in the workers' tables for some seconds, and a lost next hop
    its links, which their worker has suspended. So messages queue there, unless their address has another destination.
    """

    def __init__(self, seconds: int, journal: Journal, waker: Waker, log: ProcessLog) -> None:
        """seconds: time for which messages wait; 0: they are released at once."""
        self._seconds: Final = seconds
        self._journal: Final = journal
        self._waker: Final = waker
        self._log: Final = log
        self._routers: Mapping[int, RemoteRouter] = {}
        self._expiries: dict[RemoteRouter, tuple[float, Cancellable]] = {}  # time of the loss; end of the wait
        self._suspended: dict[int, tuple[WorkerProcess, list[RegisteredLink]]] = {}  # by connection, before its end
        self._hops: dict[int, _LostHop] = {}  # by number of the lost connection
        self._ended = False  # no further path is awaited

    def join(self, routers: Mapping[int, RemoteRouter]) -> None:
        """Use the routers of a network, by index."""
        self._routers = routers

    # Routers

    def lost(self, router: RemoteRouter) -> None:
        """Await a path to a router that is about to become unreachable. Its links are still the last ones."""
        if not self._seconds or self._ended or router.gone or not router.links:
            return
        router.awaited = router.links
        expiry = self._waker.later(self._seconds, lambda: self._expire(router))
        self._expiries[router] = time.monotonic(), expiry
        text = f"Router '{router.id}' is unreachable: messages wait up to {self._seconds} s for a path to it"
        self._log.write(NOTICE, "ROUTER_CORE", text)

    def found(self, router: RemoteRouter) -> None:
        """End the wait for a router: it has a path, or is removed."""
        router.awaited = ()
        since, expiry = self._expiries.pop(router, (0.0, None))
        if expiry is None:
            return
        expiry.cancel()
        if not router.gone:
            waited = time.monotonic() - since
            text = f"Router '{router.id}' is reachable after {waited:.1f} s: messages that waited leave"
            self._log.write(NOTICE, "ROUTER_CORE", text)

    def remaining(self, index: int) -> float | None:
        """Return the seconds for which messages still wait for an unreachable router; None: they do not."""
        router = self._routers.get(index)
        if router is None or router not in self._expiries:
            return None
        return max(self._expiries[router][0] + self._seconds - time.monotonic(), 0.0)

    def end(self) -> None:
        """Release what waits, now and in future: the router drains, so it will not forward it."""
        self._ended = True
        for router, (_, expiry) in list(self._expiries.items()):
            expiry.cancel()
            self._give_up(router)

    def _expire(self, router: RemoteRouter) -> None:
        text = f"No path to router '{router.id}' within {self._seconds} s: messages that waited for it are released"
        self._log.write(WARNING, "ROUTER_CORE", text)
        self._give_up(router)
        self._waker.wake()

    def _give_up(self, router: RemoteRouter) -> None:
        del self._expiries[router]
        router.awaited = ()
        if router.announced:
            self._journal.append(router.op())

    # Next hops

    def suspended(self, worker: WorkerProcess, link: RegisteredLink, waiting: int) -> None:
        """Keep a link of a lost connection, which its worker has suspended. waiting: number of deliveries."""
        link.suspended = True
        if self._ended:
            self._release(worker, link)
            return
        self._suspended.setdefault(link.connection.number, (worker, []))[1].append(link)

    def keep(self, op: NextHopOp, peer: str | None) -> bool:
        """Keep the next hop of a connection that has ended, for messages that wait. peer: id of the neighbour.

        False: nothing can wait for it.
        """
        found = self._suspended.pop(op.conn, None)
        if found is None:
            return False
        worker, links = found
        routers = [each for each in self._routers.values() if op.conn in (each.links or each.awaited)]
        if routers:
            self._hops[op.conn] = _LostHop(op, peer, worker, links, routers)
            return True
        for link in links:
            self._release(worker, link)
        return False

    def ops(self) -> list[Op]:
        """Return the ops of the lost next hops, for a snapshot."""
        return [hop.op for hop in self._hops.values()]

    def worker_lost(self, worker: WorkerProcess) -> None:
        """Forget the messages of a worker that has ended."""
        for hop in [each for each in self._hops.values() if each.worker is worker]:
            del self._hops[hop.op.conn]
            self._journal.append(NextHopGone(hop.op.conn))

    def step(self, neighbours: Mapping[int, NextHopConnection]) -> None:
        """Send what waits at lost next hops whose routers are reachable again, or awaited no more.

        neighbours: open inter-router connections by number.
        """
        for conn, hop in list(self._hops.items()):
            if any(conn in (router.links or router.awaited) for router in hop.routers):
                continue
            reachable = [router for router in hop.routers if router.links]
            successors = [
                each
                for each in neighbours.values()
                if reachable and all(each.connection.number in router.links for router in reachable)
            ] or [each for each in neighbours.values() if each.connection.container == hop.peer]
            if successors and not any(each.hop for each in successors):
                continue  # its data links are being attached
            del self._hops[conn]
            self._journal.append(NextHopGone(conn))
            self._resume(hop, next((each for each in successors if each.hop), None))

    def _resume(self, hop: _LostHop, successor: NextHopConnection | None) -> None:
        """Move what waits to the data links of another next hop, once no worker sends to the lost one."""
        for link in hop.links:
            target = None if successor is None else _data_link(successor, link.priority)
            if target is None:
                self._release(hop.worker, link)
                continue
            here = target.worker == link.worker
            order = (
                Resume(link.slot, link.generation, target.connection.number, target.number)
                if here
                else Resume(link.slot, link.generation, other=(target.worker, target.slot, target.generation))
            )
            self._send(hop.worker, order)

    def _release(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        self._send(worker, Resume(link.slot, link.generation))

    def _send(self, worker: WorkerProcess, order: Resume) -> None:
        self._journal.call_when_acknowledged(lambda: worker.outbox.append(order))


def _data_link(hop: NextHopConnection, priority: int) -> RegisteredLink | None:
    """Return the data link for messages of a priority, or that of the next lower one."""
    return next((link for link in reversed(hop.links[: priority + 1]) if link is not None), None)
