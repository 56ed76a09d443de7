"""Listening sockets, accepted connections and their hand-over to workers (brokers-and-edge.md 3.2)."""

import array
import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from io import FileIO
from typing import Final

from sluice.router.config.entities import ListenerConfig
from sluice.router.config.roles import INTER_ROUTER
from sluice.router.control.codec import ControlError, decode_handover, encode_handover
from sluice.router.control.handover import Handover
from sluice.router.log import ERROR, INFO, WARNING, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.registry import Connections
from sluice.supervisor.listeners.accept_rate import AcceptRateLimiter, accept_queue_length
from sluice.supervisor.listeners.inherited_sockets import InheritedSockets
from sluice.supervisor.listeners.listener import BACKLOG, Listener, ListenError
from sluice.supervisor.listeners.placement import Placements
from sluice.supervisor.listeners.proxied_connections import ProxiedConnections, is_proxy, refused_proxy
from sluice.supervisor.listeners.proxy_header import ProxyError
from sluice.supervisor.network.neighbour_connections import NeighbourConnections
from sluice.supervisor.runtime.host_names import AddressesByHosts, place
from sluice.supervisor.subsystem import Subsystem

MAX_CONNECTIONS: Final = 65535  # default of policy.maxConnections
ACCEPTS_PER_WAKE: Final = 64  # limit of connections accepted before other events are handled
MAX_HANDOVER: Final = 65536  # limit in octets of a hand-over message
RETRY_AFTER: Final = 0.1  # pause in seconds when the system is out of memory or descriptors

# Errors of accept(2) that concern one connection only. The next call may succeed.
_OF_THE_PEER: Final = frozenset(
    (errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH)
) | {errno.EPERM, errno.ENOPROTOOPT, errno.ENONET, errno.EOPNOTSUPP, errno.EINTR, errno.ETIMEDOUT}
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
# Errors of sendmsg(2) when the hand-over socket is full, or too many descriptors are in flight.
_FULL: Final = (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS)
_GONE: Final = (errno.EPIPE, errno.ECONNRESET)

# Limit of octets that the kernel buffers for another router. Control messages must not wait behind megabytes of other
# messages on a slow network.
UNSENT_OCTETS: Final = 131072


_NONE: Final[AddressesByHosts] = {}


