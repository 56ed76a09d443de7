"""Segments of logs that a stream has not read, kept between its triggers, and their order in batches.

Each trigger lists only the folder of the last known segment of a log. The cost of a trigger therefore depends neither
on the segments that the stream has read nor on its backlog. If that folder has no new segment, the folders behind it
are looked for from time to time: a lander numbers without gaps, so segments there mean that others are missing.
"""

import heapq
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile

from sluice.pipeline.segments import MOST, Landing, Listing, Segment, clip, folder_end

UNLIMITED = MOST
#: Seconds between two searches for segments behind the folder of the last one, in a log without new segments. A hole
#: that reaches to the end of a folder shows so much later.
LATER_EVERY = 30.0
#: Unread segments of a log above which their merged files are looked for, every LATER_EVERY seconds.
FAR_BEHIND = 100


class UnreadLog:
    """Segments of one log that a stream has not read."""

    def __init__(self, key: str, first: int | None = None) -> None:
        self.key = key
        #: Segments up to the first hole, by number.
        self.readable: deque[Segment] = deque()
        #: Segments behind the hole, by number.
        self.hidden: list[Segment] = []
        #: Number after the last readable segment, which is the hole if `hidden` has segments.
        self.end = first or 0
        self.rows = self.octets = 0  # sums of `readable`
        #: Number of updates that did not find the last known segment: while it is equal, the log was not made anew.
        self.breaks = 0
        self._last: Segment | None = None  # last one that became readable, None if that is not known
        self._later_at = 0.0  # time of the next search behind the folder of `_last` (monotonic)
        self._merged_at = 0.0  # time of the next search for merged files (monotonic)
        self._first = first

    def update(self, landing: Landing, first: int | None) -> bool:
        """Drop segments before number `first`, and add new ones. Return False if the log ends before `first`.

        first: next segment of the stream, None for the oldest one that exists.
        """
        self._drop_before(first)
        # The last segment that was read stays in its log. If it is missing, the log may be a new one.
        listing = self._list(landing)
        if not listing.segments and self.end:
            listing = landing.listing(self.key)
            if first is not None and listing.end < first:
                self._restart(listing.end)
                return False
            if listing.end < self.end:  # unread segments were deleted
                self._restart(first or 0)
        self.hidden = clip(listing.segments, self.end)
        if first is None and not self.readable:
            self.skip_hole()
        else:
            self._take_hidden()
        if len(self.readable) > FAR_BEHIND and time.monotonic() >= self._merged_at:
            self._merged_at = time.monotonic() + LATER_EVERY
            self._replace_merged(landing)
        return True

    def _list(self, landing: Landing) -> Listing:
        """List the segments from the last known one on.

        On an object store that takes one request, and a second one every LATER_EVERY seconds without new segments.
        """
        last = self._last
        if last is not None and not last.flat and last.file is None and not self.hidden:
            listing = landing.following(last)
            if last in listing.segments:
                if listing.end > self.end or time.monotonic() < self._later_at:
                    return listing
                self._later_at = time.monotonic() + LATER_EVERY
                if not landing.listing(self.key, folder_end(last.number), merged=False).segments:
                    return listing
        listing = landing.listing(self.key, max(self.end - 1, 0))
        self._later_at = self._merged_at = time.monotonic() + LATER_EVERY
        if last is None or last not in listing.segments:
            self.breaks += 1
        return listing

    def _drop_before(self, first: int | None) -> None:
        if self._first is not None and (first is None or first < self._first):  # a stream that begins again
            self._restart(first or 0)
        self._first = first
        while self.readable and first is not None and self.readable[0].number < first:
            segment = self.readable.popleft()
            self._count(segment, -1)
            if segment.end > first:
                self.readable.appendleft(segment.part(first, segment.end))
                self._count(self.readable[0])
        if first is not None and self.end < first:
            self._restart(first)

    def _count(self, segment: Segment, sign: int = 1) -> None:
        self.rows += sign * segment.rows
        self.octets += sign * segment.octets

    def _replace_merged(self, landing: Landing) -> None:
        """Let the readable segments that were merged since they were listed be parts of merged files."""
        kept: deque[Segment] = deque()
        waiting = self.readable
        for part in clip(landing.merged_parts(self.key)[0], waiting[0].number, self.end):
            while waiting and waiting[0].end <= part.number:
                kept.append(waiting.popleft())
            if not waiting or waiting[0].number != part.number:
                continue  # the part begins within another merged file
            replaced = []
            while waiting and waiting[0].end <= part.end:
                replaced.append(waiting.popleft())
            if replaced and replaced[-1].end == part.end:
                replaced = [part]
            kept.extend(replaced)
        kept.extend(waiting)
        self.readable = kept
        self.rows = sum(each.rows for each in kept)
        self.octets = sum(each.octets for each in kept)

    def _restart(self, end: int) -> None:
        self.readable.clear()
        self.hidden = []
        self.end = end
        self._last = None
        self.rows = self.octets = 0

    def _take_hidden(self) -> None:
        """Make the hidden segments before the next hole readable."""
        taken = 0
        for segment in self.hidden:
            if segment.number != self.end:
                break
            self.readable.append(segment)
            self._count(segment)
            self.end = segment.end
            self._last = segment
            taken += 1
        del self.hidden[:taken]

    def skip_hole(self) -> None:
        """Make the segments behind the first hole readable."""
        if self.hidden:
            self.end = self.hidden[0].number
            self._take_hidden()

    def hole_before(self, number: int) -> bool:
        """Return True if a segment is missing and a later one below `number` exists."""
        return bool(self.hidden) and self.hidden[0].number < number

    @property
    def last_end(self) -> int:
        """Number after the last segment of the log, also behind a hole."""
        return self.hidden[-1].end if self.hidden else self.end

    def before(self, number: int) -> Iterator[Segment]:
        """Yield the readable segments before number `number`, of a merged file the part before it."""
        readable = takewhile(lambda segment: segment.number < number, self.readable)
        return (segment.part(segment.number, number) for segment in readable)


def merge_segments(runs: Iterable[Iterable[Segment]], rows: int, octets: int, files: int, landed: int) -> list[Segment]:
    """Return the segments that landed first, in order, while their sums stay within the limits.

    At least one segment is taken, so that a stream always makes progress. Segments of a run keep their order. No
    segment is taken that landed later than the oldest segment left in another run, or after `landed` (ms): a log
    with few segments does not run ahead of a log with many.
    """
    taken: list[Segment] = []
    for segment in heapq.merge(*runs, key=lambda segment: (segment.landed, segment.log)):
        rows -= segment.rows
        octets -= segment.octets
        if segment.landed > landed or (taken and (rows < 0 or octets < 0 or len(taken) >= files)):
            break
        taken.append(segment)
    return taken
