"""Socket of a peer: whole frames in and out, deadlines, protocol headers."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.peer.frames import AMQP_HEADER, SASL_HEADER, Frame, Performative, frame_octets, parse_frame
from tests.peer.secrets import Scan
from tests.peer.websocket import WebSocket

#: Seconds to wait for something that should happen at once; generous, because test machines are busy.
TIMEOUT = float(os.environ.get("SLUICE_TEST_TIMEOUT", "10"))
#: Octets read from the socket at a time.
READ_SIZE = 65536


class PeerError(AssertionError):
    """Raised when the other side does not do what the test expects. The text has the last frames."""


class PeerTimeout(PeerError):
    """Raised when an awaited event did not happen in time."""


class StreamEnd(PeerError):
    """Raised when the other side ended the stream during a wait. reset: by a TCP reset."""

    def __init__(self, text: str, reset: bool) -> None:
        super().__init__(text)
        self.reset = reset


class FrameSocket:
    """Blocking socket for frames. `frames` keeps everything received, `inbox` the frames not yet taken by `expect`."""

    def __init__(
        self, port: int | socket.socket | WebSocket, host: str = "127.0.0.1", receive_buffer: int | None = None
    ) -> None:
        """Connect to `port`, or use a connected socket."""
        self.socket: Any = port
        if isinstance(port, int):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT)
        if isinstance(port, int):
            self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self.inbox: list[Frame] = []
        self.frames: list[Frame] = []
        #: (frame, time.monotonic()) of every frame, heartbeats included.
        self.arrivals: list[tuple[Frame, float]] = []
        #: None until the end of stream has been read; then True if it was a reset.
        self.ended: bool | None = None
        #: Called with every frame as it arrives.
        self.on_frame: Callable[[Frame], None] | None = None
        #: Scan for secrets that this peer must not receive; None: the peer may receive them.
        self.scan: Scan | None = Scan(lambda: f"received by a peer, after {self._recent()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    # --- out ------------------------------------------------------------------------------------------------------

    def raw(self, octets: bytes) -> None:
        """Write octets unchanged."""
        self.socket.settimeout(TIMEOUT)
        self.socket.sendall(octets)

    def raw_some(self, octets: bytes, timeout: float) -> int:
        """Write until the socket has been full for `timeout` seconds. Return the number of octets written."""
        self.socket.settimeout(timeout)
        written = 0
        view = memoryview(octets)
        while written < len(octets):
            try:
                written += self.socket.send(view[written:])
            except TimeoutError:
                break
        return written

    def frame(self, performative: str, /, payload: bytes = b"", channel: int = 0, **fields: Any) -> None:
        """Write one frame."""
        kind = 1 if performative.startswith("sasl") else 0
        self.raw(frame_octets(Performative(performative, **fields).encode() + payload, channel, kind))

    def heartbeat(self) -> None:
        """Write an empty frame."""
        self.raw(frame_octets(b""))

    def drop(self, reset: bool = False) -> None:
        """Close the socket without any frame. reset: by a TCP reset."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # --- in -------------------------------------------------------------------------------------------------------

    def read_octets(self, count: int, timeout: float = TIMEOUT) -> bytes:
        """Read exactly `count` octets, outside of framing. Raises PeerTimeout or StreamEnd."""
        deadline = time.monotonic() + timeout
        while len(self._buffer) < count:
            self._fill(deadline, f"{count} octets")
        octets = bytes(self._buffer[:count])
        del self._buffer[:count]
        return octets

    def read_rest(self, timeout: float = TIMEOUT) -> bytes:
        """Read all octets up to the end of stream, outside of framing."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                self._fill(deadline, "end of stream")
        except StreamEnd:
            octets, self._buffer = bytes(self._buffer), bytearray()
            return octets

    def read_frame(self, timeout: float = TIMEOUT, what: str = "a frame") -> Frame:
        """Read the next frame. It is also kept in `frames` and, unless it is a heartbeat, in `inbox`."""
        deadline = time.monotonic() + timeout
        while (size := self._frame_size()) is None:
            self._fill(deadline, what)
        frame = parse_frame(bytes(self._buffer[:size]))
        del self._buffer[:size]
        self.arrivals.append((frame, time.monotonic()))
        if frame.performative is not None:
            self.frames.append(frame)
            self.inbox.append(frame)
        if self.on_frame is not None:
            self.on_frame(frame)
        return frame

    def _frame_size(self) -> int | None:
        """Return the size of the frame at the head of the buffer; None if it is incomplete."""
        if len(self._buffer) < 4:
            return None
        size = int(struct.unpack_from("!I", self._buffer)[0])
        if size < 8 or self._buffer[:4] == b"AMQP":
            raise PeerError(f"not a frame: {bytes(self._buffer[:16])!r}")
        return size if len(self._buffer) >= size else None

    def _fill(self, deadline: float, what: str) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise PeerTimeout(f"{what} did not come; {self._recent()}")
        self.socket.settimeout(left)
        try:
            octets = self.socket.recv(READ_SIZE)
        except TimeoutError:
            raise PeerTimeout(f"{what} did not come; {self._recent()}") from None
        except ConnectionResetError:
            self.ended = True
            raise StreamEnd(f"reset while waiting for {what}; {self._recent()}", reset=True) from None
        if not octets:
            self.ended = False
            raise StreamEnd(f"end of stream while waiting for {what}; {self._recent()}", reset=False)
        if self.scan is not None:
            self.scan.take(octets)
        self._buffer += octets

    def _recent(self) -> str:
        return f"buffered {len(self._buffer)} octets, last frames: {self.frames[-3:]}"

    # --- waiting --------------------------------------------------------------------------------------------------

    def expect(self, name: str, /, timeout: float = TIMEOUT, **where: Any) -> Frame:
        """Take the first frame `name` whose fields (and `channel`) equal `where`, reading until it arrives.

        Other frames stay in the inbox, in order.
        """
        wanted = f"{name} {where}" if where else name
        deadline = time.monotonic() + timeout
        at = 0
        while True:
            while at < len(self.inbox):
                if _matches(self.inbox[at], name, where):
                    return self.inbox.pop(at)
                at += 1
            self.read_frame(max(0.0, deadline - time.monotonic()), wanted)

    def take(self, name: str, /, **where: Any) -> list[Frame]:
        """Take all frames `name` that are in the inbox, without reading."""
        found = [frame for frame in self.inbox if _matches(frame, name, where)]
        self.inbox = [frame for frame in self.inbox if not _matches(frame, name, where)]
        return found

    def until(self, condition: Callable[[], Any], what: str, timeout: float = TIMEOUT) -> Any:
        """Read frames until `condition()` is true. Return its value."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            self.read_frame(max(0.0, deadline - time.monotonic()), what)
        return value

    def read_available(self) -> None:
        """Read the frames that have arrived, without waiting."""
        while self._frame_size() is not None or select.select([self.socket], [], [], 0)[0]:
            self.read_frame()

    def idle_until(self, moment: float) -> None:
        """Read frames until `moment` (of time.monotonic())."""
        try:
            while True:
                self.read_frame(max(0.0, moment - time.monotonic()))
        except PeerTimeout:
            return

    def idle_octets(self, seconds: float) -> bytes:
        """Return the octets that arrive within `seconds`, outside of framing. Raises StreamEnd."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                self._fill(deadline, "octets")
        except PeerTimeout:
            octets, self._buffer = bytes(self._buffer), bytearray()
            return octets

    def expect_end(self, timeout: float = TIMEOUT) -> list[Frame]:
        """Read to the end of stream. Return the frames before it. Raises PeerTimeout."""
        start = len(self.frames)
        deadline = time.monotonic() + timeout
        try:
            while True:
                self.read_frame(max(0.0, deadline - time.monotonic()), "end of stream")
        except StreamEnd:
            return self.frames[start:]

    # --- headers and SASL -----------------------------------------------------------------------------------------

    def header(self, octets: bytes = AMQP_HEADER) -> bytes:
        """Send a protocol header and read the eight octets of the answer."""
        self.raw(octets)
        return self.read_octets(8)

    def sasl(self, mechanism: str = "ANONYMOUS", response: bytes | None = b"anonymous") -> Frame:
        """Run a SASL exchange of one step. Return the outcome frame. The mechanisms frame stays in the inbox."""
        answer = self.header(SASL_HEADER)
        if answer != SASL_HEADER:
            raise PeerError(f"SASL header answered by {answer!r}")
        self.until(lambda: any(f.name == "sasl-mechanisms" for f in self.inbox), "sasl-mechanisms")
        self.frame("sasl-init", mechanism=mechanism, initial_response=response)
        return self.expect("sasl-outcome")


def _matches(frame: Frame, name: str, where: dict[str, Any]) -> bool:
    if frame.name != name:
        return False
    return all(
        (frame.channel if field == "channel" else frame.fields.get(field)) == value for field, value in where.items()
    )
