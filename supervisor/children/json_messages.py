"""Messages between the supervisor and a child process that are JSON objects, in the framing of framing.py."""

from typing import Any

from sluice.router import json_codec
from sluice.supervisor.children.framing import MessageError

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """Encode a message."""
    return json_codec.encode(message)


def decode(content: bytes) -> Message:
    """Decode a message. Raises MessageError."""
    try:
        message = json_codec.decode(content)
    except ValueError as error:
        raise MessageError(str(error)) from None
    if not isinstance(message, dict):
        raise MessageError("not an object")
    return message
