"""Outputs of the engine that have not been taken yet."""

from typing import Final

from router.log import CRITICAL, DEBUG, ERROR, INFO, NOTICE, WARNING
from supervisor.network.protocol.outputs import Change, LogLine, Send

_LONGEST: Final = 2047  # characters of a text that is remembered, more than a line of the log has
_MOST_LINES: Final = 1000  # kept until they are taken; another line says that the rest was dropped


class Outbox:
    """Owner: the engine; its parts write to it."""

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.changes: list[Change] = []
        self.lines: list[LogLine] = []
        self._logged: set[str] = set()

    def send(self, link: int, octets: bytes) -> None:
        self.sends.append(Send(link, octets))

    def change(self, change: Change) -> None:
        self.changes.append(change)

    def log(self, module: str, level: int, text: str, kind: str | None = None) -> None:
        """kind: of a failure that may come again and again, see `Log.repeated`."""
        if len(self.lines) < _MOST_LINES:
            self.lines.append(LogLine(module, level, text, kind))
        elif len(self.lines) == _MOST_LINES:
            self.lines.append(LogLine("ROUTER", WARNING, "More lines of the routing protocol were dropped here"))

    def log_once(self, module: str, level: int, text: str) -> None:
        """Log a text once; of texts that peers can vary, the first thousand."""
        text = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
        if text not in self._logged and len(self._logged) < _MOST_LINES:
            self._logged.add(text)
            self.log(module, level, text)


__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "NOTICE", "WARNING", "Outbox"]
