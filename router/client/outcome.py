"""Outcomes of deliveries (part 3, 3.4)."""

from typing import Any, ClassVar

from msgspec import Struct, field

from sluice.router.amqp import codec
from sluice.router.amqp.errors import malformed
from sluice.router.amqp.performatives import read_error

NULL = b"\x40"
RECEIVED = 0x23
TXN_ID_MOST = 96  # octets of a txn-id. The standard allows 32 (part 4, 4.5.7); those of Artemis have 36


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


class Declared(Struct, frozen=True):
    """Outcome of the declaration of a transaction (part 4, 4.5.5)."""

    txn_id: bytes
    code: ClassVar[int] = 0x33


class Transactional(Struct, frozen=True):
    """State of a delivery in a transaction (part 4, 4.5.8). outcome: takes effect when the transaction is discharged;
    None: there is none yet."""

    txn_id: bytes
    outcome: "Accepted | Rejected | Released | Modified | None" = None
    code: ClassVar[int] = 0x34


class OtherState(Struct, frozen=True):
    """Encoded state that parts 3 and 4 do not define."""

    octets: bytes


Outcome = Accepted | Rejected | Released | Modified | Declared | Transactional | OtherState


def encode(outcome: Outcome) -> bytes:
    """Encode an outcome as a delivery state."""
    if isinstance(outcome, OtherState):
        return outcome.octets
    items: list[bytes] = []
    if isinstance(outcome, Declared):
        items = [codec.encode_binary(outcome.txn_id)]
    elif isinstance(outcome, Transactional):
        items = [codec.encode_binary(outcome.txn_id)]
        if outcome.outcome is not None:
            items.append(encode(outcome.outcome))
    elif isinstance(outcome, Rejected) and outcome.condition:
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
    if code == Declared.code:
        return Declared(_txn_id(items))
    if code == Transactional.code:
        inner = decode(items[1]) if len(items) > 1 and items[1] != NULL else None
        if isinstance(inner, Declared | Transactional | OtherState):
            raise malformed("the outcome in a transactional-state is not one of part 3")
        return Transactional(_txn_id(items), inner)
    return None if code == RECEIVED else OtherState(octets)


def _txn_id(items: list[bytes]) -> bytes:
    txn_id = codec.decode_one(items[0]) if items else None
    if type(txn_id) is not bytes or not 1 <= len(txn_id) <= TXN_ID_MOST:
        raise malformed(f"a txn-id is not a binary of 1 to {TXN_ID_MOST} octets")
    return txn_id
