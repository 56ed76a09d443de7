"""Random delivery states (AMQP 1.0 part 3, 3.4 and part 4, 4.5) in every encoding that AMQP allows."""

import struct
from collections.abc import Sequence
from random import Random
from typing import Final

ACCEPTED: Final = bytes.fromhex("00532445")
RELEASED: Final = bytes.fromhex("00532645")
#: State of deliveries that a consumer held when it was lost (routing-semantics.md 9.3).
LOST: Final = bytes.fromhex("005327c003024142")
NULL: Final = b"\x40"
DEEPEST: Final = 2
#: Length up to which any number of states is kept whole (REPORT_SHORT).
SHORT_OCTETS: Final = 64

RECEIVED_CODE: Final = 0x23
ACCEPTED_CODE: Final = 0x24
REJECTED_CODE: Final = 0x25
RELEASED_CODE: Final = 0x26
MODIFIED_CODE: Final = 0x27
DECLARED_CODE: Final = 0x33
TRANSACTIONAL_CODE: Final = 0x34
ERROR_CODE: Final = 0x1D
NAMES: Final = {
    RECEIVED_CODE: "amqp:received:list",
    ACCEPTED_CODE: "amqp:accepted:list",
    REJECTED_CODE: "amqp:rejected:list",
    RELEASED_CODE: "amqp:released:list",
    MODIFIED_CODE: "amqp:modified:list",
    DECLARED_CODE: "amqp:declared:list",
    TRANSACTIONAL_CODE: "amqp:transactional-state:list",
    ERROR_CODE: "amqp:error:list",
}
CODES: Final = (RECEIVED_CODE, ACCEPTED_CODE, REJECTED_CODE, RELEASED_CODE, MODIFIED_CODE, DECLARED_CODE)
OUTCOMES: Final = (ACCEPTED_CODE, REJECTED_CODE, RELEASED_CODE, MODIFIED_CODE)
CUSTOM_CODES: Final = (0x01, 0x22, 0x28, 0x99, 0xFE, 0xFF, 0x100, 0x0000468C00000004)
LENGTHS: Final = (0, 1, 3, 20, 60, 64, 65, 254, 255, 256, 600)
FIXED: Final = {
    1: (0x50, 0x51, 0x52, 0x53, 0x54, 0x55),
    2: (0x60, 0x61),
    4: (0x70, 0x71, 0x72, 0x74),
    8: (0x80, 0x81, 0x82, 0x83, 0x84),
    16: (0x94, 0x98),
}
#: Rejected, modified and a custom state without fields; modified with a null field; the router's own modified.
SHORT: Final = (*(bytes.fromhex(each) for each in ("00532545", "00532745", "00539945", "005327c0020140")), LOST)
CONSTANTS: Final = tuple(bytes((code,)) for code in (0x40, 0x41, 0x42, 0x43, 0x44, 0x45))


def variable(rng: Random, code8: int, data: bytes) -> bytes:
    """Encode a binary, string or symbol in a random form. code8: format code of the short form."""
    if len(data) < 256 and rng.random() < 0.7:
        return bytes((code8, len(data))) + data
    return bytes((code8 | 0x10,)) + struct.pack("!I", len(data)) + data


def text(rng: Random) -> bytes:
    length = rng.choice(LENGTHS)
    return ("é" if rng.random() < 0.1 else "x").encode() * length


def symbol(rng: Random, name: str) -> bytes:
    return variable(rng, 0xA3, name.encode("ascii"))


def compound(rng: Random, code8: int, items: Sequence[bytes]) -> bytes:
    """Encode a list (0xC0) or map (0xC1) in a random form."""
    body = b"".join(items)
    if code8 == 0xC0 and not items and rng.random() < 0.5:
        return b"\x45"
    if len(body) < 255 and len(items) < 256 and rng.random() < 0.7:
        return bytes((code8, len(body) + 1, len(items))) + body
    return bytes((code8 | 0x10,)) + struct.pack("!II", len(body) + 4, len(items)) + body


def array(rng: Random) -> bytes:
    """Encode an array of numbers or of symbols."""
    count = rng.randrange(4)
    if rng.random() < 0.5:
        body = b"\x70" + rng.randbytes(4 * count)
    else:
        body = b"\xa3" + b"".join(b"\x03abc" for _ in range(count))
    if rng.random() < 0.5:
        return bytes((0xE0, len(body) + 1, count)) + body
    return b"\xf0" + struct.pack("!II", len(body) + 4, count) + body


