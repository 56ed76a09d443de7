"""TCP relay between two routers that a test can cut: both ends lose their connection without a close frame."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType

#: Value of SO_LINGER with which a socket sends a reset when it is closed.
ABORTS = struct.pack("ii", 1, 0)


class CuttableRelay:
    """TCP relay that listens on `port` and connects each client to port `to` of the loopback address."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._all: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> CuttableRelay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in self._all:
            end.close()

    def redirect(self, to: int) -> None:
        """Connect new clients to another port."""
        self._to = to

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            ends, self._open = self._open, []
        self._end(ends)

    def cut_one(self) -> None:
        """Reset the oldest connection."""
        with self._lock:
            ends, self._open = self._open[:2], self._open[2:]
        self._end(ends)

    @staticmethod
    def _end(ends: list[socket.socket]) -> None:
        for end in ends:
            with contextlib.suppress(OSError):  # the peer has closed the connection already
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORTS)
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # the listening socket was closed at the end of the test
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                client.close()  # behave as a port without a listener
                continue
            self._all += [client, server]
            with self._lock:
                self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                thread = threading.Thread(target=self._copy_octets, args=(source, sink))
                self._threads.append(thread)
                thread.start()

    def _copy_octets(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either end was closed: shut down the other
            while octets := source.recv(1 << 16):
                sink.sendall(octets)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
