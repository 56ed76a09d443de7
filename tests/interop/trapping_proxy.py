"""Proxy of TCP connections that kills a client at a chosen point of its transaction."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

#: Descriptors of a discharge and of the outcome accepted (AMQP 1.0 part 4, 4.5.7; part 3, 3.4.2).
DISCHARGE, ACCEPTED = b"\x00\x53\x32", b"\x00\x53\x24"
#: Points of a transaction at which a process is killed.
MOMENTS = ("messages", "discharge", "answer")


@dataclass
class Trap:
    """Call of `kill` with the port of a client, once, at a point of its transaction.

    most: octets of messages after which the point `messages` is reached.
    """

    moment: str
    most: int
    kill: Callable[[int], None]


class TrappingProxy:
    """Proxy of TCP connections that springs a trap. Owner: the test."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._trap: Trap | None = None
        self._lock = threading.Lock()
        self._left = 0
        self.sprung = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def set_trap(self, trap: Trap) -> None:
        with self._lock:
            self._left = trap.most
            self._trap = trap
            self.sprung.clear()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, (_, port) = self._listener.accept()
                router = socket.create_connection(("127.0.0.1", self._target))
                discharging = threading.Event()
                for source, sink, up in ((client, router, True), (router, client, False)):
                    threading.Thread(
                        target=self._relay, args=(source, sink, port, up, discharging), daemon=True
                    ).start()

    def _relay(
        self, source: socket.socket, sink: socket.socket, port: int, up: bool, discharging: threading.Event
    ) -> None:
        last = b""
        with contextlib.suppress(OSError):  # the other thread has closed both sockets
            while octets := source.recv(65536):
                seen = last + octets
                last = octets[-2:]
                if not up and discharging.is_set() and ACCEPTED in seen and self._spring("answer", port):
                    break  # the client must not read the answer
                if up and DISCHARGE in seen:
                    discharging.set()
                if up and self._spring("messages", port, len(octets)):
                    break
                sink.sendall(octets)
                if up and DISCHARGE in seen:
                    self._spring("discharge", port)
        for each in (source, sink):
            with contextlib.suppress(OSError):  # not connected any longer
                each.shutdown(socket.SHUT_RDWR)

    def _spring(self, moment: str, port: int, octets: int = 0) -> bool:
        """Kill the victim if the trap is for this moment. Return True if it was sprung."""
        with self._lock:
            trap = self._trap
            self._left -= octets
            if trap is None or trap.moment != moment or (octets and self._left > 0):
                return False
            self._trap = None
            trap.kill(port)
        self.sprung.set()
        return True
