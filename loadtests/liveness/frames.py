"""Fast codec of the three frequent performatives, without the tables of `tests.peer.frames`: thousands in a round."""

from __future__ import annotations

import struct
from typing import Any

from tests.peer.codec import decode
from tests.peer.frames import Performative
from tests.peer.types import Described

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
MODULUS = 1 << 32
#: Upper bound of the octets of a transfer performative written here, frame header included.
TRANSFER_ROOM = 64


def serial(number: int) -> int:
    """Return the signed difference of two serial numbers, from -2^31 to 2^31 - 1."""
    number %= MODULUS
    return number - MODULUS if number >= MODULUS >> 1 else number


def _uint(number: int | None) -> bytes:
    if number is None:
        return b"\x40"
    if number == 0:
        return b"\x43"
    return bytes((0x52, number)) if number < 256 else b"\x70" + struct.pack("!I", number)


def _flag(value: bool | None) -> bytes:
    return b"\x40" if value is None else b"\x41" if value else b"\x42"


def frame(body: bytes, channel: int, kind: int = 0) -> bytes:
    """Return a frame around a performative and its payload."""
    return struct.pack("!IBBH", 8 + len(body), 2, kind, channel) + body


def _listed(code: int, *items: bytes) -> bytes:
    body = b"".join(items)
    return struct.pack("!BBBBBB", 0, 0x53, code, 0xC0, len(body) + 1, len(items)) + body


def transfer(
    channel: int,
    handle: int,
    payload: bytes | memoryview,
    more: bool,
    first: tuple[int, bytes, bool] | None = None,
    aborted: bool = False,
) -> bytes:
    """Encode a transfer. `first`: delivery-id, tag and settled, for the first transfer of a delivery."""
    if first is None:
        items = [_uint(handle), b"\x40\x40\x40\x40", _flag(more)]
        count = 6
    else:
        number, tag, settled = first
        items = [_uint(handle), _uint(number), bytes((0xA0, len(tag))) + tag, b"\x43", _flag(settled), _flag(more)]
        count = 6
    if aborted:
        items.append(b"\x40\x40\x40\x41")
        count = 10
    body = b"".join(items)
    head = struct.pack("!BBBBBB", 0, 0x53, TRANSFER, 0xC0, len(body) + 1, count) + body
    return struct.pack("!IBBH", 8 + len(head) + len(payload), 2, 0, channel) + head + payload


def flow(
    channel: int,
    session: tuple[int, int, int, int],
    link: tuple[int, int, int, bool, bool] | None = None,
) -> bytes:
    """Encode a flow.

    session: next-incoming-id, incoming-window, next-outgoing-id, outgoing-window. link: handle, delivery-count,
    credit, drain, echo.
    """
    items = [_uint(number) for number in session]
    if link is not None:
        handle, count, credit, drain, echo = link
        items += [_uint(handle), _uint(count), _uint(credit), b"\x40", _flag(drain), _flag(echo)]
    return frame(_listed(FLOW, *items), channel)


def disposition(channel: int, receiver: bool, first: int, last: int, settled: bool, state: bytes | None) -> bytes:
    """Encode a disposition. `state`: octets of the state."""
    return frame(
        _listed(DISPOSITION, _flag(receiver), _uint(first), _uint(last), _flag(settled), state or b"\x40"), channel
    )


def rare(name: str, channel: int = 0, kind: int = 0, /, **fields: Any) -> bytes:
    """Encode any other frame, by its fields."""
    return frame(Performative(name, **fields).encode(), channel, kind)


def read(octets: bytes) -> tuple[int, int, list[Any], int]:
    """Decode a whole frame: channel, descriptor (0: a heartbeat), fields, and offset of its payload."""
    at = 4 * octets[4]
    channel = (octets[6] << 8) + octets[7]
    if at == len(octets):
        return channel, 0, [], at
    code = octets[at + 2]
    if octets[at] or octets[at + 1] != 0x53 or octets[at + 3] not in (0xC0, 0xD0):
        value, end = decode(octets, at)
        assert isinstance(value, Described)
        return channel, int(value.descriptor), value.value, end
    if octets[at + 3] == 0xC0:
        end, count, at = at + 5 + octets[at + 4], octets[at + 5], at + 6
    else:
        size, count = struct.unpack_from("!II", octets, at + 4)
        end, at = at + 8 + size, at + 12
    return channel, code, _items(octets, at, count), end


def _items(octets: bytes, at: int, count: int) -> list[Any]:
    values: list[Any] = []
    for _ in range(count):
        code = octets[at]
        value: Any = None
        if code == 0x40:
            at += 1
        elif code == 0x43:
            value, at = 0, at + 1
        elif code == 0x52:
            value, at = octets[at + 1], at + 2
        elif code == 0x70:
            value, at = int.from_bytes(octets[at + 1 : at + 5], "big"), at + 5
        elif code in (0x41, 0x42):
            value, at = code == 0x41, at + 1
        elif code == 0xA0:
            end = at + 2 + octets[at + 1]
            value, at = octets[at + 2 : end], end
        else:
            value, at = decode(octets, at)
        values.append(value)
    return values


def field(values: list[Any], index: int) -> Any:
    """Return a field. None: the list ends before it."""
    return values[index] if index < len(values) else None


STATES = {
    "accepted": b"\x00\x53\x24\x45",
    "rejected": b"\x00\x53\x25\x45",
    "released": b"\x00\x53\x26\x45",
    "modified": b"\x00\x53\x27\xc0\x03\x02\x41\x42",
}
NAMES = {0x23: "received", 0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}


def state_name(value: Any) -> str | None:
    """Return the name of a state. None: no state."""
    return NAMES.get(int(value.descriptor), str(value.descriptor)) if isinstance(value, Described) else None
