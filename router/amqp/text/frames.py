"""Frames as lines of text, for protocol traces (management.md 4.7), in the form of Proton and Dispatch:

0 -> @transfer(20) [handle=0, delivery-id=0, delivery-tag=b"\\x00"] (10) "\\x00Sw\\xa1\\x05hello"
"""

from typing import Final

from sluice.router.amqp.text.values import ShortError, escaped, value_text

HEADER_OCTETS: Final = 8
PAYLOAD_OCTETS: Final = 64  # octets of a transfer's payload that are shown

_TERMINUS: Final = ("address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties")
_HEADERS: Final = {0: "AMQP", 2: "TLS", 3: "SASL"}

# Parts 2 (2.7), 3 (3.4, 3.5), 4 (4.5) and 5 (5.3.3) of the specification.
NAMES: Final = {
    0x10: ("open", ("container-id", "hostname", "max-frame-size", "channel-max", "idle-time-out", "outgoing-locales",
                    "incoming-locales", "offered-capabilities", "desired-capabilities", "properties")),
    0x11: ("begin", ("remote-channel", "next-outgoing-id", "incoming-window", "outgoing-window", "handle-max",
                     "offered-capabilities", "desired-capabilities", "properties")),
    0x12: ("attach", ("name", "handle", "role", "snd-settle-mode", "rcv-settle-mode", "source", "target", "unsettled",
                      "incomplete-unsettled", "initial-delivery-count", "max-message-size", "offered-capabilities",
                      "desired-capabilities", "properties")),
    0x13: ("flow", ("next-incoming-id", "incoming-window", "next-outgoing-id", "outgoing-window", "handle",
                    "delivery-count", "link-credit", "available", "drain", "echo", "properties")),
    0x14: ("transfer", ("handle", "delivery-id", "delivery-tag", "message-format", "settled", "more",
                        "rcv-settle-mode", "state", "resume", "aborted", "batchable")),
    0x15: ("disposition", ("role", "first", "last", "settled", "state", "batchable")),
    0x16: ("detach", ("handle", "closed", "error")),
    0x17: ("end", ("error",)),
    0x18: ("close", ("error",)),
    0x1D: ("error", ("condition", "description", "info")),
    0x23: ("received", ("section-number", "section-offset")),
    0x24: ("accepted", ()),
    0x25: ("rejected", ("error",)),
    0x26: ("released", ()),
    0x27: ("modified", ("delivery-failed", "undeliverable-here", "message-annotations")),
    0x28: ("source", (*_TERMINUS, "distribution-mode", "filter", "default-outcome", "outcomes", "capabilities")),
    0x29: ("target", (*_TERMINUS, "capabilities")),
    0x30: ("coordinator", ("capabilities",)),
    0x31: ("declare", ("global-id",)),
    0x32: ("discharge", ("txn-id", "fail")),
    0x33: ("declared", ("txn-id",)),
    0x34: ("transactional-state", ("txn-id", "outcome")),
    0x40: ("sasl-mechanisms", ("sasl-server-mechanisms",)),
    0x41: ("sasl-init", ("mechanism", "initial-response", "hostname")),
    0x42: ("sasl-challenge", ("challenge",)),
    0x43: ("sasl-response", ("response",)),
    0x44: ("sasl-outcome", ("code", "additional-data")),
}  # fmt: skip

# Fields that must not be logged: the octets with which a client proves its identity. By the start of the frame's text.
_SECRETS: Final = {"@sasl-init(": "initial-response", "@sasl-response(": "response"}


def frame_text(data: bytes, size: int, received: bool) -> str:
    """Return the line for a frame or protocol header of `size` octets. data: its first octets."""
    arrow = "<-" if received else "->"
    if data.startswith(b"AMQP") and size == HEADER_OCTETS:
        return f"  {arrow} {_HEADERS.get(data[4], f'protocol {data[4]}')}"
    channel = int.from_bytes(data[6:8], "big")
    at = 4 * data[4]
    if at < HEADER_OCTETS or at > size:
        return f"{channel} {arrow} (malformed frame of {size} octets)"
    if at == size:
        return f"{channel} {arrow} (EMPTY FRAME)"
    try:
        text, end = value_text(data, at, NAMES)
    except ShortError as short:
        return f"{channel} {arrow} {_without_secret(short.text)}..."
    if end < size:
        shown = data[end : end + PAYLOAD_OCTETS]
        more = "..." if size - end > len(shown) else ""
        text = f'{text} ({size - end}) "{escaped(shown)}"{more}'
    return f"{channel} {arrow} {_without_secret(text)}"


def _without_secret(text: str) -> str:
    """Return a frame's text without the octets that prove an identity."""
    secret = next((field for begin, field in _SECRETS.items() if text.startswith(begin)), None)
    if secret is None:
        return text
    before, found, rest = text.partition(f'{secret}=b"')
    if not found:
        return text
    end = _end_of_quote(rest)
    return f'{before}{secret}=b"*******"{rest[end + 1 :]}'


def _end_of_quote(text: str) -> int:
    """Return the end of a quoted text: the first quote without a backslash before it."""
    at = 0
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at