class Acceptor(Subsystem):
    """Accepts connections on all listeners, and hands them over to workers, together with connections of connectors.

    By default the worker with the fewest connections is chosen.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: Mapping[int, WorkerProcess],
        connections: Connections,
        neighbours: NeighbourConnections,
        pace: AcceptRateLimiter,
        log: ProcessLog,
        limit: int = MAX_CONNECTIONS,
        placements: Placements | None = None,
    ) -> None:
        """limit: number of accepted connections at a time."""
        self._pace = pace
        self.limit = limit
        self._loop = loop
        self._workers = workers
        self._connections = connections
        self._neighbours = neighbours
        self._log = log
        self._placements = placements
        self._listeners: list[Listener] = []
        self._open = False  # accepting, unless paused
        self._closed = False  # closed for good, because the router exits
        self._drains = False  # closed to new clients, because the router is about to exit
        self._paused = False
        self._reserve: FileIO | None = _open_reserve()
        self._waiting: deque[tuple[RegisteredConnection, socket.socket]] = (
            deque()
        )  # connections that no worker can take now
        self._proxies = ProxiedConnections(loop)

    def commit(self, change: ConfigurationChange) -> None:
        self.limit = change.new.policy.max_connections

    @property
    def listeners(self) -> list[Listener]:
        return self._listeners

    @property
    def accepting(self) -> bool:
        """Return whether connections are accepted now."""
        return self._open and not self._paused

    def bind(
        self,
        configs: tuple[ListenerConfig, ...],
        answers: AddressesByHosts = _NONE,
        inherited: InheritedSockets | None = None,
    ) -> None:
        """Bind all listeners without accepting yet. Raises ListenError if the first listener fails; others may fail.

        answers: the addresses of the listeners' hosts. inherited: sockets to use instead of binding.
        """
        for config in configs:
            try:
                listener = Listener(config, answers.get(place(config)), inherited)
                listener.accepts_as = (config, config.name)
                self._listeners.append(listener)
            except ListenError as error:
                if config is configs[0]:
                    raise
                self._log.error("SERVER", f"Listener error on {error.address}: {error.reason}")

    def open(self, announce: Callable[[Listener], None]) -> None:
        """Start accepting connections, and call `announce` for each listener. Raises ListenError if the first one
        fails.
        """
        for listener in list(self._listeners):
            try:
                listener.listen()
            except ListenError as error:
                listener.close()
                if listener is self._listeners[0]:
                    raise
                self._log.error("SERVER", f"Listener error on {error.address}: {error.reason}")
                self._listeners.remove(listener)
                continue
            announce(listener)
        self._open = True
        for listener in self._listeners:
            self._watch(listener)

    def add(self, listener: Listener) -> None:
        """Add a listener that listens already. It accepts connections after `accept_as`."""
        self._listeners.append(listener)

    def accept_as(self, listener: Listener, config: ListenerConfig, profile: str) -> str | None:
        """Accept further connections with these attributes, and return the key of the listener's previous profile, or
        None.
        """
        before, listener.accepts_as = listener.accepts_as, (config, profile)
        if before is None and self._open and not config.http:
            self._watch(listener)
        return None if before is None else before[1]

    def remove(self, listener: Listener) -> None:
        """Close a listener after accepting the connections in its kernel queue (brokers-and-edge.md L-5)."""
        self._listeners.remove(listener)
        for opened in listener.sockets:
            self._loop.remove_reader(opened)
            if self._open and not self._paused and listener.accepts_as is not None:
                self._accept(listener, opened, BACKLOG)
        listener.close()

    def _watch(self, listener: Listener) -> None:
        if listener.accepts_as is not None and not self._paused:
            for opened in listener.sockets:
                self._loop.add_reader(opened, self._on_acceptable, listener, opened)

    def _unwatch(self) -> None:
        for listener in self._listeners:
            for opened in listener.sockets:
                self._loop.remove_reader(opened)

    def _pause(self) -> None:
        """Pause accepting because no worker has room. New connections stay in the kernel's queue."""
        if not self._paused:
            self._paused = True
            self._unwatch()

    def resume(self) -> None:
        """Hand over waiting connections and resume accepting, if a worker has room again."""
        while self._waiting and self._choose() is not None:
            connection, accepted = self._waiting.popleft()
            self.give(connection, accepted)
        if self._paused and self._open and not self._waiting and self._choose() is not None:
            self._paused = False
            for listener in self._listeners:
                self._watch(listener)

    def _choose(self, role: str = "") -> WorkerProcess | None:
        """Return the worker with the fewest connections, of those that serve and have room in the hand-over socket.

        Connections to other routers carry the most traffic, so for that `role` their number is compared first. Returns
        None if no worker can take a connection.
        """
        best: WorkerProcess | None = None
        fewest = (0, 0)
        for worker in self._workers.values():
            if worker.takes_connections:
                load = (self._neighbours.count(worker.index) if role == INTER_ROUTER else 0, len(worker.connections))
                if best is None or load < fewest:
                    best, fewest = worker, load
        return best

    def _on_acceptable(self, listener: Listener, opened: socket.socket) -> None:
        """Accept connections from a readable socket, as far as the accept rate permits."""
        crowd = accept_queue_length(opened)
        room = self._pace.room(crowd, min(max(crowd, 1), ACCEPTS_PER_WAKE))
        if room > 1:
            # Lines of a burst are written together, so a worker may have a connection up to a burst before its line.
            self._log.hold()
            try:
                self._accept(listener, opened, room)
            finally:
                self._log.release()
        elif room:
            self._accept(listener, opened, room)
        else:
            self._connections.accept_pauses += 1
            self._loop.remove_reader(opened)
            self._loop.call_later(self._pace.rest(), self._go_on, listener, opened)

    def _go_on(self, listener: Listener, opened: socket.socket) -> None:
        """Watch a socket again after its pause."""
        if listener in self._listeners and listener.accepts_as is not None and self._open and not self._paused:
            self._loop.add_reader(opened, self._on_acceptable, listener, opened)

    def _accept(self, listener: Listener, opened: socket.socket, most: int) -> None:
        for _ in range(most):
            worker = self._choose(listener.config.role)
            if worker is None:
                self._pause()
                return
            try:
                accepted, address = opened.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    if not self._refuse(opened, error):
                        return
                elif error.errno not in _OF_THE_PEER:
                    self._rest(error)
                    return
                continue
            accepted.setblocking(False)
            if is_proxy(address[0], listener.config.proxy_networks):
                self._proxies.wait(accepted, address[:2], partial(self._adopt_proxied, listener, accepted, address[0]))
                continue
            placed = self._placed_worker(listener.config, address[0])
            self._adopt(listener, worker if placed is None else placed, accepted, f"{address[0]}:{address[1]}")

    def _adopt_proxied(
        self, listener: Listener, accepted: socket.socket, proxy: str, client: tuple[str, int] | ProxyError
    ) -> None:
        """Adopt a connection of a proxy, or close it if its header is missing or invalid."""
        if isinstance(client, ProxyError):
            self._log.repeated(WARNING, "SERVER", "proxy", refused_proxy(proxy, listener.text, client))
            accepted.close()
        elif listener not in self._listeners or listener.accepts_as is None:  # the listener was closed in the meantime
            accepted.close()
        elif not self._denied(accepted, f"{client[0]}:{client[1]}"):
            config, profile = listener.accepts_as
            connection = self._connections.adopt(None, config, listener.text, f"{client[0]}:{client[1]}", profile)
            self.give(connection, accepted, self._placed_worker(listener.config, client[0]))

    def _placed_worker(self, config: ListenerConfig, host: str) -> WorkerProcess | None:
        """Return the worker that a placement names, or None if there is none or it takes no connections."""
        index = None if self._placements is None else self._placements.worker(config.name, host)
        return None if index is None else self.worker(index)

    def worker(self, index: int) -> WorkerProcess | None:
        """Return the worker with an index, or None if it takes no connections."""
        worker = self._workers.get(index)
        return worker if worker is not None and worker.takes_connections else None

    def _adopt(self, listener: Listener, worker: WorkerProcess, accepted: socket.socket, peer: str) -> None:
        """Hand over an accepted connection, unless the connection limit is reached."""
        if self._denied(accepted, peer):
            return
        assert listener.accepts_as is not None
        config, profile = listener.accepts_as
        connection = self._connections.adopt(worker, config, listener.text, peer, profile)
        self._hand_over(worker, connection, accepted)

    def upgrade(self, listener: Listener, accepted: socket.socket, peer: str, octets: bytes) -> None:
        """Hand over a connection of an HTTP listener whose client requests WebSocket.

        octets: the request and all octets read after it. The worker processes them before it reads from the socket.

        brokers-and-edge.md H-7.
        """
        assert listener.accepts_as is not None
        accepted.setblocking(False)
        if self._drains:
            accepted.close()
        elif not self._denied(accepted, peer):
            config, profile = listener.accepts_as
            connection = self._connections.adopt(None, config, listener.text, peer, profile)
            connection.read_before = octets
            self.give(connection, accepted)

    def hand_over_encrypted(self, listener: Listener, accepted: socket.socket, address: tuple[str, int]) -> bool:
        """Hand over an unread connection of an HTTPS listener, because one process must handle both its TLS and
        WebSocket.

        Returns False if no worker can take the connection now.
        """
        worker = self._placed_worker(listener.config, address[0]) or self._choose(listener.config.role)
        if worker is None or listener.accepts_as is None or self._connections.count >= self.limit:
            return False
        self._adopt(listener, worker, accepted, f"{address[0]}:{address[1]}")
        return True

    def _denied(self, accepted: socket.socket, peer: str) -> bool:
        """Close a connection and return True if the connection limit is reached (routing-semantics.md C-7).

        security.md P-10.
        """
        if self._connections.count < self.limit or self._connections.make_room(peer):
            return False
        accepted.close()
        self._connections.deny(peer, self.limit)
        if self._log.enabled("POLICY", INFO):
            self._log.info(
                "POLICY",
                f"DENY Connection '{peer.rpartition(':')[0]}' based on global connection count. "
                f"nConnections= {self.limit}",
            )
        return True

    def give(self, connection: RegisteredConnection, accepted: socket.socket, to: WorkerProcess | None = None) -> None:
        """Hand over a connection without worker: from a proxy or a connector, or not taken by a worker that crashed.

        to: the worker to be used, which takes connections; None: any.
        """
        worker = to or self._choose(connection.origin.role)
        if worker is None and self._closed:
            accepted.close()
            return
        if worker is None:
            self._waiting.append((connection, accepted))
            self._pause()
            return
        self._connections.move(connection, worker)
        self._hand_over(worker, connection, accepted)

    def _hand_over(self, worker: WorkerProcess, connection: RegisteredConnection, accepted: socket.socket) -> None:
        try:
            if connection.origin.role == INTER_ROUTER:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_OCTETS)
            sent = self._send(worker, connection, accepted)
        except (OSError, ControlError) as error:
            self._connections.take_back(connection, worker)
            self._give_up(connection, accepted, error)
            return
        if sent:
            accepted.close()
            return
        # The hand-over socket is full, so the worker does not have the connection yet.
        self._connections.take_back(connection, worker)
        worker.stuck = (connection, accepted)
        assert worker.handover is not None
        self._loop.add_writer(worker.handover, self._send_stuck_connection, worker)

    def _send(self, worker: WorkerProcess, connection: RegisteredConnection, accepted: socket.socket) -> bool:
        """Write a connection to the hand-over socket. Returns False if the socket is full.

        Raises OSError or ControlError if this connection cannot be handed over at all.
        """
        assert worker.handover is not None
        data = encode_handover(
            Handover(
                conn=connection.number,
                profile=connection.profile,
                peer=connection.peer,
                initiate=connection.initiate,
                admits=self._connections.worker_admits(connection),
                octets=connection.read_before,
            )
        )
        descriptor = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (accepted.fileno(),)))
        try:
            worker.handover.sendmsg((data,), (descriptor,))
        except OSError as error:
            # _GONE: the worker has exited, and `withdraw` takes the connection back
            if error.errno in _FULL or error.errno in _GONE:
                return False
            raise
        return True

    def _send_stuck_connection(self, worker: WorkerProcess) -> None:
        """Send the stuck connection, now that the hand-over socket of its worker has room."""
        connection, accepted = worker.stuck
        if worker.handover is None:
            return
        failure: OSError | ControlError | None = None
        try:
            if not self._send(worker, connection, accepted):
                return
        except (OSError, ControlError) as error:
            failure = error
        self._loop.remove_writer(worker.handover)
        worker.stuck = None
        if failure is None:
            self._connections.move(connection, worker)
            accepted.close()
        else:
            self._give_up(connection, accepted, failure)
        self.resume()

    def _give_up(
        self, connection: RegisteredConnection, accepted: socket.socket, error: OSError | ControlError
    ) -> None:
        """Drop a connection that cannot be handed over to any worker."""
        accepted.close()
        reason = getattr(error, "strerror", None) or str(error)
        self._connections.give_up(connection, f"it cannot be handed to a worker: {reason}")

    def withdraw(self, worker: WorkerProcess) -> None:
        """Take back all connections that a dead or unresponsive worker has not taken, and hand them to
        other workers.
        """
        for connection, accepted in self._receive_untaken(worker):
            self.give(connection, accepted)

    def _receive_untaken(self, worker: WorkerProcess) -> list[tuple[RegisteredConnection, socket.socket]]:
        found: list[tuple[RegisteredConnection, socket.socket]] = []
        while worker.untaken is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(worker.untaken, MAX_HANDOVER, 1)
            except BlockingIOError:
                break
            if not data:  # the supervisor's end is closed
                break
            connection = worker.connections.get(decode_handover(data).conn)
            # without a free descriptor the connection is lost with the worker
            if connection is None or not descriptors:
                for descriptor in descriptors:
                    os.close(descriptor)
                continue
            self._connections.take_back(connection, worker)
            found.append((connection, socket.socket(fileno=descriptors[0])))
        if worker.stuck is not None:
            found.append(worker.stuck)
            worker.stuck = None
            if worker.handover is not None:
                self._loop.remove_writer(worker.handover)
        return found

    def _refuse(self, opened: socket.socket, error: OSError) -> bool:
        """Accept and close one connection when the system is out of descriptors, so that its client receives an end.

        The descriptor held in reserve is used for it. Returns False, and pauses accepting, if that fails as well.
        """
        self._log.repeated(ERROR, "SERVER", "refused", f"New connections are refused: {error.strerror}")
        if self._reserve is None:
            self._rest(error)
            return False
        self._reserve.close()
        self._reserve = None
        try:
            opened.accept()[0].close()
        except BlockingIOError:
            return True  # the client has disconnected
        except OSError as failure:
            self._rest(failure)
            return False
        finally:
            self._reserve = _open_reserve()
        return True

    def _rest(self, error: OSError) -> None:
        """Pause accepting after a temporary failure of accept."""
        text = f"No connections are accepted for {RETRY_AFTER} seconds: {error.strerror}"
        self._log.repeated(WARNING, "SERVER", "rests", text)
        self._pause()
        self._loop.call_later(RETRY_AFTER, self._end_rest)

    def _end_rest(self) -> None:
        if self._reserve is None:
            self._reserve = _open_reserve()
        self.resume()

    def drain(self, taken: Collection[socket.socket] | None = None) -> None:
        """Accept the connections in the kernel queues, then close all listening sockets, because the router is about to
        exit. HTTP listeners stay, but accept no WebSocket connections.

        taken: sockets that another process has taken over. Connections in their queues are left to that process, and
        accepted clients of HTTP listeners may still request WebSocket.
        """
        self._drains = taken is None
        for listener in self._listeners:
            sockets, listener.sockets = listener.sockets, []
            for opened in sockets:
                self._loop.remove_reader(opened)
                if self.accepting and listener.accepts_as is not None and opened not in (taken or ()):
                    self._accept(listener, opened, BACKLOG)
                opened.close()
        self._open = False

    def close(self) -> None:
        """Stop listening and close all sockets."""
        if self._open:
            self._unwatch()
        self._open = False
        self._closed = True
        for listener in self._listeners:
            listener.close()
        for _, accepted in self._waiting:
            accepted.close()
        self._waiting.clear()
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None


def _open_reserve() -> FileIO | None:
    """Return a descriptor to hold in reserve, or None if the system is out of descriptors."""
    try:
        return open(os.devnull, "rb", buffering=0)
    except OSError as error:
        if error.errno in _OUT_OF_DESCRIPTORS:
            return None
        raise
