"""Outcomes of deliveries (part 3, 3.4)."""

from typing import Any, ClassVar

from msgspec import Struct, field

from sluice.router.amqp import codec
from sluice.router.amqp.performatives import read_error

NULL = b"\x40"
RECEIVED = 0x23


class Accepted(Struct, frozen=True):
    """Outcome: the receiver has taken responsibility for the message."""

    code: ClassVar[int] = 0x24


class Rejected(Struct, frozen=True):
    """Outcome: the message is invalid."""

    condition: str = ""
    description: str = ""
    code: ClassVar[int] = 0x25


class Released(Struct, frozen=True):
    """Outcome: the message was not processed, and may be sent to any receiver."""

    code: ClassVar[int] = 0x26


class Modified(Struct, frozen=True):
    """Outcome: the message may be tried again, perhaps by another receiver."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    annotations: dict[str, Any] = field(default_factory=dict)
    code: ClassVar[int] = 0x27


class OtherState(Struct, frozen=True):
    """Encoded state that part 3 does not define."""

    octets: bytes


Outcome = Accepted | Rejected | Released | Modified | OtherState


def encode(outcome: Outcome) -> bytes:
    """Encode an outcome as a delivery state."""
    if isinstance(outcome, OtherState):
        return outcome.octets
    items: list[bytes] = []
    if isinstance(outcome, Rejected) and outcome.condition:
        items = [codec.encode_error(outcome.condition, outcome.description or None)]
    elif isinstance(outcome, Modified):
        items = [b"\x41" if flag else b"\x42" for flag in (outcome.delivery_failed, outcome.undeliverable_here)]
        if outcome.annotations:
            pairs = outcome.annotations.items()
            items.append(
                codec.encode_map([part for k, v in pairs for part in (codec.encode_symbol(k), codec.encode_value(v))])
            )
    return bytes(codec.encode_described(outcome.code, items))


def decode(octets: bytes) -> Outcome | None:
    """Decode a delivery state. None: no state, or one that is not final. Raises AmqpError."""
    if not octets:
        return None
    code, items = codec.described_list(octets)
    if code == Accepted.code:
        return Accepted()
    if code == Rejected.code:
        condition, description = (read_error(items[0]) if items else None) or ("", "")
        return Rejected(condition, description)
    if code == Released.code:
        return Released()
    if code == Modified.code:
        values = [codec.decode_one(item) for item in items[:3]] + [None] * 3
        return Modified(values[0] is True, values[1] is True, values[2] if isinstance(values[2], dict) else {})
    return None if code == RECEIVED else OtherState(octets)
