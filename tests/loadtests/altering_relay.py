"""Relay that parses AMQP frames and lets a test change them, to check that faults are detected."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

FRAME_HEADER = 8
CODE_AT = 10  # position of the code in a frame whose performative has a one-byte descriptor: 00 53 CODE
BEGIN, FLOW, TRANSFER, DISPOSITION, DETACH = 0x11, 0x13, 0x14, 0x15, 0x16
LIMIT = 30.0  # seconds that a socket may stay silent

Frames = list[bytes]
Change = Callable[["FrameAlteringRelay", int, bytes], Frames]


def frame(code: int, fields: bytes, count: int) -> bytes:
    """Return a frame on channel 0 with a list32 of `count` encoded fields."""
    performative = b"\x00\x53" + bytes([code]) + b"\xd0" + struct.pack(">II", len(fields) + 4, count) + fields
    return struct.pack(">IBBH", len(performative) + FRAME_HEADER, 2, 0, 0) + performative


def uint(value: int) -> bytes:
    """Return an AMQP uint of full width."""
    return b"\x70" + struct.pack(">I", value)


def accepted(delivery: int) -> bytes:
    """Return the receiver's disposition that settles one delivery as accepted."""
    return frame(DISPOSITION, b"\x41" + uint(delivery) + uint(delivery) + b"\x41" + b"\x00\x53\x24\x45", 5)


def code_of(data: bytes) -> int:
    """Return the performative's code; 0 for heartbeats and protocol headers."""
    return data[CODE_AT] if len(data) > CODE_AT and not data.startswith(b"AMQP") else 0


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = source.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed")
        data += chunk
    return data


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Yield whole frames (and the protocol header) until the peer closes."""
    while True:
        start = _exactly(source, FRAME_HEADER)
        size = FRAME_HEADER if start.startswith(b"AMQP") else struct.unpack(">I", start[:4])[0]
        yield start + _exactly(source, size - FRAME_HEADER)


class FrameAlteringRelay:
    """Relay between one connection to `sender_port` and one to `receiver_port`.

    `forward(relay, n, frame)` returns the frames for the receiver in place of the sender's frame; `n` counts transfers
    from 0 and is -1 for other frames. `backward` does the same in the other direction, where `n` counts dispositions.
    Either may call `to_sender` or `close`.
    """

    def __init__(self, forward: Change | None = None, backward: Change | None = None) -> None:
        self._forward, self._backward = forward, backward
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.sender_port, self.receiver_port = (listener.getsockname()[1] for listener in self._listeners)
        self._ends: list[socket.socket] = []
        self._writing = threading.Lock()
        self._threads = [threading.Thread(target=self._join)]

    def __enter__(self) -> FrameAlteringRelay:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for listener in self._listeners:
            with contextlib.suppress(OSError):  # not connected: shutdown still ends a waiting accept
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self._threads:
            thread.join(LIMIT)

    def close(self) -> None:
        """Break both connections."""
        for end in self._ends:
            with contextlib.suppress(OSError):  # the other side may have closed first
                end.shutdown(socket.SHUT_RDWR)

    def to_sender(self, data: bytes) -> None:
        """Insert a frame into the stream to the sender."""
        with self._writing:
            self._ends[0].sendall(data)

    def _join(self) -> None:
        try:
            self._ends = [listener.accept()[0] for listener in self._listeners]
        except OSError:  # the test ended before anything connected
            return
        sender, receiver = self._ends
        for end in self._ends:
            end.settimeout(LIMIT)
        ways = ((sender, receiver, self._forward, TRANSFER), (receiver, sender, self._backward, DISPOSITION))
        for way in ways:
            self._threads.append(threading.Thread(target=self._pump, args=way))
            self._threads[-1].start()

    def _pump(self, source: socket.socket, target: socket.socket, change: Change | None, counted: int) -> None:
        seen = 0
        try:
            for data in _frames(source):
                number = -1
                if code_of(data) == counted:
                    number, seen = seen, seen + 1
                out = change(self, number, data) if change else [data]
                if target is self._ends[0]:
                    for each in out:
                        self.to_sender(each)
                else:
                    target.sendall(b"".join(out))
        except OSError:  # an end has closed, as at the end of every run
            self.close()
