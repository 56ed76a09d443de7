"""Hand-over sockets: connections go to a worker through one, and requests for pages come back.

The supervisor keeps the worker's end as well, to take back connections that a dead or unresponsive worker has not
taken.
"""

import asyncio
import socket
from typing import Final, Protocol

from sluice.router.control.codec import ControlError, decode_page_request
from sluice.router.log import ProcessLog
from sluice.supervisor.children.worker import WorkerProcess

MAX_SENT_BACK: Final = 65536  # limit in octets of a message that accompanies a socket


class HandedConnections(Protocol):
    """Connections that are handed to workers."""

    def withdraw(self, worker: WorkerProcess) -> None:
        """Take back connections that the worker has not taken, and hand them to other workers."""

    def resume(self) -> None:
        """Hand over waiting connections, because a worker has room again."""


class PageServer(Protocol):
    """Server of pages to clients whose connection belongs to a worker."""

    def answer_page(self, worker: WorkerProcess, number: int, opened: socket.socket, certified: bool) -> None:
        """Answer the client of a worker's connection. number: of that connection. certified: it has a certificate."""


class HandoverSockets:
    """Hand-over sockets of all workers. Owner: supervisor; the pool opens and closes them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connections: HandedConnections, pages: PageServer, log: ProcessLog
    ) -> None:
        self._loop: Final = loop
        self._connections: Final = connections
        self._pages: Final = pages
        self._log: Final = log

    def open(self, worker: WorkerProcess) -> None:
        """Create both ends of the socket of a worker. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        theirs.setblocking(False)
        worker.handover, worker.untaken = ours, theirs
        self._loop.add_reader(ours, self._receive, worker)

    def close(self, worker: WorkerProcess) -> None:
        """Close both ends of the socket of a worker, unless they are closed."""
        self._close_ours(worker)
        if worker.untaken is not None:
            worker.untaken.close()
            worker.untaken = None

    def lose(self, worker: WorkerProcess) -> None:
        """Take back the connections that a dead worker has not taken, and close both ends of its socket."""
        self._close_ours(worker)
        self._connections.withdraw(worker)
        self.close(worker)

    def _close_ours(self, worker: WorkerProcess) -> None:
        if worker.handover is not None:
            self._loop.remove_writer(worker.handover)
            self._loop.remove_reader(worker.handover)
            worker.handover.close()
            worker.handover = None

    def _receive(self, worker: WorkerProcess) -> None:
        """Receive a request for a page."""
        assert worker.handover is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(worker.handover, MAX_SENT_BACK, 1)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(worker.handover)  # both remote ends are closed: the worker has ended
            return
        opened = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        try:
            message = decode_page_request(data)
        except ControlError as error:
            text = f"Worker {worker.index} (process {worker.pid}) is killed: it sent a bad message: {error}"
            self._log.critical("SERVER", text)
            worker.kill()
            for each in opened:
                each.close()
            return
        for each in opened:
            each.setblocking(False)
        # There is no socket if this process is out of descriptors.
        if opened:
            self._pages.answer_page(worker, message.conn, opened[0], message.certified)
