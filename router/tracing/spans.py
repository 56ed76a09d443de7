"""Spans as values: the reader of the octets that workers send."""

import struct
from typing import Any, Final, NamedTuple

#: Layout of `Span`, tracer.pxd.
_SPAN: Final = struct.Struct("=16s8s8s6Q4BI168s")
RECEIVE: Final = 1
SEND: Final = 2
CROSS: Final = 3
_KINDS: Final = {RECEIVE: "receive", SEND: "send", CROSS: "cross"}
_SETTLED, _QUEUED, _DROPPED, _CUT, _OVERDUE = 1, 2, 4, 8, 16
_NO_WORKER: Final = 255
_NO_PARENT: Final = bytes(8)
_OUTCOMES: Final = {
    0x24: "accepted",
    0x25: "rejected",
    0x26: "released",
    0x27: "modified",
    0x33: "declared",
    0x34: "transactional",
}


class SpanError(ValueError):
    """Octets that are no spans. Its text says why."""


class DeliverySpan(NamedTuple):
    """Span of a delivery or of a copy at one router. Times in ns since the Unix epoch."""

    trace_id: str  # hexadecimal, as is every id
    span_id: str
    parent_id: str | None  # None: the trace begins here
    # "receive": a delivery, from its arrival to its settlement; "cross": its way from the worker at which it arrived to
    # another one; "send": a copy for one consumer
    kind: str
    worker: int
    from_worker: int | None  # worker at which the delivery arrived: of "cross", and of "send" if it is another one
    began: int
    sent: int | None  # of a copy: when its first octet was written; None: never
    ended: int
    octets: int  # of the message, as far as it had arrived when the span began
    link: int  # identity in management; 0: unknown, or "cross"
    connection: int  # of "cross": the producer's
    address: str
    outcome: str  # state, "presettled", "settled" without a state, "dropped", "unsettled" if it goes on, or "crossed"
    queued: bool  # the copy waited in the queue of its consumer

    def as_map(self) -> dict[str, str | int | bool | None]:
        """Return the span as a map of plain values."""
        return self._asdict()


def read_spans(octets: bytes, worker: int, offset_ns: int) -> list[DeliverySpan]:
    """Decode the spans of a worker. offset_ns: from its clock to the time since the Unix epoch. Raises SpanError."""
    if len(octets) % _SPAN.size:
        raise SpanError(f"{len(octets)} octets are no multiple of {_SPAN.size}, the size of a span")
    return [_span(fields, worker, offset_ns) for fields in _SPAN.iter_unpack(octets)]


def _span(fields: tuple[Any, ...], worker: int, offset_ns: int) -> DeliverySpan:
    (trace_id, span_id, parent_id, began, sent, ended, octets, link, connection, kind, outcome, flags, from_worker,
     size, address) = fields  # fmt: skip
    if kind not in _KINDS:
        raise SpanError(f"{kind} is no kind of span")
    return DeliverySpan(
        trace_id=trace_id.hex(),
        span_id=span_id.hex(),
        parent_id=None if parent_id == _NO_PARENT else parent_id.hex(),
        kind=_KINDS[kind],
        worker=worker,
        from_worker=None if from_worker == _NO_WORKER or (from_worker == worker and kind != CROSS) else from_worker,
        began=began + offset_ns,
        sent=sent + offset_ns if sent else None,
        ended=ended + offset_ns,
        octets=octets,
        link=link,
        connection=connection,
        address=address[:size].decode("utf-8", "replace") + ("…" if flags & _CUT else ""),
        outcome="crossed" if kind == CROSS else _outcome(outcome, flags),
        queued=bool(flags & _QUEUED),
    )


def _outcome(state: int, flags: int) -> str:
    if state:
        return _OUTCOMES.get(state, f"0x{state:02x}")
    if flags & _OVERDUE:
        return "unsettled"
    if flags & _DROPPED:
        return "dropped"
    return "presettled" if flags & _SETTLED else "settled"
