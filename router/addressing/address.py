"""Address texts: normalisation, classes and table keys.

Specification: routing-semantics.md 3; inter-router.md 3.1, 3.2.

A table key consists of a class letter, the phase (mobile addresses only) and the name. The class letters are those of
the inter-router protocol, so keys are exchanged with other routers without conversion.
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
# Local address in an edge router for everything that is reached through the uplink.
UPLINK: Final = "_edge"

FALLBACK_PHASE: Final = "F"
# Phase number of the fallback instance in the phase annotation: its character relative to '0'.
FALLBACK_PHASE_NUMBER: Final = ord(FALLBACK_PHASE) - ord("0")

# Random characters of a temporary address: 90 random bits. Patterns of clients expect this length.
TEMPORARY_LENGTH: Final = 15
_ALPHABET: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+_"
_TO_ALPHABET: Final = _ALPHABET * (256 // len(_ALPHABET))  # 64 characters, all equally likely

# Largest address text, in octets of UTF-8. One record of a ring must have room for the encoded address, its targets and
# the leading sections of a message (`MOST_TO` in producer_handler.pyx, `TARGETS_A_RECORD` in forward.pyx).
LONGEST: Final = 65_531


class Address(NamedTuple):
    """Classified address: class letter and name within the class."""

    cls: str
    name: str


def too_long(text: str) -> bool:
    """Return whether an address is too long to be attached to or configured."""
    return len(text) > LONGEST // 4 and len(text.encode()) > LONGEST


def normalise(text: str) -> str:
    """Remove scheme, authority and trailing separator from an address text.

    First remove one leading `/`, or everything up to and including the first `:/`. Then remove an authority (`/name/`
    directly after that slash; without the closing `/` there is no authority). At last remove one trailing `.` or `/`.

    routing-semantics.md 3.1.
    """
    if text[:1] == "/":
        text = _without_authority(text, 1)
    else:
        scheme = text.find(":/")
        if scheme >= 0:
            text = _without_authority(text, scheme + 2)
    return text[:-1] if text[-1:] in ("/", ".") else text


def _without_authority(text: str, start: int) -> str:
    """Return `text` from `start`, without an authority. `start` follows a slash; a second slash begins an authority."""
    if text[start : start + 1] != "/":
        return text[start:]
    end = text.find("/", start + 1)
    return text if end < 0 else text[end + 1 :]


def classify(text: str, router_id: str, mode: str) -> Address:
    """Return class and name of a normalised address, as seen by the router `router_id` in `mode`.

    `mode` is the configured one (`standalone`, `interior`, `edge`). In an edge router, addresses of other routers are
    classified as the uplink's local address `_edge`. routing-semantics.md 3.2.
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
    """Return the id of the edge router in a normalised address `_edge/ID/…`, None for any other address."""
    edge, slash, _ = text[6:].partition("/") if text.startswith("_edge/") else ("", "", "")
    return edge if slash else None


def _classify_topological(text: str, router_id: str, mode: str) -> Address:
    """Return class and name for the text after `_topo/`, which consists of area, router and name."""
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
    """Return the table key of an address. `phase` is 0 to 9 or `F`; only mobile addresses have one."""
    return f"M{phase}{name}" if cls == MOBILE else cls + name


def generate_temporary(router_id: str, mode: str, dynamic_target: bool) -> str:
    """Generate a random address for a dynamic terminus, as shown to the client.

    The address may exist already: the caller checks this and calls again if necessary.

    brokers-and-edge.md ED-15, ED-16.
    """
    name = os.urandom(TEMPORARY_LENGTH).translate(_TO_ALPHABET).decode("ascii")
    if dynamic_target:
        return f"amqp:/_$temp.{name}"
    if mode == EDGE_MODE:
        return f"amqp:/_edge/{router_id}/temp.{name}"
    return f"amqp:/_topo/{OWN_AREA}/{router_id}/temp.{name}"


def escapes_tenant_prefix(name: str) -> bool:
    """Return whether normalising a name again, after its tenant's prefix is added, would remove that prefix.

    Other routers normalise the whole address again: for them, `red/x:/blue/orders` is `blue/orders`, an address of
    another tenant. `name` is normalised.
    """
    return ":/" in name


def is_temporary(text: str) -> bool:
    """Return whether an address, as a client writes it, has the form of a temporary address."""
    plain = normalise(text)
    return plain.startswith("_$temp.") or (plain.startswith(("_topo/", "_edge/")) and "/temp." in plain)


# Addresses of the inter-router protocol. They always exist; messages of clients to them are dropped (inter-router.md
# 11.2).
CONTROL_KEYS: Final = (
    key(LOCAL, "qdhello"),
    key(LOCAL, "qdrouter"),
    key(LOCAL, "qdrouter.ma"),
    key(TOPOLOGICAL, "qdrouter"),
    key(TOPOLOGICAL, "qdrouter.ma"),
)
# Control addresses that management reports with the distribution `flood` (inter-router.md 3.4).
FLOODED_KEYS: Final = frozenset(record_key for record_key in CONTROL_KEYS if not record_key.endswith(".ma"))
