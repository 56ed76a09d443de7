"""Protocol headers (AMQP 1.0 part 2, 2.2), and Dispatch's texts for headers that are not supported."""

from __future__ import annotations

from typing import Final

from sluice.router.amqp.errors import FRAMING_ERROR, RemoteError

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"


def shown_octets(text: bytes) -> str:
    """Format octets for a log line."""
    return "".join(chr(c) if 32 <= c < 127 else f"\\x{c:02x}" for c in text)


def protocol_name(text: bytes) -> str:
    """Name the protocol that a peer seems to use."""
    layers = {AMQP_HEADER: "AMQP 1.0 layer", SASL_HEADER: "AMQP SASL layer", TLS_HEADER: "AMQP TLS layer"}
    return layers.get(text) or ("Unknown AMQP connection" if text[:4] == b"AMQP" else "Unknown protocol")


def bad_header(text: bytes) -> RemoteError:
    """Return the error for a header that begins no supported protocol (routing-semantics.md 1.1).

    brokers-and-edge.md W-6; security.md T-5.
    """
    shown = shown_octets(text)
    if text[:4] == b"AMQP" and text[4] in (0, 1, 2, 3):
        return RemoteError("transport", FRAMING_ERROR, f"Incompatible AMQP connection detected: '{shown}'")
    return RemoteError("transport", FRAMING_ERROR, f"Unknown protocol detected: '{shown}'")


def not_expected(layer: str, text: bytes) -> RemoteError:
    """Return the error for a header of another layer than the expected one."""
    return RemoteError(
        "transport",
        FRAMING_ERROR,
        f"Expected {layer} protocol header got: {protocol_name(text)} ['{shown_octets(text)}']",
    )
