"""Trace context of a message (W3C Trace Context; OpenTelemetry puts it into AMQP messages as `traceparent`).

The context is part of the message, in its message annotations or application properties. So it travels with the
delivery everywhere: between workers, over links to other routers, including those of Dispatch 1.19, and over link
routes. A delivery has no state for it. See docs/decisions/0027-trace-context.md.
"""

import re
from typing import Final, NamedTuple

from sluice.router.amqp.text.values import ShortError, value_text

TRACEPARENT: Final = "traceparent"

_SECTIONS: Final = (0x70, 0x71, 0x72, 0x73, 0x74)  # header … application-properties
_HOLDERS: Final = (0x72, 0x74)
# Key and value, as a symbol or a string, in version 00. Later versions begin in the same way.
_FIELD: Final = re.compile(
    rb"[\xa1\xa3]\x0btraceparent\xa1.([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.DOTALL
)


class TraceContext(NamedTuple):
    """Trace of a message, and the span that sent it; both in hexadecimal digits."""

    version: str
    trace_id: str
    parent_id: str
    flags: str

    def __str__(self) -> str:
        return "-".join(self)


def trace_context(data: bytes) -> TraceContext | None:
    """Return the context of a message whose first octets are `data`; None: no context, or an invalid one."""
    at = 0
    while data[at : at + 2] == b"\x00\x53" and at + 3 < len(data) and data[at + 2] in _SECTIONS:
        begin, section = at, data[at + 2]
        try:
            _, at = value_text(data, at + 3, {})
        except ShortError:
            return None
        found = _FIELD.search(data, begin, at) if section in _HOLDERS else None
        if found is not None:
            context = TraceContext(*(part.decode("ascii") for part in found.groups()))
            valid = context.version != "ff" and int(context.trace_id, 16) and int(context.parent_id, 16)
            return context if valid else None
    return None
