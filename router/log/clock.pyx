"""Timestamps of log lines."""

import re
import time
from typing import Final

DEFAULT_FORMAT: Final = "%Y-%m-%d %H:%M:%S.%%06lu %z"
_MICROSECONDS: Final = re.compile(r"%(0?)([0-9]{0,2})l{0,2}[diu]")


class TimestampFormatter:
    """Timestamp formatter. It calls strftime once a second, and inserts the microseconds for each timestamp."""

    def __init__(self, pattern: str | None, utc: bool) -> None:
        self._pattern = DEFAULT_FORMAT if pattern is None else pattern
        self._broken_down = time.gmtime if utc else time.localtime
        self._second = -1
        self._before = self._after = ""
        self._digits: str | None = None

    def stamp(self, nanoseconds: int) -> str:
        """Return the timestamp of a time since the epoch. Raises ValueError for an invalid format."""
        second, rest = divmod(nanoseconds, 1_000_000_000)
        if second != self._second:
            self._renew(second)
        if self._digits is None:
            return self._before
        return f"{self._before}{rest // 1000:{self._digits}}{self._after}"

    def _renew(self, second: int) -> None:
        text = time.strftime(self._pattern, self._broken_down(second))
        match = _MICROSECONDS.search(text)
        if match is None:
            self._before, self._digits = text.replace("%%", "%"), None
        else:
            self._before = text[: match.start()].replace("%%", "%")
            self._after = text[match.end() :].replace("%%", "%")
            self._digits = match.group(1) + match.group(2)
        self._second = second
