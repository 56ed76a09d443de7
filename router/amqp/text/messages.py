"""Messages as lines of text, for log module MESSAGE (management.md 4.7): `Message{to="a1", subject="sub"}`."""

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from sluice.router.amqp.text.trace_context import TRACEPARENT
from sluice.router.amqp.text.values import ShortError, value_text

# Names of properties (AMQP 1.0 part 3, 3.2.4) in the listener attribute messageLoggingComponents.
PROPERTIES: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
APPLICATION_PROPERTIES: Final = "app-properties"
COMPONENTS: Final = (*PROPERTIES, APPLICATION_PROPERTIES)
ADDED: Final = (TRACEPARENT,)  # names that Dispatch does not have, and that `all` does not include
ALL: Final = "all"
NONE: Final = "none"

_SECTIONS: Final = (0x70, 0x71, 0x72, 0x73, 0x74)  # header … application-properties
_PROPERTIES_SECTION: Final = 0x73
_APPLICATION_SECTION: Final = 0x74
_TIMESTAMP: Final = 0x83
_EPOCH: Final = datetime(1970, 1, 1)


@lru_cache(maxsize=64)
def components(text: str) -> frozenset[str]:
    """Return the parts that a value of messageLoggingComponents names. Unknown names are ignored."""
    names = {name.strip() for name in text.split(",")}
    if ALL in names:
        return frozenset(COMPONENTS)
    return frozenset(names & {*COMPONENTS, *ADDED})


def message_text(data: bytes, wanted: Collection[str]) -> str:
    """Return the wanted parts of a message, as far as `data`, its first octets, contain them."""
    parts: list[str] = []
    at = 0
    while data[at : at + 2] == b"\x00\x53" and at + 3 < len(data) and data[at + 2] in _SECTIONS:
        section = data[at + 2]
        try:
            if section == _PROPERTIES_SECTION:
                at = _properties(data, at + 3, wanted, parts)
            else:
                text, at = value_text(data, at + 3, {})
                if section == _APPLICATION_SECTION and APPLICATION_PROPERTIES in wanted:
                    parts.append(f"{APPLICATION_PROPERTIES}={text}")
        except ShortError:
            break
    return f"Message{{{', '.join(parts)}}}"


def _properties(data: bytes, at: int, wanted: Collection[str], parts: list[str]) -> int:
    """Append the wanted properties of the list at `at` to `parts`; return the end of the list. Raises ShortError."""
    code = data[at]
    if code == 0x45:
        return at + 1
    if code not in (0xC0, 0xD0):
        raise ShortError("")
    width = 1 if code == 0xC0 else 4
    end = at + 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "big")
    count = int.from_bytes(data[at + 1 + width : at + 1 + 2 * width], "big")
    at += 1 + 2 * width
    for name in PROPERTIES[:count]:
        start = at
        text, at = value_text(data, at, {})
        if data[start] == _TIMESTAMP:
            text = _date(int(text))
        if name in wanted and data[start] != 0x40:
            parts.append(f"{name}={text}")
    return end


def _date(milliseconds: int) -> str:
    """Format a time in UTC as Dispatch does. A time whose year does not have four digits is shown as its number."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return f'"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03} +0000"'