def boolean(rng: Random) -> bytes:
    return rng.choice((b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"))


def value(rng: Random, depth: int = 0) -> bytes:
    """Encode a value of a random type."""
    kind = rng.randrange(9 if depth < DEEPEST else 5)
    if kind == 0:
        return rng.choice(CONSTANTS)
    if kind == 1:
        width = rng.choice(tuple(FIXED))
        return bytes((rng.choice(FIXED[width]),)) + rng.randbytes(width)
    if kind == 2:
        return boolean(rng)
    if kind == 3:
        return variable(rng, rng.choice((0xA0, 0xA1)), text(rng))
    if kind == 4:
        return symbol(rng, "s" * rng.choice((0, 1, 30)))
    if kind == 5:
        return array(rng)
    if kind == 6:
        return compound(rng, 0xC0, [value(rng, depth + 1) for _ in range(rng.randrange(4))])
    if kind == 7:
        return mapping(rng, depth + 1)
    return b"\x00" + descriptor(rng, rng.choice(CUSTOM_CODES)) + value(rng, depth + 1)


def mapping(rng: Random, depth: int = 0) -> bytes:
    """Encode a map with symbols as keys."""
    items: list[bytes] = []
    for number in range(rng.choice((0, 1, 1, 2, 5))):
        items += [symbol(rng, f"k{number}"), value(rng, depth)]
    return compound(rng, 0xC1, items)


def descriptor(rng: Random, code: int) -> bytes:
    """Encode a descriptor as a small or large ulong, or as AMQP's symbolic descriptor."""
    choice = rng.random()
    if choice < 0.2:
        return symbol(rng, NAMES.get(code, f"example:state-{code}:list"))
    if choice < 0.4 or code > 0xFF:
        return b"\x80" + struct.pack("!Q", code)
    return bytes((0x53, code))


def composite(rng: Random, code: int, fields: Sequence[bytes]) -> bytes:
    """Encode a described list. Trailing nulls are left out at random."""
    kept = list(fields)
    while kept and kept[-1] == NULL and rng.random() < 0.7:
        kept.pop()
    return b"\x00" + descriptor(rng, code) + compound(rng, 0xC0, kept)


def error(rng: Random) -> bytes:
    condition = symbol(rng, rng.choice(("amqp:not-found", "a:b", "x" * 200)))
    description = NULL if rng.random() < 0.3 else variable(rng, 0xA1, text(rng))
    return composite(rng, ERROR_CODE, [condition, description, NULL if rng.random() < 0.4 else mapping(rng)])


def transactional(rng: Random) -> bytes:
    outcome = NULL if rng.random() < 0.3 else outcome_of(rng, rng.choice((ACCEPTED_CODE, REJECTED_CODE, MODIFIED_CODE)))
    return composite(rng, TRANSACTIONAL_CODE, [variable(rng, 0xA0, rng.randbytes(rng.choice((1, 8, 32)))), outcome])


def outcome_of(rng: Random, code: int) -> bytes:
    """Encode a state of part 3, or declared."""
    if code == RECEIVED_CODE:
        section = rng.choice((b"\x43", b"\x52\x03", b"\x70" + rng.randbytes(4)))
        return composite(rng, code, [section, rng.choice((b"\x44", b"\x53\x07", b"\x80" + rng.randbytes(8)))])
    if code == REJECTED_CODE:
        return composite(rng, code, [NULL if rng.random() < 0.2 else error(rng)])
    if code == MODIFIED_CODE:
        flags = [NULL if rng.random() < 0.3 else boolean(rng) for _ in range(2)]
        return composite(rng, code, [*flags, NULL if rng.random() < 0.5 else mapping(rng)])
    if code == DECLARED_CODE:
        return composite(rng, code, [variable(rng, 0xA0, rng.randbytes(rng.choice((1, 4, 32))))])
    return composite(rng, code, [])


def state(rng: Random) -> bytes:
    """Encode a random delivery state."""
    choice = rng.random()
    if choice < 0.7:
        return outcome_of(rng, rng.choice(CODES))
    if choice < 0.85:
        return transactional(rng)
    return b"\x00" + descriptor(rng, rng.choice(CUSTOM_CODES)) + value(rng)


def siblings(rng: Random, count: int) -> list[bytes]:
    """Encode transactional states of one length that differ only in their last octets."""
    return [bytes.fromhex("005334c00b01a008") + rng.randbytes(8) for _ in range(count)]


def plain_state(rng: Random) -> bytes:
    """Encode a short state, mostly one that routers keep by its kind alone."""
    choice = rng.random()
    if choice < 0.5:
        return ACCEPTED
    if choice < 0.75:
        return RELEASED
    return rng.choice(SHORT)


def is_outcome(state: bytes | None) -> bool:
    """Return True for accepted, rejected, released and modified, in any encoding of the descriptor."""
    if state is None:
        return False
    return any(state.startswith(beginning) for code in OUTCOMES for beginning in descriptors(code))


def descriptors(code: int) -> tuple[bytes, ...]:
    """Return the encodings of a descriptor, each after the octet of a described type."""
    name = NAMES[code].encode()
    forms = (
        b"\x53" + bytes((code,)),
        b"\x80" + struct.pack("!Q", code),
        bytes((0xA3, len(name))) + name,
        b"\xb3" + struct.pack("!I", len(name)) + name,
    )
    return tuple(b"\x00" + form for form in forms)
