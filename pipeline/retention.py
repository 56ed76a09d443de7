"""Retention in landing folders: deletion of segments that all groups have read, or that exceed a limit."""

import heapq
from collections.abc import Iterable, Sequence

from sluice.pipeline.segments import Landing, LandingLog, Segment, consumed_end, now


def retained_from(segments: Sequence[Segment], before: int) -> int:
    """Return the index of the first segment that landed after `before` (ms), as far as its successors confirm.

    A segment cannot have landed later than its successor. A clock that was ahead for a while therefore delays no
    deletion, and the segments that stay have numbers without a hole.
    """
    for index in range(len(segments), 0, -1):
        if segments[index - 1].landed <= before:
            return index
    return 0


def delete_consumed_segments(
    landing: Landing, retention: float, *, at: int | None = None, dry: bool = False, forgotten: Iterable[str] = ()
) -> list[Segment]:
    """Delete segments that all groups have read and that landed over `retention` seconds ago; return them.

    The last segment of a log stays, because numbers continue from it. dry: delete nothing. forgotten: names of groups
    that do not count.
    """
    groups = [group for group in landing.groups() if group.name not in forgotten]
    at = now() if at is None else at
    deleted = []
    for log in landing.logs():
        ready = _expired_segments(landing, log, consumed_end(log, groups), at - int(retention * 1000), at)
        if not dry:
            landing.delete(ready)
        deleted += ready
    return deleted


def _expired_segments(landing: Landing, log: LandingLog, end: int, before: int, at: int) -> list[Segment]:
    """Return the oldest segments before number `end`, up to the last one that landed until `before` (ms).

    The last segment of the log is not among them. The search ends at a segment that landed later, because those behind
    it landed later as well. A landing time after `at`, the present, shows a clock that was ahead, and does not end it.
    """
    segments: list[Segment] = []
    expired = 0
    for segment in landing.by_number(log.key):
        if segment.end > end or before < segment.landed <= at:
            break
        segments.append(segment)
        if segment.landed <= before:
            expired = len(segments)
    else:
        expired = min(expired, len(segments) - 1) if segments else 0
    return segments[:expired]


def delete_beyond(
    landing: Landing, age: float | None, octets: int | None, *, at: int | None = None, dry: bool = False
) -> list[Segment]:
    """Delete the oldest segments, read or not, that landed over `age` seconds ago or exceed `octets`; return them.

    The last segment of a log stays, because numbers continue from it. None: no such limit. dry: delete nothing.
    """
    at = now() if at is None else at
    before = -1 if age is None else at - int(age * 1000)
    logs = [landing.listing(log.key).segments for log in landing.logs()]
    left = sum(segment.octets for segments in logs for segment in segments)
    spared = {segments[-1] for segments in logs if segments}
    deleted = [each for segments in logs for each in segments[: retained_from(segments, before)] if each not in spared]
    left -= sum(each.octets for each in deleted)
    if octets is not None:
        gone = set(deleted)
        rest = [[each for each in segments if each not in gone | spared] for segments in logs]
        for segment in heapq.merge(*rest, key=lambda each: each.landed):  # keeps the order of each log
            if left <= octets:
                break
            deleted.append(segment)
            left -= segment.octets
    if not dry:
        landing.delete(deleted)
    return deleted
