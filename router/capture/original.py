"""Original messages in the copies of a tap: address, annotations and sections as they were sent."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from sluice.router.amqp import codec
from sluice.router.amqp.errors import AmqpError

ADDRESS: Final = "x-opt-sluice.address"  # annotation of a copy with the address of its original
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
BODY: Final = (0x75, 0x76, 0x77)  # data, amqp-sequence, amqp-value
FOOTER: Final = 0x78
UNKNOWN: Final = -1  # descriptor of no section of part 3, 3.2
# Sections by the names that may stand in place of their codes.
_NAMES: Final = {
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": 0x77,
    "amqp:footer:map": FOOTER,
}
_DESCRIBED: Final = 0x00
_MAP_8, _MAP_32 = 0xC1, 0xD1
# Octets of a value by the upper four bits of its constructor (part 1, 1.2): fixed widths, and widths of the size field.
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZED: Final = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_DATA: Final = bytes((0x00, 0x53, 0x75))


class Original(Struct, frozen=True):
    """Message as its sender sent it.

    address: of the annotation of a tap, "" without it. octets: the sections without delivery-annotations and, without
    payload, without body and footer. omitted: octets of the body and the footer that are missing.
    """

    address: str
    octets: bytes
    omitted: int = 0


def read_original(octets: bytes, *, payload: bool) -> Original:
    """Return the original of a copy. payload False: without body and footer. Raises ValueError if `octets` are no
    message.

    A section in a wrong place is refused, because message-annotations behind those of the tap would be the sender's.
    """
    address = ""
    kept: list[bytes] = []
    omitted = 0
    last = 0
    for code, section in _sections(octets):
        if code != UNKNOWN:
            if code < last or (code == last and code not in BODY):
                raise ValueError(f"section 0x{code:02x} of the message follows section 0x{last:02x}")
            last = code
        if code == MESSAGE_ANNOTATIONS:
            address, section = _without_address(section)
        if code == DELIVERY_ANNOTATIONS:
            continue
        if not payload and (code in BODY or code == FOOTER):
            omitted += len(section)
        else:
            kept.append(section)
    return Original(address, b"".join(kept), omitted)


def zero_body(omitted: int) -> bytes:
    """Return a data section of zeros. Its size is `omitted` octets, or up to eight octets if that is not possible."""
    head = len(_DATA) + 2
    if omitted - head > 0xFF:
        head += 3
    return _DATA + bytes(codec.encode_binary(bytes(max(omitted - head, 0))))


def _sections(octets: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield descriptor and octets of each section. Descriptor `UNKNOWN`: of no section that AMQP defines."""
    at = 0
    while at < len(octets):
        if octets[at] != _DESCRIBED:
            raise ValueError(f"octet {at} of the message begins no section")
        value = _end(octets, at + 1)
        end = _end(octets, value)
        yield _code(octets[at + 1 : value]), octets[at:end]
        at = end


def _code(descriptor: bytes) -> int:
    try:
        code = codec.decode_one(descriptor)
    except AmqpError as error:
        raise ValueError(str(error)) from error
    if isinstance(code, str):
        return _NAMES.get(code, UNKNOWN)
    return code if isinstance(code, int) else UNKNOWN


def _without_address(section: bytes) -> tuple[str, bytes]:
    """Return the address in a section of message-annotations, and the section without it, b"" if nothing is left."""
    value = _end(section, 1)
    if section[value] not in (_MAP_8, _MAP_32):
        raise ValueError("the message-annotations are no map")
    width = 1 if section[value] == _MAP_8 else 4
    at = value + 1 + 2 * width
    items = []
    while at < len(section):
        end = _end(section, at)
        items.append(section[at:end])
        at = end
    key = bytes(codec.encode_symbol(ADDRESS))
    for number in range(0, len(items) - 1, 2):
        if items[number] == key:
            address = _text(items[number + 1])
            del items[number : number + 2]
            return address, section[:value] + bytes(codec.encode_map(items)) if items else b""
    return "", section


def _text(octets: bytes) -> str:
    try:
        return str(codec.decode_one(octets))
    except AmqpError as error:
        raise ValueError(str(error)) from error


def _end(octets: bytes, at: int) -> int:
    """Return the offset behind the value at `at`, which is not described."""
    constructor = octets[at] if at < len(octets) else _DESCRIBED
    kind = constructor >> 4
    if kind in _FIXED:
        end = at + 1 + _FIXED[kind]
    elif kind in _SIZED:
        end = at + 1 + _SIZED[kind]
        end += int.from_bytes(octets[at + 1 : end])
    else:
        raise ValueError(f"octet {at} of the message begins no value of a section")
    if end > len(octets):
        raise ValueError(f"the value at octet {at} of the message is cut off")
    return end
