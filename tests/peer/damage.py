"""Damage for fuzzing: random AMQP values, and damaged octets."""

from random import Random

# Sizes and numbers at which code often fails.
EDGES = (0, 1, 2, 7, 8, 127, 128, 254, 255, 256, 511, 512, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def value(rng: Random, depth: int = 0) -> bytes:
    """Return an encoded value of any type, sometimes malformed."""
    kind = rng.randrange(15 if depth < 3 else 11)
    if kind < 3:
        return bytes((rng.choice((0x40, 0x41, 0x42, 0x43, 0x44, 0x45)),))
    if kind < 5:
        return bytes((rng.choice((0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56)), rng.choice((0, 1, 127, 128, 255))))
    if kind == 5:
        return bytes((rng.choice((0x60, 0x61)),)) + (rng.choice(EDGES) & 0xFFFF).to_bytes(2, "big")
    if kind == 6:
        return bytes((rng.choice((0x70, 0x71, 0x72, 0x73, 0x74)),)) + rng.choice(EDGES).to_bytes(4, "big")
    if kind == 7:
        number = rng.choice((*EDGES, 1 << 63, (1 << 64) - 1))
        return bytes((rng.choice((0x80, 0x81, 0x82, 0x83, 0x84)),)) + number.to_bytes(8, "big")
    if kind == 8:
        return bytes((rng.choice((0x94, 0x98)),)) + rng.randbytes(16)
    if kind == 9:
        body = rng.choice((b"", b"a", b"amqp:accepted:list", b"\xff\xfe", b"x" * 255, rng.randbytes(9)))
        return bytes((rng.choice((0xA0, 0xA1, 0xA3)), len(body))) + body
    if kind == 10:
        body = rng.choice((b"", b"abc", b"y" * 300))
        size = len(body) if rng.random() < 0.9 else rng.choice(EDGES)
        return bytes((rng.choice((0xB0, 0xB1, 0xB3)),)) + size.to_bytes(4, "big") + body
    if kind == 11:
        return b"\x00" + value(rng, depth + 1) + value(rng, depth + 1)
    return compound(rng, depth)


def compound(rng: Random, depth: int) -> bytes:
    """Return a list, map or array, small or large, sometimes with a wrong size or count."""
    items = [value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 2, 4, 6)))]
    body = b"".join(items)
    count = len(items)
    if rng.random() < 0.1:
        body = bytes((rng.choice((0x40, 0x45, 0x50, 0x71, 0xA1, 0xC0, 0x00)),)) + body
        code = rng.choice((0xE0, 0xF0))
    else:
        code = rng.choice((0xC0, 0xC1, 0xD0, 0xD1))
    large = code in (0xD0, 0xD1, 0xF0) or len(body) > 250
    size = len(body) + (4 if large else 1)
    if rng.random() < 0.1:
        count = rng.choice(EDGES)
    if rng.random() < 0.1:
        size = rng.choice(EDGES)
    if large:
        return (
            bytes(((code & 0x0F) | (0xF0 if code >= 0xE0 else 0xD0),))
            + size.to_bytes(4, "big")
            + count.to_bytes(4, "big")
            + body
        )
    return bytes((code, size & 0xFF, count & 0xFF)) + body


def spoil(rng: Random, octets: bytes) -> bytes:
    """Return damaged octets: changed bits and lengths; missing, doubled or moved pieces."""
    data = bytearray(octets)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not data:
            break
        at = rng.randrange(len(data))
        kind = rng.randrange(7)
        if kind < 2:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at] = rng.choice((0, 1, 0x40, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 3:
            del data[at : at + rng.choice((1, 2, 10))]
        elif kind == 4:
            data[at:at] = data[at : at + rng.choice((1, 4, 30))]
        elif kind == 5:
            data[at : at + 4] = rng.choice(EDGES).to_bytes(4, "big")
        else:
            data[at:at] = value(rng)
    return bytes(data)
