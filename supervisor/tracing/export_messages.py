"""Messages between the supervisor and the export process: JSON objects.

To the process: `setup` (once), `spans` (the fields of each DeliverySpan). To the supervisor: `exported` with `dropped`
(numbers of spans since the start of the process), `log` with `text`.
"""

from typing import Any, Final

from sluice.router import json_codec
from sluice.supervisor.children.framing import MessageError

MAX_REQUEST: Final = 8 << 20  # octets of a message to the process, and of all that wait for it
MAX_REPORT: Final = 1 << 16  # octets of a message to the supervisor

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
