"""Transport of the blocking client: a socket to the peer."""

import contextlib
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

READ = 1 << 18  # most octets of one read


class ClientSocket:
    """Connected socket. Reads and writes do not block. Owner: the connection."""

    def __init__(self, wrapped: socket.socket) -> None:
        self._socket = wrapped
        self._ended = False
        wrapped.setblocking(False)
        wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bytes | None:
        """Read octets; b"" at the end, None if none are available now. Raises OSError."""
        try:
            return self._socket.recv(READ)
        except BlockingIOError:
            return None

    @property
    def pending(self) -> bool:
        """True if octets are buffered that polling the socket does not show."""
        return False

    def write(self, octets: memoryview) -> int:
        """Write octets; return the number sent. After 0, the same octets must be given again. Raises OSError."""
        try:
            return self._socket.send(octets)
        except BlockingIOError:
            return 0

    def end_output(self) -> None:
        """Stop writing; the peer reads the end of the stream."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(OSError):
            self._shut_down()

    def _shut_down(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket at once."""
        self._socket.close()


def open_socket(
    host: str, port: int, patience: float, context: "ssl.SSLContext | None", server_name: str
) -> ClientSocket:
    """Connect. context: of TLS; None: plain TCP. patience: seconds for each answer of the peer. Raises OSError."""
    made = socket.create_connection((host, port), patience)
    try:
        if context is None:
            return ClientSocket(made)
        from sluice.router.client.tls_transport import TlsSocket  # 20 ms that programs without TLS do not need

        return TlsSocket(context.wrap_socket(made, server_hostname=server_name))
    except BaseException:
        made.close()
        raise
