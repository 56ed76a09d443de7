"""Transport of the blocking client: a socket to the peer, plain or with TLS."""

import contextlib
import socket
import ssl
from typing import Self

READ = 1 << 18  # most octets of one read


class ClientSocket:
    """Connected socket after the TLS handshake. Reads and writes do not block. Owner: the connection."""

    def __init__(self, wrapped: socket.socket) -> None:
        self._socket = wrapped
        self._ended = False
        wrapped.setblocking(False)
        wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def connect(cls, host: str, port: int, patience: float, context: ssl.SSLContext | None, server_name: str) -> Self:
        """Connect. context: of TLS; None: plain TCP. patience: seconds for each answer of the peer. Raises OSError."""
        made = socket.create_connection((host, port), patience)
        try:
            return cls(made if context is None else context.wrap_socket(made, server_hostname=server_name))
        except BaseException:
            made.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bytes | None:
        """Read octets; b"" at the end, None if none are available now. Raises OSError."""
        try:
            return self._socket.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    @property
    def pending(self) -> bool:
        """True if octets are buffered that polling the socket does not show."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def write(self, octets: memoryview) -> int:
        """Write octets; return the number sent. After 0, the same octets must be given again. Raises OSError."""
        try:
            return self._socket.send(octets)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def end_output(self) -> None:
        """Stop writing; the peer reads the end of the stream."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(OSError):
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.unwrap()
            else:
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket at once."""
        self._socket.close()
