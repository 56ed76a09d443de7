"""Address text: reduction to its significant part, classes and table keys.

routing-semantics.md 3, inter-router.md 3.1, 3.2.

A table key is a class letter, for mobile addresses a phase character, and a name. The letters are those of
the inter-router protocol, so that keys can be exchanged with other routers as they are.
"""

import os
from typing import Final, NamedTuple

MOBILE: Final = "M"
LOCAL: Final = "L"
TOPOLOGICAL: Final = "T"
ROUTER: Final = "R"
AREA: Final = "A"
EDGE: Final = "H"

EDGE_MODE: Final = "edge"
INTERIOR_MODE: Final = "interior"
OWN_AREA: Final = "0"
EVERY: Final = "all"
# Local address that stands for "whatever is beyond the uplink" in an edge router.
UPLINK: Final = "_edge"

FALLBACK_PHASE: Final = "F"
# The fallback instance as a number, as it travels in the phase annotation: relative to the character '0'.
FALLBACK_PHASE_NUMBER: Final = ord(FALLBACK_PHASE) - ord("0")

TEMPORARY_LENGTH: Final = 15  # characters; 90 bits of chance, the length that clients' patterns expect
_ALPHABET: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+_"
_TO_ALPHABET: Final = _ALPHABET * (256 // len(_ALPHABET))  # 64 characters, all equally likely


# Octets of an address text: encoded, with its targets and the first sections of a message, it has to fit into one
# record between workers (`MOST_TO` of routes.pyx, `TARGETS_A_RECORD` of forward.pyx).
LONGEST: Final = 65_531


class Address(NamedTuple):
    """A classified address: class letter and the name within that class."""

    cls: str
    name: str


def too_long(text: str) -> bool:
    """Whether clients may neither attach to this address nor configure it."""
    return len(text) > LONGEST // 4 and len(text.encode()) > LONGEST


def normalise(text: str) -> str:
    """Reduce an address text to the part that identifies it: no scheme, no authority, no trailing separator.

    Removes one leading `/`; `//authority/`; everything up to the first `:/`, with an authority that follows it; an
    authority counts only with a `/` after it. Then removes one trailing `.` or `/`.
    """
    if text[:1] == "/":
        text = _without_authority(text, 1)
    else:
        scheme = text.find(":/")
        if scheme >= 0:
            text = _without_authority(text, scheme + 2)
    return text[:-1] if text[-1:] in ("/", ".") else text


def _without_authority(text: str, start: int) -> str:
    """The part of `text` from `start`, which follows a slash, without the authority after a second slash."""
    if text[start : start + 1] != "/":
        return text[start:]
    end = text.find("/", start + 1)
    return text if end < 0 else text[end + 1 :]


def classify(text: str, router_id: str, mode: str) -> Address:
    """Return class and name of a normalised address for the router `router_id` in `mode`.

    Modes are those of the configuration (`standalone`, `interior`, `edge`). An edge router sends all other addresses to
    its uplink, the local address `_edge`.
    """
    if text.startswith("_"):
        if text.startswith("_local/"):
            return Address(LOCAL, text[7:])
        if text.startswith("_topo/"):
            return _classify_topological(text[6:], router_id, mode)
        if text.startswith("_edge/"):
            edge, slash, name = text[6:].partition("/")
            if slash and edge == router_id:
                return Address(LOCAL, name)
            return Address(LOCAL, UPLINK) if mode == EDGE_MODE else Address(EDGE, edge)
    return Address(MOBILE, text)


def edge_id(text: str) -> str | None:
    """The id of the edge router in a normalised address `_edge/ID/…`; None: it is none."""
    edge, slash, _ = text[6:].partition("/") if text.startswith("_edge/") else ("", "", "")
    return edge if slash else None


def _classify_topological(text: str, router_id: str, mode: str) -> Address:
    """Class and name from the text after `_topo/`: area, router, name."""
    area, _, rest = text.partition("/")
    if area in (OWN_AREA, EVERY):
        router, slash, name = rest.partition("/")
        if slash and router == EVERY:
            return Address(TOPOLOGICAL, name)
        if slash and router == router_id:
            return Address(LOCAL, name)
        foreign = Address(ROUTER, router)
    else:
        foreign = Address(AREA, area)
    return Address(LOCAL, UPLINK) if mode == EDGE_MODE else foreign


def key(cls: str, name: str, phase: int | str = 0) -> str:
    """Table key of an address. `phase` is 0 to 9 or `F` and counts for mobile addresses only."""
    return f"M{phase}{name}" if cls == MOBILE else cls + name


def generate_temporary(router_id: str, mode: str, dynamic_target: bool) -> str:
    """Generate the address of a dynamic terminus, as shown to the client.

    Random, not unique: the caller must check it, and call again if it exists.
    """
    name = os.urandom(TEMPORARY_LENGTH).translate(_TO_ALPHABET).decode("ascii")
    if dynamic_target:
        return f"amqp:/_$temp.{name}"
    if mode == EDGE_MODE:
        return f"amqp:/_edge/{router_id}/temp.{name}"
    return f"amqp:/_topo/{OWN_AREA}/{router_id}/temp.{name}"


def escapes(name: str) -> bool:
    """Whether a normalised name, with a tenant's prefix before it, would be reduced to less than that.

    Other routers normalise the whole address again: `red/x:/blue/orders` is `blue/orders` to them.
    """
    return ":/" in name


def is_temporary(text: str) -> bool:
    """Whether an address, as a client writes it, has the form of a generated one."""
    plain = normalise(text)
    return plain.startswith("_$temp.") or (plain.startswith(("_topo/", "_edge/")) and "/temp." in plain)


# Addresses of the protocol itself: they always exist, and messages of clients to them are dropped (inter-router.md
# 11.2).
CONTROL_KEYS: Final = (
    key(LOCAL, "qdhello"),
    key(LOCAL, "qdrouter"),
    key(LOCAL, "qdrouter.ma"),
    key(TOPOLOGICAL, "qdrouter"),
    key(TOPOLOGICAL, "qdrouter.ma"),
)
# Those of which management counts every copy (inter-router.md 3.4).
FLOODED: Final = frozenset(record_key for record_key in CONTROL_KEYS if not record_key.endswith(".ma"))
