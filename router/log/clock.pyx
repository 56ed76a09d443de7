"""Timestamps of log lines."""
from libc.stdint cimport int64_t

import re
import time

DEFAULT_FORMAT = "%Y-%m-%d %H:%M:%S.%%06lu %z"
_MICROSECONDS = re.compile(r"%(0?)([0-9]{0,2})l{0,2}[diu]")

cdef enum:
    SECOND_NS = 1000000000
    MICROSECOND_NS = 1000


cdef class TimestampFormatter:
    """Timestamp formatter. It calls strftime once a second, and inserts the microseconds for each timestamp."""

    def __init__(self, pattern, bint utc):
        """pattern: of strftime, with a conversion of printf after %% for the microseconds; None: the default."""
        self.pattern = DEFAULT_FORMAT if pattern is None else pattern
        self.broken_down = time.gmtime if utc else time.localtime
        self.second = -1
        self.before = self.after = ""

    def stamp(self, int64_t nanoseconds):
        """Return the timestamp of a time since the epoch. Raises ValueError for an invalid format."""
        cdef long microseconds = <long>(nanoseconds % SECOND_NS // MICROSECOND_NS)
        if self.prepare(nanoseconds):
            return f"{self.before}{microseconds:06d}{self.after}"
        if self.digits is None:
            return self.before
        return f"{self.before}{format(microseconds, self.digits)}{self.after}"

    cdef bint prepare(self, int64_t nanoseconds) except -1:
        """Update `before` and `after` for a time since the epoch. Returns `usual`: the microseconds go between them, as
        `put_microseconds` writes them."""
        cdef int64_t second = nanoseconds // SECOND_NS
        if second != self.second:
            self.renew(second)
        return self.usual

    cdef int renew(self, int64_t second) except -1:
        cdef str text = time.strftime(self.pattern, self.broken_down(second))
        match = _MICROSECONDS.search(text)
        if match is None:
            self.before, self.digits = text.replace("%%", "%"), None
        else:
            self.before = text[:match.start()].replace("%%", "%")
            self.after = text[match.end():].replace("%%", "%")
            self.digits = match.group(1) + match.group(2)
        self.usual = self.digits == "06"
        self.second = second
        return 0
