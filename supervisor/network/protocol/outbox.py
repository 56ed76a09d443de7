"""Pending outputs of the engine."""

from typing import Final

from sluice.router.log import CRITICAL, DEBUG, ERROR, INFO, NOTICE, WARNING
from sluice.supervisor.network.protocol.outputs import Change, EngineLogLine, EngineSend

_LONGEST: Final = 2047  # characters of a remembered text, more than a log line has
_MOST_LINES: Final = 1000  # limit of pending lines; a further line reports that the rest was dropped


class EngineOutbox:
    """Outputs until the owner takes them. Owner: the engine; its modules write to it."""

    def __init__(self) -> None:
        self._sends: list[EngineSend] = []
        self._changes: list[Change] = []
        self._lines: list[EngineLogLine] = []
        self._logged: set[str] = set()

    def send(self, link: int, octets: bytes) -> None:
        self._sends.append(EngineSend(link, octets))

    def change(self, change: Change) -> None:
        self._changes.append(change)

    def log(self, module: str, level: int, text: str, kind: str | None = None) -> None:
        """Add a log line. kind: of a failure that may repeat, see `Log.repeated`."""
        if len(self._lines) < _MOST_LINES:
            self._lines.append(EngineLogLine(module, level, text, kind))
        elif len(self._lines) == _MOST_LINES:
            text = "Further log lines of the routing protocol were dropped, because there were too many"
            self._lines.append(EngineLogLine("ROUTER", WARNING, text))

    def log_once(self, module: str, level: int, text: str) -> None:
        """Log a text once. Of texts that peers can vary, only the first thousand are logged."""
        text = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
        if text not in self._logged and len(self._logged) < _MOST_LINES:
            self._logged.add(text)
            self.log(module, level, text)

    def take_sends(self) -> list[EngineSend]:
        found, self._sends = self._sends, []
        return found

    def take_changes(self) -> list[Change]:
        found, self._changes = self._changes, []
        return found

    def take_lines(self) -> list[EngineLogLine]:
        found, self._lines = self._lines, []
        return found


__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "NOTICE", "WARNING", "EngineOutbox"]
