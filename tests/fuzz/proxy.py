"""PROXY protocol headers, whole and damaged, and the octets after them."""

from random import Random
from typing import Any

from sluice.supervisor.listeners.proxy_header import MOST_OCTETS, ProxyError, ProxyHeader, parse
from tests.peer import proxy_headers as proxy
from tests.peer.damage import spoil

Case = dict[str, Any]
SOURCES = ("192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7", "255.255.255.255")


def header(rng: Random) -> Case:
    """Return a header, perhaps damaged, with octets after it."""
    source = rng.choice(SOURCES)
    additions = b"".join(
        proxy.addition(rng.choice((1, 3, 4, 32)), rng.randbytes(rng.choice((0, 4, 9)))) for _ in range(rng.randrange(3))
    )
    octets = rng.choice(
        (
            proxy.text(source, rng.randrange(70_000)),
            b"PROXY UNKNOWN\r\n",
            proxy.binary(source, rng.randrange(65_536), additions),
            proxy.binary(None, additions=additions),
        )
    )
    octets += rng.randbytes(rng.randrange(20))
    return {"octets": (spoil(rng, octets) if rng.random() < 0.7 else octets).hex()}


def run_header(case: Case) -> None:
    """The header is the same for any split, and recognised as soon as its last octet has arrived."""
    octets = bytes.fromhex(case["octets"])
    found = _found(octets)
    for size in range(len(octets)):
        early = _found(octets[:size])
        if isinstance(early, ProxyHeader):
            assert early == found
            assert early.octets <= size
        elif isinstance(early, str):
            assert isinstance(found, str)
    if isinstance(found, ProxyHeader):
        assert found.octets <= MOST_OCTETS
        assert _found(octets[: found.octets]) == found
        assert _found(octets[: found.octets - 1]) is None


def _found(octets: bytes) -> ProxyHeader | str | None:
    try:
        return parse(octets)
    except ProxyError as error:
        return str(error)
