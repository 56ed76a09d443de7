"""In-process routers whose connections are real sockets."""

import socket
from typing import Any

from sluice.router.control.handover import Handover
from sluice.workers.testing import FaultyTransport, MemoryPoller
from sluice.workers.transport.tcp import TcpTransport
from tests.component.engine.host import InProcessRouter, InProcessWorker


class LoopWorker(InProcessWorker):
    """Worker without a process. The transports of its connections fail on request."""

    transport = FaultyTransport

    def make_poller(self) -> Any:
        return None


class SocketWorker(InProcessWorker):
    """Worker without a process, whose time the test controls. Each wake runs until the loop would sleep."""

    transport = TcpTransport

    def make_poller(self) -> Any:
        return MemoryPoller()


class SocketPeer:
    """Client at the other end of a socket, with the `feed`, `take` and `gone` of the host's peer."""

    def __init__(self, router: "SocketRouter", ours: socket.socket, number: int, worker: InProcessWorker) -> None:
        self.router = router
        self.socket = ours
        self.number = number
        self.worker = worker
        self.gone = False

    @property
    def client(self) -> Any:
        return self.worker.clients[self.number]

    def feed(self, octets: bytes) -> None:
        """Send octets. The worker has not read them yet."""
        self.socket.sendall(octets)

    def take(self) -> bytes:
        """Return the octets that have arrived since the last call."""
        octets = b""
        while not self.gone:
            try:
                part = self.socket.recv(1 << 20)
            except BlockingIOError:
                break
            except ConnectionResetError:
                part = b""
            self.gone = not part
            octets += part
        return octets

    def lose(self) -> None:
        """Close the socket."""
        self.socket.close()


class SocketRouter(InProcessRouter):
    """Router whose workers have sockets."""

    worker_type: type[InProcessWorker] = SocketWorker

    def hand_over(self, worker: int, message: Handover, known: Any) -> Any:
        own = self.workers[worker]
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        own.channels.hand_over(message, theirs.detach())
        self.wake(own)
        peer = SocketPeer(self, ours, known.number, own)
        self.peers.append(peer)  # type: ignore[arg-type]
        return peer


class LoopRouter(SocketRouter):
    """Router whose workers use the system's clock and epoll. Faults stay with the worker that reported them."""

    worker_type = LoopWorker

    def settle(self) -> None:
        """Run supervisor and workers until there is nothing left to exchange."""
        quiet = 0
        # Output of one worker reaches the others in their next wake.
        while quiet < 3:
            moved = self.supervise()
            for worker in self.workers:
                self.wake(worker)
                moved |= bool(worker.channels.events or worker.loop.scheduler.entering)
            quiet = 0 if moved else quiet + 1
