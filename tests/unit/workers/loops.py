"""A router in this process whose workers run the real event loop, on real sockets."""

import socket
from typing import Any

from workers.loop import Loop
from workers.testing import FaultyTransport, count_privately

import workers.worker
from router.ipc import control
from tests.unit.engine.host import LISTENER, InProcessWorker, Peer, Router


class LoopWorker(InProcessWorker):
    """A worker without process and channels, with its loop."""

    def make_clock(self) -> Any:
        return Loop(self.region, self.setup.worker)


class SocketPeer:
    """A client at the other end of a socket: `feed`, `take` and `gone` as of the host's peer."""

    def __init__(self, router: "LoopRouter", ours: socket.socket, number: int, worker: InProcessWorker) -> None:
        self.router = router
        self.socket = ours
        self.number = number
        self.worker = worker
        self.gone = False

    @property
    def client(self) -> Any:
        return self.worker.clients[self.number]

    def feed(self, octets: bytes) -> None:
        """Octets arrive."""
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


class LoopRouter(Router):
    """A whole router, with loops. The transports of its connections fail where they are told to."""

    worker_type = LoopWorker

    def __init__(self, monkeypatch: Any, workers_number: int = 1, text: str | None = None) -> None:
        monkeypatch.setattr(workers.worker, "Transport", FaultyTransport)
        super().__init__(workers_number, text)
        for worker in self.workers:
            worker.loop.use_ports(worker.ports)

    def connect(self, worker: int = 0, listener: str = LISTENER) -> Any:
        known = self.core.workers[worker]
        adopted = self.core.adopt(known, self.listeners[listener], "127.0.0.1:0", "127.0.0.1:1")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        message = {"conn": adopted.number, "offer": listener, "peer": "127.0.0.1:1"}
        self.workers[worker].adopt(message, theirs.detach())
        peer = SocketPeer(self, ours, adopted.number, self.workers[worker])
        self.peers.append(peer)  # type: ignore[arg-type]
        return peer

    def wake(self, worker: Any) -> bool:
        before = len(worker.sent.told)
        self.enter()
        worker.loop.step()
        return len(worker.sent.told) > before

    def settle(self) -> None:
        """Until the supervisor hears nothing any more; a fault is left in `faults` of its worker."""
        quiet = 0
        while quiet < 3:  # what one worker has written, others take in their next wake
            moved = self.decide()
            for worker in self.workers:
                moved |= self.wake(worker)
            quiet = 0 if moved else quiet + 1

    def close(self) -> None:
        super().close()
        for worker in self.workers:
            worker.loop = worker.clock = None
        count_privately()


__all__ = ["LoopRouter", "Peer", "SocketPeer", "control"]
