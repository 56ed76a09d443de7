"""HTTP proxy for tests: CONNECT, optionally with a password. It can refuse, cut connections, and send other answers."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading

from tests.peer.websocket import read_head


class Proxy:
    """HTTP proxy that serves until it is closed. `heads` lists the received requests."""

    def __init__(self, login: str | None = None, *, answer: bytes = b"HTTP/1.1 200 Established\r\n\r\n") -> None:
        """login: USER:PASSWORD. answer: answer to valid requests; if it is not a success, the proxy closes the
        connection after it."""
        self.heads: list[bytes] = []
        self._login = None if login is None else base64.b64encode(login.encode())
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        """Close all connections."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._open.append(client)
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = read_head(client)
            self.heads.append(head)
            if self._login is not None and b"Proxy-Authorization: Basic " + self._login + b"\r\n" not in head:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
            if not self._answer.startswith(b"HTTP/1.1 2"):
                client.sendall(self._answer)
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port))) as far:
                self._open.append(far)
                client.sendall(self._answer)
                back = threading.Thread(target=_copy, args=(far, client), daemon=True)
                back.start()
                _copy(client, far)
                back.join()


def _copy(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while octets := source.recv(65536):
            to.sendall(octets)
    for each in (source, to):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
