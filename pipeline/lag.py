"""Lag of readers: segments that a group has not read."""

from collections.abc import Iterable
from typing import NamedTuple

from sluice.pipeline.segments import Segment, clip, now


class ReaderLag(NamedTuple):
    """Sums over unread segments."""

    segments: int = 0
    rows: int = 0
    octets: int = 0
    oldest: int | None = None  # landing time of the oldest segment, ms since 1970

    @property
    def seconds(self) -> float:
        """Age of the oldest segment."""
        return 0.0 if self.oldest is None else max(now() - self.oldest, 0) / 1000

    def __or__(self, other: "ReaderLag") -> "ReaderLag":
        times = [each.oldest for each in (self, other) if each.oldest is not None]
        return ReaderLag(
            self.segments + other.segments,
            self.rows + other.rows,
            self.octets + other.octets,
            min(times, default=None),
        )


def lag_of(segments: Iterable[Segment], first: int) -> ReaderLag:
    """Return the lag of a reader whose next segment has number `first`. segments: of one log, by number."""
    unread = clip(segments, first)
    oldest = unread[0].landed if unread else None
    return ReaderLag(len(unread), sum(each.rows for each in unread), sum(each.octets for each in unread), oldest)
