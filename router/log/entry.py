"""Entry of the log: one line's parts, before a format turns them into text."""

from typing import NamedTuple


class LogEntry(NamedTuple):
    """Kept line. `seconds` counts from the epoch, `nanoseconds` from that second. `file` and `line` are those of the
    calling code, if known.
    """

    module: str
    level: str
    text: str
    file: str | None
    line: int | None
    seconds: int
    nanoseconds: int = 0

    def as_list(self) -> list[str | int | None]:
        """Return the line in the order of the management operation GET-LOG, whose times are whole seconds."""
        return list(self[:6])
