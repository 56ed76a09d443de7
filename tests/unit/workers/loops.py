"""Routers in this process whose connections are real sockets."""

import socket
from typing import Any

from workers.testing import FaultyTransport, MemoryPoller
from workers.transport.tcp import TcpTransport

from router.control.handover import Handover
from tests.unit.engine.host import InProcessWorker, Router


class LoopWorker(InProcessWorker):
    """A worker without process. The transports of its connections fail where they are told to."""

    transport = FaultyTransport

    def make_poller(self) -> Any:
        return None


class SocketWorker(InProcessWorker):
    """A worker without process. Only its time is the test's: it runs until it would sleep."""

    transport = TcpTransport

    def make_poller(self) -> Any:
        return MemoryPoller()


class SocketPeer:
    """A client at the other end of a socket: `feed`, `take` and `gone` as of the host's peer."""

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
        """Octets arrive; the worker has not read them yet."""
        self.socket.sendall(octets)

    def take(self) -> bytes:
        """What has come since the last call."""
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
        """The socket is gone."""
        self.socket.close()


class SocketRouter(Router):
    """A whole router of workers with sockets."""

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
    """One whose workers have the system's clock and epoll. Faults are left with the worker that reported them."""

    worker_type = LoopWorker

    def settle(self) -> None:
        """Until the supervisor hears nothing any more."""
        quiet = 0
        while quiet < 3:  # what one worker has written, others take in their next wake
            moved = self.supervise()
            for worker in self.workers:
                self.wake(worker)
                moved |= bool(worker.channels.events or worker.loop.entering)
            quiet = 0 if moved else quiet + 1
