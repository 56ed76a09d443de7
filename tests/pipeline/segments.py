"""Segments with given messages, in the format of landers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.pipeline.segments import Landing, LandingLog, Segment, schema
from sluice.router.client.message import Message

ARRIVED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def land(
    landing: Landing,
    log: LandingLog,
    number: int,
    messages: Sequence[Message | bytes],
    *,
    landed: int = 1_767_323_045_000,
) -> Segment:
    """Publish and return one segment."""
    octets = [each if isinstance(each, bytes) else each.encode() for each in messages]
    rows = len(octets)
    table = pa.table(
        [
            pa.array(octets, pa.binary()),
            pa.array([log.address] * rows, pa.string()),
            pa.array(["link"] * rows, pa.string()),
            pa.nulls(rows, pa.string()),
            pa.array([ARRIVED] * rows, pa.timestamp("us", tz="UTC")),
            pa.array(range(rows), pa.int32()),
        ],
        schema=schema(),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    buffer = sink.getvalue()
    landing.store.make_folder(log.key)
    segment = Segment(log.key, number, landed, rows, buffer.size)
    landing.store.publish(segment.path, buffer)
    return segment


def numbered(first: int, count: int) -> list[Message]:
    """Return messages whose body and id are their number."""
    return [Message(str(n).encode(), message_id=str(n)) for n in range(first, first + count)]
