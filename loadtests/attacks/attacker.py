"""Connection of an attacker. Output is encoded by hand, and input is read only if an attack waits for it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from loadtests.liveness.frames import ATTACH, BEGIN, CLOSE, DETACH, END, FLOW, TRANSFER, flow, rare, read
from tests.peer.frames import AMQP_HEADER, source, target

HOST = "127.0.0.1"
PATIENCE = 5.0  # seconds for a frame, and for the router to accept output
WIDE = 0x7FFFFFFF  # a window, or credit, that is never used up
SESSION = (0, WIDE, 0, WIDE)  # session fields of a flow
READ_SIZE = 65536
LAST_CHANNEL = 255  # a channel that no attack uses
MORE = 5  # index of a transfer's field `more`


class RefusedError(Exception):
    """Raised if the router ended the connection, the session or the link, which it may do."""


class Attacker:
    """Open connection with one session on channel 0."""

    def __init__(self, port: int, container: str = "attacker", frame_size: int | None = None) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE)
        self._octets = bytearray()
        self.send(AMQP_HEADER + rare("open", container_id=container, max_frame_size=frame_size))
        self._fill(len(AMQP_HEADER))
        del self._octets[: len(AMQP_HEADER)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    # -- output --------------------------------------------------------------------------------------------------------

    def send(self, octets: bytes) -> None:
        """Send octets. Raises OSError, for example TimeoutError if the router does not read them."""
        self._socket.sendall(octets)

    def begin(self, channel: int = 0) -> None:
        self.send(rare("begin", channel, next_outgoing_id=0, incoming_window=WIDE, outgoing_window=WIDE))

    # -- input ---------------------------------------------------------------------------------------------------------

    def _fill(self, size: int) -> None:
        while len(self._octets) < size:
            octets = self._socket.recv(READ_SIZE)
            if not octets:
                raise RefusedError("the connection was closed")
            self._octets += octets

    def _next(self) -> tuple[int, int, list[Any], bytes]:
        self._fill(4)
        size = int.from_bytes(self._octets[:4], "big")
        self._fill(size)
        octets = bytes(self._octets[:size])
        channel, code, fields, end = read(octets)
        del self._octets[:size]
        if code in (CLOSE, END, DETACH):
            raise RefusedError(f"performative {code:#x}: {fields}")
        return channel, code, fields, octets[end:]

    def next_frame(self) -> tuple[int, int, list[Any]]:
        """Return channel, performative and fields of the next frame. Raises RefusedError, OSError."""
        return self._next()[:3]

    def message(self) -> bytes:
        """Wait for the next message of this client's only receiver; return its octets."""
        parts = []
        more = True
        while more:
            _, code, fields, payload = self._next()
            if code == TRANSFER:
                parts.append(payload)
                more = len(fields) > MORE and bool(fields[MORE])
        return b"".join(parts)

    def until(self, done: Callable[[int, int, list[Any]], bool]) -> None:
        """Read frames until `done` returns True for a frame's channel, performative and fields."""
        end = time.monotonic() + PATIENCE
        while not done(*self.next_frame()):
            if time.monotonic() > end:
                raise TimeoutError("what an attack waits for did not come")

    def attached(self, count: int) -> None:
        """Wait for the answers to `count` attaches."""
        left = [count]

        def note(channel: int, code: int, fields: list[Any]) -> bool:
            left[0] -= code == ATTACH
            return left[0] <= 0

        self.until(note)

    def handled(self) -> None:
        """Wait until the router has handled all output: it then answers a begin."""
        self.begin(LAST_CHANNEL)
        self.until(lambda channel, code, fields: code == BEGIN)

    def credits(self, count: int) -> dict[tuple[int, int], int]:
        """Wait until `count` links have credit. Return it by channel and the router's handle."""
        found: dict[tuple[int, int], int] = {}

        def note(channel: int, code: int, fields: list[Any]) -> bool:
            if code == FLOW and len(fields) > 6 and fields[4] is not None and fields[6]:
                found[channel, fields[4]] = fields[6]
            return len(found) >= count

        self.until(note)
        return found

    def take(self, code: int, count: int) -> list[list[Any]]:
        """Wait for `count` frames of a performative; return their fields."""
        taken: list[list[Any]] = []

        def note(channel: int, found: int, fields: list[Any]) -> bool:
            if found == code:
                taken.append(fields)
            return len(taken) >= count

        self.until(note)
        return taken


def receiver(handle: int, address: str, credit: int = 0, channel: int = 0, name: str | None = None) -> bytes:
    """Encode the attach of a receiver, followed by a flow if it has credit."""
    octets = rare(
        "attach", channel, name=name or f"r{handle}", handle=handle, role=True, source=source(address), target=target()
    )
    return octets + (flow(channel, SESSION, (handle, 0, credit, False, False)) if credit else b"")


def sender(handle: int, address: str | None, channel: int = 0, name: str | None = None) -> bytes:
    """Encode the attach of a sender. Without an address each message names its own."""
    return rare(
        "attach", channel, name=name or f"s{handle}", handle=handle, role=False, source=source(),
        target=target(address), initial_delivery_count=0,
    )  # fmt: skip


class Broker(Attacker):
    """Container that the router attaches routed links to. It answers every attach until it stops reading."""

    def __init__(self, port: int, container: str) -> None:
        super().__init__(port, container)

    def answer(self, address: str) -> tuple[int, int, bool]:
        """Answer begins and attaches up to that of a link with this address.

        Returns channel, handle, and True if the router receives.
        """
        found: list[tuple[int, int, bool]] = []

        def note(channel: int, code: int, fields: list[Any]) -> bool:
            if code == BEGIN:
                self.send(
                    rare("begin", channel, remote_channel=channel, next_outgoing_id=0, incoming_window=WIDE,
                         outgoing_window=WIDE)
                )  # fmt: skip
            elif code == ATTACH:
                role = bool(fields[2])
                self.send(
                    rare("attach", channel, name=fields[0], handle=fields[1], role=not role, source=fields[5],
                         target=fields[6], initial_delivery_count=None if not role else 0)
                )  # fmt: skip
                if address in repr(fields[5:7]):
                    found.append((channel, fields[1], role))
            return bool(found)

        self.until(note)
        return found[0]
