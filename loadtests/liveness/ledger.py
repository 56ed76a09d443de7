"""Record of every message of a round: sender, receivers, outcomes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.peer import message

if TYPE_CHECKING:
    from loadtests.liveness.consumer import InLink
    from loadtests.liveness.draw import AddressSpec
    from loadtests.liveness.neighbour import NeighbourConsumer, NeighbourProducer
    from loadtests.liveness.producer import OutLink

_ID = struct.Struct("!8sIII")
_MARK = b"\xf0liveness"[:8]
_PATTERN = random.Random(1).randbytes((5 << 20) + (1 << 16))
#: Messages between routers of at least so many octets may overtake, and be overtaken.
STREAM = 100_000


def body(uid: int, number: int, size: int) -> bytes:
    """Return the body of a message: its identity, then octets that only this message has at these offsets."""
    at = (uid * 7919 + number * 257) % (1 << 16)
    return _ID.pack(_MARK, uid, number, size) + _PATTERN[at : at + size]


def encoded(uid: int, number: int, size: int, to: str | None) -> bytes:
    """Return the encoded message. `to`: address in its properties."""
    octets = body(uid, number, size)
    prefix = message.properties(to=to) if to is not None else b""
    return prefix + b"\x00\x53\x75\xb0" + struct.pack("!I", len(octets)) + octets


@dataclass(eq=False)
class LedgerMessage:
    """Message of a round, with its sender and receivers."""

    uid: int
    number: int
    size: int
    settled: bool
    address: AddressSpec
    link: OutLink | NeighbourProducer
    #: the last octet has been written to the socket
    sent: bool = False
    aborted: bool = False
    #: outcome at the producer, and whether it was settled
    outcome: str | None = None
    done: bool = False
    #: links at which the whole message has arrived, and the outcomes that they reported
    arrivals: list[InLink | NeighbourConsumer] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    #: a consumer's link was lost while it held the message
    lost_with: bool = False

    def __str__(self) -> str:
        kind = "presettled" if self.settled else "unsettled"
        return f"message {self.number} of producer {self.uid} ({self.size} octets, {kind}) for {self.address}"


class Ledger:
    """All messages of a round."""

    def __init__(self) -> None:
        self.messages: dict[tuple[int, int], LedgerMessage] = {}

    def __iter__(self) -> Iterator[LedgerMessage]:
        return iter(self.messages.values())

    def identify(self, payload: bytes | bytearray) -> tuple[LedgerMessage | None, str]:
        """Return the message with these octets, or None and the error."""
        at = payload.find(_MARK)
        if at < 0 or len(payload) < at + _ID.size:
            return None, f"{len(payload)} octets that nobody sent"
        _mark, uid, number, size = _ID.unpack_from(payload, at)
        found = self.messages.get((uid, number))
        if found is None:
            return None, f"message {number} of producer {uid}, which was not sent"
        if memoryview(payload)[at:] != body(uid, number, size):
            return None, f"{found} was changed on its way, or cut: {len(payload) - at} octets of {size + _ID.size}"
        return found, ""
