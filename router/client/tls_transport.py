"""Transport of the blocking client with TLS."""

import ssl

from sluice.router.client.transport import ClientSocket


class TlsSocket(ClientSocket):
    """Connected socket after the TLS handshake. Owner: the connection."""

    _socket: ssl.SSLSocket

    def read(self) -> bytes | None:
        try:
            return super().read()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    @property
    def pending(self) -> bool:
        return self._socket.pending() > 0

    def write(self, octets: memoryview) -> int:
        try:
            return super().write(octets)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def _shut_down(self) -> None:
        self._socket.unwrap()
