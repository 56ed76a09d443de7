"""Interface of audit outputs. They are used by a writing thread and do not touch the event loop."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class WriteResult(NamedTuple):
    """Result of writing lines to an output."""

    lines: int  # number of lines that were written completely, in order
    fault: str | None = None  # reason for not writing the others; None: all lines were written
    warning: str | None = None  # another problem, which has not cost a line


class AuditOutput(Protocol):
    """Output for audit lines. Owner: its writing thread, once that runs."""

    def write(self, lines: Sequence[bytes]) -> WriteResult:
        """Write lines, each with its end of line."""

    def reopen(self) -> str | None:
        """Open the output again, because the present one may have been renamed.

        On failure return the reason; the present output stays in use.
        """

    def close(self) -> None:
        """Close the descriptor."""
