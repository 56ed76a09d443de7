"""Encoding and decoding of control messages; errors name message and field."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.json import Decoder, Encoder

from router.control.handover import MOST_READ_BEFORE, ForkAnswer, ForkRequest, Handover, Moved, PageRequest
from router.control.message import Message
from router.control.messages import Control, Delta, Event, Local, Order, Send
from router.control.names import DELTA_TOPIC
from router.control.ops import Op

T = TypeVar("T")
M = TypeVar("M", bound=Message)

_SENT_BACK: Final = "message with a descriptor of a worker"
_WITH_OCTETS: Final = (Local, Send, Control)  # messages that octets belong to

# How a hand-over begins.
_HANDOVER_NUMBER: Final = re.compile(rb'\{"conn":([0-9]{1,19}),')


class ControlError(ValueError):
    """Octets that are not a control message, or a message that cannot be encoded. The text says why."""


def _text(value: object) -> str:
    """Encode types unknown to the encoder: text types of AMQP. Raises NotImplementedError."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be encoded")


_encoder: Final = Encoder(enc_hook=_text)
_events: Final[Decoder[list[Event]]] = Decoder(list[Event])
_orders: Final[Decoder[list[Order]]] = Decoder(list[Order])
_delta: Final = Decoder(Delta)
_handover: Final = Decoder(Handover)
_sent_back: Final[Decoder[Moved | PageRequest]] = Decoder(Moved | PageRequest)
_fork_request: Final = Decoder(ForkRequest)
_fork_answer: Final = Decoder(ForkAnswer)


def encode(messages: Sequence[Message]) -> bytes:
    """One part of the control channel: a list of messages. Raises ControlError."""
    return _encode(list(messages), "control messages")


def decode_events(data: bytes) -> list[Event]:
    """The messages of one part from a worker. Raises ControlError."""
    return _decode(_events, data, "events of a worker")


def decode_orders(data: bytes) -> list[Order]:
    """The messages of one part from the supervisor. Raises ControlError."""
    return _decode(_orders, data, "orders of the supervisor")


def join_octets(messages: Sequence[M], octets: Sequence[bytes]) -> list[tuple[M, bytes | None]]:
    """The messages of a part with the octets that came behind it: those of the first one that has any come first.

    None: a message has none, or none came at all. Raises ControlError when others came than the messages have: octets
    of one message must not be taken for those of another.
    """
    if not octets:
        return [(message, None) for message in messages]
    takers = sum(isinstance(message, _WITH_OCTETS) for message in messages)
    if takers != len(octets):
        raise ControlError(f"octets of {len(octets)} messages came with {takers} that have any")
    left = iter(octets)
    return [(message, next(left) if isinstance(message, _WITH_OCTETS) else None) for message in messages]


def encode_delta(epoch: int, ops: list[Op]) -> bytes:
    """A published delta, its topic included. Raises ControlError."""
    return DELTA_TOPIC + _encode(Delta(epoch, ops), "delta")


def decode_delta(data: bytes) -> Delta:
    """The delta that encode_delta made. Raises ControlError."""
    if not data.startswith(DELTA_TOPIC):
        raise ControlError(f"delta: topic is {data[:8]!r}, expected {DELTA_TOPIC!r}")
    return _decode(_delta, memoryview(data)[len(DELTA_TOPIC) :], "delta")


def encode_handover(message: Handover) -> bytes:
    """The message that goes with the descriptor of a connection. Raises ControlError."""
    _check_octets(message)
    return _encode(message, "hand-over")


def decode_handover(data: bytes) -> Handover:
    """The hand-over that encode_handover made. Raises ControlError."""
    message = _decode(_handover, data, "hand-over")
    _check_octets(message)
    return message


def _check_octets(message: Handover | Moved) -> None:
    if len(message.octets) > MOST_READ_BEFORE:
        raise ControlError(f"hand-over: {len(message.octets)} octets that were read before, at most {MOST_READ_BEFORE}")


def handover_number(data: bytes) -> int | None:
    """The connection number in an invalid hand-over."""
    found = _HANDOVER_NUMBER.match(data)
    return None if found is None else int(found.group(1))


def encode_sent_back(message: Moved | PageRequest) -> bytes:
    """The message that goes with a descriptor from a worker. Raises ControlError."""
    if isinstance(message, Moved):
        _check_octets(message)
    return _encode(message, _SENT_BACK)


def decode_sent_back(data: bytes) -> Moved | PageRequest:
    """The message that encode_sent_back made. Raises ControlError."""
    message = _decode(_sent_back, data, _SENT_BACK)
    if isinstance(message, Moved):
        _check_octets(message)
    return message


def encode_fork(message: ForkRequest | ForkAnswer) -> bytes:
    """A message between supervisor and zygote. Raises ControlError."""
    return _encode(message, "fork message")


def decode_fork_request(data: bytes) -> ForkRequest:
    """At the zygote. Raises ControlError."""
    return _decode(_fork_request, data, "fork request")


def decode_fork_answer(data: bytes) -> ForkAnswer:
    """At the supervisor. Raises ControlError."""
    return _decode(_fork_answer, data, "fork answer")


def _decode(decoder: Decoder[T], data: bytes | memoryview, what: str) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise ControlError(f"{what}: {error}{_name_at(data, str(error))}") from error


def _name_at(data: bytes | memoryview, text: str) -> str:
    """The type of the message with an error: the decoder only has its index."""
    place = re.search(r"at `\$\[(\d+)\]", text)
    if place is None:
        return ""
    found = msgspec.json.decode(data)[int(place[1])]
    return f" (message {found.get('t')!r})" if isinstance(found, dict) else ""


def _encode(value: object, what: str) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # Text of a peer that JSON cannot represent must not block other messages.
        return _encoder.encode(_plain(msgspec.to_builtins(value, enc_hook=_text)))
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise ControlError(f"{what}: {error}") from error


def _plain(value: Any) -> Any:
    """The value without halves of surrogate pairs."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
