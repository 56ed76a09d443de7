"""Encoding and decoding of control messages. Errors name the message and the field."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.json import Decoder, Encoder

from sluice.router.control.handover import MOST_READ_BEFORE, ForkAnswer, ForkRequest, Handover, PageRequest
from sluice.router.control.message import ControlMessage
from sluice.router.control.messages import Control, Delta, Event, Local, Order, Send
from sluice.router.control.names import DELTA_TOPIC
from sluice.router.control.ops import Op

T = TypeVar("T")
M = TypeVar("M", bound=ControlMessage)

_WITH_OCTETS: Final = (Local, Send, Control)  # messages with octets in a further part

# Start of an encoded hand-over.
_HANDOVER_NUMBER: Final = re.compile(rb'\{"conn":([0-9]{1,19}),')


class ControlError(ValueError):
    """Error for octets that are not a control message, or a message that cannot be encoded. Its text is the reason."""


def _text(value: object) -> str:
    """Convert AMQP text types, which the encoder does not know. Raises NotImplementedError for other types."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be encoded")


_encoder: Final = Encoder(enc_hook=_text)
_events: Final[Decoder[list[Event]]] = Decoder(list[Event])
_orders: Final[Decoder[list[Order]]] = Decoder(list[Order])
_delta: Final = Decoder(Delta)
_handover: Final = Decoder(Handover)
_page_request: Final = Decoder(PageRequest)
_fork_request: Final = Decoder(ForkRequest)
_fork_answer: Final = Decoder(ForkAnswer)


def encode(messages: Sequence[ControlMessage]) -> bytes:
    """Encode a list of messages as one part of a control frame. Raises ControlError."""
    return _encode(list(messages), "control messages")


def decode_events(data: bytes) -> list[Event]:
    """Decode the messages in one part from a worker. Raises ControlError."""
    return _decode(_events, data, "events of a worker")


def decode_orders(data: bytes) -> list[Order]:
    """Decode the messages in one part from the supervisor. Raises ControlError."""
    return _decode(_orders, data, "orders of the supervisor")


def join_octets(messages: Sequence[M], octets: Sequence[bytes]) -> list[tuple[M, bytes | None]]:
    """Pair messages with their octets, the further parts of the frame, which are in the order of the messages.

    A message without octets is paired with None; so are all messages if there are no further parts. Raises ControlError
    if the number of parts does not fit, since the octets of one message must not be taken for those of another.
    """
    if not octets:
        return [(message, None) for message in messages]
    takers = sum(isinstance(message, _WITH_OCTETS) for message in messages)
    if takers != len(octets):
        raise ControlError(f"octets of {len(octets)} messages came for {takers} messages")
    left = iter(octets)
    return [(message, next(left) if isinstance(message, _WITH_OCTETS) else None) for message in messages]


def encode_delta(epoch: int, ops: list[Op]) -> bytes:
    """Encode a delta for publication, including its topic. Raises ControlError."""
    return DELTA_TOPIC + _encode(Delta(epoch, ops), "delta")


def decode_delta(data: bytes) -> Delta:
    """Decode the result of `encode_delta`. Raises ControlError."""
    if not data.startswith(DELTA_TOPIC):
        raise ControlError(f"delta: topic is {data[:8]!r}, expected {DELTA_TOPIC!r}")
    return _decode(_delta, memoryview(data)[len(DELTA_TOPIC) :], "delta")


def encode_handover(message: Handover) -> bytes:
    """Encode the message that accompanies the descriptor of a connection. Raises ControlError."""
    _check_octets(message)
    return _encode(message, "hand-over")


def decode_handover(data: bytes) -> Handover:
    """Decode the result of `encode_handover`. Raises ControlError."""
    message = _decode(_handover, data, "hand-over")
    _check_octets(message)
    return message


def _check_octets(message: Handover) -> None:
    if len(message.octets) > MOST_READ_BEFORE:
        raise ControlError(
            f"hand-over: {len(message.octets)} octets were already read from the connection, "
            f"and at most {MOST_READ_BEFORE} are allowed"
        )


def handover_number(data: bytes) -> int | None:
    """Return the connection number in an invalid hand-over, or None."""
    found = _HANDOVER_NUMBER.match(data)
    return None if found is None else int(found.group(1))


def encode_page_request(message: PageRequest) -> bytes:
    """Encode the message that accompanies a descriptor from a worker. Raises ControlError."""
    return _encode(message, "page request")


def decode_page_request(data: bytes) -> PageRequest:
    """Decode the result of `encode_page_request`. Raises ControlError."""
    return _decode(_page_request, data, "page request")


def encode_fork(message: ForkRequest | ForkAnswer) -> bytes:
    """Encode a message between supervisor and zygote. Raises ControlError."""
    return _encode(message, "fork message")


def decode_fork_request(data: bytes) -> ForkRequest:
    """Decode a request to the zygote. Raises ControlError."""
    return _decode(_fork_request, data, "fork request")


def decode_fork_answer(data: bytes) -> ForkAnswer:
    """Decode an answer of the zygote. Raises ControlError."""
    return _decode(_fork_answer, data, "fork answer")


def _decode(decoder: Decoder[T], data: bytes | memoryview, what: str) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise ControlError(f"{what}: {error}{_name_at(data, str(error))}") from error


def _name_at(data: bytes | memoryview, text: str) -> str:
    """Return the type of the invalid message as text. The decoder's error contains only its index."""
    place = re.search(r"at `\$\[(\d+)\]", text)
    if place is None:
        return ""
    found = msgspec.json.decode(data)[int(place[1])]
    return f" (message {found.get('t')!r})" if isinstance(found, dict) else ""


def _encode(value: object, what: str) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # JSON cannot represent some text, which may come from a peer. It must not block the other messages.
        return _encoder.encode(_plain(msgspec.to_builtins(value, enc_hook=_text)))
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise ControlError(f"{what}: {error}") from error


def _plain(value: Any) -> Any:
    """Return the value with unpaired surrogates in texts written as escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
