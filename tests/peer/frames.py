"""Frames and performatives: a table of fields per performative, with encoding and decoding by that table."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from tests.peer.codec import CodecError, decode, encode
from tests.peer.types import Array, Described, Raw, Symbol, UByte, UInt, ULong, UShort

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
#: Octets before the payload of an AMQP frame: size, doff, type, channel.
FRAME_HEADER = 8

#: Name -> (descriptor, ((field, type), ...)). `symbols` is a symbol or an array of symbols; `any` is sent unchanged.
PERFORMATIVES: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = {
    "open": (
        0x10,
        (
            ("container_id", "string"),
            ("hostname", "string"),
            ("max_frame_size", "uint"),
            ("channel_max", "ushort"),
            ("idle_time_out", "uint"),
            ("outgoing_locales", "symbols"),
            ("incoming_locales", "symbols"),
            ("offered_capabilities", "symbols"),
            ("desired_capabilities", "symbols"),
            ("properties", "fields"),
        ),
    ),
    "begin": (
        0x11,
        (
            ("remote_channel", "ushort"),
            ("next_outgoing_id", "uint"),
            ("incoming_window", "uint"),
            ("outgoing_window", "uint"),
            ("handle_max", "uint"),
            ("offered_capabilities", "symbols"),
            ("desired_capabilities", "symbols"),
            ("properties", "fields"),
        ),
    ),
    "attach": (
        0x12,
        (
            ("name", "string"),
            ("handle", "uint"),
            ("role", "boolean"),
            ("snd_settle_mode", "ubyte"),
            ("rcv_settle_mode", "ubyte"),
            ("source", "any"),
            ("target", "any"),
            ("unsettled", "any"),
            ("incomplete_unsettled", "boolean"),
            ("initial_delivery_count", "uint"),
            ("max_message_size", "ulong"),
            ("offered_capabilities", "symbols"),
            ("desired_capabilities", "symbols"),
            ("properties", "fields"),
        ),
    ),
    "flow": (
        0x13,
        (
            ("next_incoming_id", "uint"),
            ("incoming_window", "uint"),
            ("next_outgoing_id", "uint"),
            ("outgoing_window", "uint"),
            ("handle", "uint"),
            ("delivery_count", "uint"),
            ("link_credit", "uint"),
            ("available", "uint"),
            ("drain", "boolean"),
            ("echo", "boolean"),
            ("properties", "fields"),
        ),
    ),
    "transfer": (
        0x14,
        (
            ("handle", "uint"),
            ("delivery_id", "uint"),
            ("delivery_tag", "any"),
            ("message_format", "uint"),
            ("settled", "boolean"),
            ("more", "boolean"),
            ("rcv_settle_mode", "ubyte"),
            ("state", "any"),
            ("resume", "boolean"),
            ("aborted", "boolean"),
            ("batchable", "boolean"),
        ),
    ),
    "disposition": (
        0x15,
        (
            ("role", "boolean"),
            ("first", "uint"),
            ("last", "uint"),
            ("settled", "boolean"),
            ("state", "any"),
            ("batchable", "boolean"),
        ),
    ),
    "detach": (0x16, (("handle", "uint"), ("closed", "boolean"), ("error", "any"))),
    "end": (0x17, (("error", "any"),)),
    "close": (0x18, (("error", "any"),)),
    "sasl-mechanisms": (0x40, (("sasl_server_mechanisms", "symbols"),)),
    "sasl-init": (0x41, (("mechanism", "symbol"), ("initial_response", "any"), ("hostname", "string"))),
    "sasl-challenge": (0x42, (("challenge", "any"),)),
    "sasl-response": (0x43, (("response", "any"),)),
    "sasl-outcome": (0x44, (("code", "ubyte"), ("additional_data", "any"))),
}
NAMES = {descriptor: name for name, (descriptor, _fields) in PERFORMATIVES.items()}

_WRAP = {
    "string": str,
    "symbol": Symbol,
    "uint": UInt,
    "ulong": ULong,
    "ushort": UShort,
    "ubyte": UByte,
    "boolean": bool,
}


class Performative:
    """Performative whose fields are attributes. Absent and null fields read as None."""

    def __init__(self, name: str, /, **fields: Any) -> None:
        known = {field for field, _type in PERFORMATIVES[name][1]}
        unknown = set(fields) - known
        if unknown:
            raise TypeError(f"{name} has no field {sorted(unknown)}")
        self.performative = name
        self.fields = fields

    def __getattr__(self, field: str) -> Any:
        if any(field == known for known, _type in PERFORMATIVES[self.performative][1]):
            return self.fields.get(field)
        raise AttributeError(f"{self.performative} has no field {field!r}")

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.fields.items() if v is not None)
        return f"{self.performative}({inner})"

    def encode(self) -> bytes:
        """Encode the described list, cut after the last field that is set."""
        descriptor, table = PERFORMATIVES[self.performative]
        values = [_typed(self.fields.get(field), kind) for field, kind in table]
        while values and values[-1] is None:
            values.pop()
        return encode(Described(ULong(descriptor), values))


class Frame:
    """Received frame: its channel, performative (None for a heartbeat) and payload.

    The performative's fields are also attributes of the frame.
    """

    def __init__(self, channel: int, performative: Performative | None, payload: bytes, size: int) -> None:
        self.channel = channel
        self.performative = performative
        self.payload = payload
        #: Octets of the whole frame.
        self.size = size

    @property
    def name(self) -> str:
        """Name of the performative; `heartbeat` for an empty frame. The link name of an attach is `fields["name"]`."""
        return "heartbeat" if self.performative is None else self.performative.performative

    @property
    def fields(self) -> dict[str, Any]:
        """All received fields by name."""
        return {} if self.performative is None else self.performative.fields

    def __getattr__(self, field: str) -> Any:
        performative = self.__dict__.get("performative")
        if performative is None:
            raise AttributeError(f"an empty frame has no field {field!r}")
        return getattr(performative, field)

    def __repr__(self) -> str:
        text = "heartbeat" if self.performative is None else repr(self.performative)
        tail = f" +{len(self.payload)}" if self.payload else ""
        return f"<{self.channel}: {text}{tail}>"


def _typed(value: Any, kind: str) -> Any:
    """Convert a plain Python value to the type of its field. None, Raw octets and `any` stay unchanged."""
    if value is None or kind == "any" or isinstance(value, Raw | Array):
        return value
    if kind == "symbols":
        if isinstance(value, str):
            return Symbol(value)
        return Array([Symbol(item) for item in value])
    if kind == "fields":
        return {Symbol(key): item for key, item in value.items()} if type(value) is dict else value
    return _WRAP[kind](value)


def frame_octets(body: bytes, channel: int = 0, kind: int = 0, doff: int = 2) -> bytes:
    """Return a frame of type `kind` (0 AMQP, 1 SASL) around `body`."""
    size = FRAME_HEADER + 4 * (doff - 2) + len(body)
    return struct.pack("!IBBH", size, doff, kind, channel) + bytes(4 * (doff - 2)) + body


def parse_frame(octets: bytes) -> Frame:
    """Decode one whole frame."""
    size, doff, _kind, channel = struct.unpack_from("!IBBH", octets)
    start = 4 * doff
    if start == size:
        return Frame(channel, None, b"", size)
    value, end = decode(octets, start)
    if not isinstance(value, Described) or value.descriptor not in NAMES:
        raise CodecError(f"frame does not begin with a performative: {value!r}")
    name = NAMES[value.descriptor]
    table = PERFORMATIVES[name][1]
    fields = {field: item for (field, _kind), item in zip(table, value.value, strict=False)}
    return Frame(channel, Performative(name, **fields), bytes(octets[end:size]), size)


# --- composite values -----------------------------------------------------------------------------------------------


def source(address: str | None = None, **fields: Any) -> Described:
    """Return a source. Keywords: durable, expiry_policy, timeout, dynamic, dynamic_node_properties, distribution_mode,
    filter, default_outcome, outcomes, capabilities."""
    return _composite(0x28, _SOURCE, {"address": address, **fields})


def target(address: str | None = None, **fields: Any) -> Described:
    """Return a target. Keywords: durable, expiry_policy, timeout, dynamic, dynamic_node_properties, capabilities."""
    return _composite(0x29, _TARGET, {"address": address, **fields})


def coordinator(capabilities: Iterable[str] = ()) -> Described:
    """Return a transaction coordinator target."""
    return Described(ULong(0x30), [Array([Symbol(item) for item in capabilities])] if capabilities else [])


def error(condition: str, description: str | None = None, info: dict[str, Any] | None = None) -> Described:
    """Return an error value."""
    return Described(ULong(0x1D), [Symbol(condition), description, info])


_TERMINUS = (
    ("address", "any"),
    ("durable", "uint"),
    ("expiry_policy", "symbol"),
    ("timeout", "uint"),
    ("dynamic", "boolean"),
    ("dynamic_node_properties", "fields"),
)
_TARGET = (*_TERMINUS, ("capabilities", "symbols"))
_SOURCE = (
    *_TERMINUS,
    ("distribution_mode", "symbol"),
    ("filter", "any"),
    ("default_outcome", "any"),
    ("outcomes", "symbols"),
    ("capabilities", "symbols"),
)


def _composite(descriptor: int, table: tuple[tuple[str, str], ...], given: dict[str, Any]) -> Described:
    unknown = set(given) - {field for field, _kind in table}
    if unknown:
        raise TypeError(f"terminus has no field {sorted(unknown)}")
    values = [_typed(given.get(field), kind) for field, kind in table]
    while values and values[-1] is None:
        values.pop()
    return Described(ULong(descriptor), values)


def terminus(value: Described | None) -> dict[str, Any]:
    """Return the fields of a received source or target by name; an empty dict for null."""
    if value is None:
        return {}
    table = _SOURCE if value.descriptor == 0x28 else _TARGET
    return {field: item for (field, _kind), item in zip(table, value.value, strict=False) if item is not None}


def error_of(value: Described | None) -> tuple[str, str | None] | None:
    """Return (condition, description) of a received error; None without an error."""
    if value is None:
        return None
    fields = [*value.value, None, None]
    return str(fields[0]), fields[1]


# --- delivery states ------------------------------------------------------------------------------------------------

ACCEPTED = Described(ULong(0x24), [])
RELEASED = Described(ULong(0x26), [])
REJECTED = Described(ULong(0x25), [])


def rejected(condition: str, description: str | None = None, info: dict[str, Any] | None = None) -> Described:
    """Return the state rejected with an error."""
    return Described(ULong(0x25), [error(condition, description, info)])


def modified(failed: bool | None = None, undeliverable: bool | None = None, annotations: Any = None) -> Described:
    """Return the state modified. None omits a field."""
    return Described(ULong(0x27), [failed, undeliverable, annotations])


def received(section: int, offset: int) -> Described:
    """Return the non-terminal state received."""
    return Described(ULong(0x23), [UInt(section), ULong(offset)])


STATE_NAMES = {0x23: "received", 0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}


def state_name(state: Described | None) -> str | None:
    """Return `accepted`, `rejected`, ...; the descriptor's text for other states; None without a state."""
    if state is None:
        return None
    return STATE_NAMES.get(state.descriptor, str(state.descriptor))
