"""A socket to the peer, plain or with TLS, of the blocking client."""

import contextlib
import socket
import ssl
from typing import Self

READ = 1 << 18  # octets


class Transport:
    """Connected, and past the handshake of TLS. Reads and writes do not wait. Owner: the connection."""

    def __init__(self, wrapped: socket.socket) -> None:
        self._socket = wrapped
        self._ended = False
        wrapped.setblocking(False)
        wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def connect(cls, host: str, port: int, patience: float, context: ssl.SSLContext | None, server_name: str) -> Self:
        """context: of TLS, None: plain TCP. patience: seconds for each answer of the peer. Raises OSError."""
        made = socket.create_connection((host, port), patience)
        try:
            return cls(made if context is None else context.wrap_socket(made, server_hostname=server_name))
        except BaseException:
            made.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bytes | None:
        """b"" at the end, None when nothing is there now. Raises OSError."""
        try:
            return self._socket.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    @property
    def pending(self) -> bool:
        """Octets are there that the kernel does not show any more."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def write(self, octets: memoryview) -> int:
        """How many of them have left; the same ones are given again when it was none. Raises OSError."""
        try:
            return self._socket.send(octets)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def end_output(self) -> None:
        """Nothing more is written; the peer reads the end."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(OSError):
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.unwrap()
            else:
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """At once."""
        self._socket.close()
