"""Places for audit lines. A thread writes; nothing here touches the event loop."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Written(NamedTuple):
    """How many of the lines are written, whole and in order, and why no more (None: all are). `warning`: another
    problem, which cost no line."""

    lines: int
    fault: str | None = None
    warning: str | None = None


class AuditOutput(Protocol):
    """A place for lines. Owner: its thread, once that runs."""

    def write(self, lines: Sequence[bytes]) -> Written:
        """Write lines, each with its end."""

    def reopen(self) -> str | None:
        """Begin anew where somebody has moved what is there; return why that fails, and the present place stays."""

    def close(self) -> None:
        """Give up the descriptor."""
