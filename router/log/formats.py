"""Formats of log lines: the text of Dispatch 1.19, JSON, and logfmt.

In JSON and logfmt each entry is one line, also the traceback of an internal error, and the timestamp is RFC 3339 in
UTC with microseconds, whatever `timestampFormat` says: programs read these lines.
"""

import re
from collections.abc import Callable
from typing import Final

from sluice.router import json_codec
from sluice.router.escapes import CONTINUED
from sluice.router.log.entry import LogEntry

TEXT: Final = "text"  # the default
NEWLINE: Final = "\n"
RFC_3339: Final = "%Y-%m-%dT%H:%M:%S.%%06luZ"  # pattern of timestamps of structured lines, for UTC

# Format an entry. timestamp: None to leave it out. source: whether the line names the calling code.
LineFormat = Callable[[LogEntry, str | None, bool], str]

_CONNECTION: Final = re.compile(r"\[C([0-9]{1,18})\](?:\[L([0-9]{1,18})\])?")  # numbers of 64 bits
_BARE: Final = re.compile(r"[^\s\"=\\]+")  # values that logfmt writes without quotes


def whole_text(entry: LogEntry) -> str:
    """Return the text of an entry. A traceback has line ends."""
    return entry.text.replace(CONTINUED, NEWLINE)


def link_numbers(entry: LogEntry) -> tuple[int | None, int | None]:
    """Return the numbers of the connection and the link at the beginning of a text."""
    named = _CONNECTION.match(entry.text)
    if named is None:
        return None, None
    return int(named[1]), None if named[2] is None else int(named[2])


def _text_line(entry: LogEntry, timestamp: str | None, source: bool) -> str:
    line = f"{entry.module} ({entry.level}) {entry.text}"
    if timestamp is not None:
        line = f"{timestamp} {line}"
    if source and entry.file is not None:
        line = f"{line} ({entry.file}:{entry.line})"
    return line


def journal_fields(entry: LogEntry, line: str | None) -> dict[str, bytes]:
    """Return the fields of an entry for systemd's journal, without priority.

    line: the message; None: module, level and text, without a timestamp, because the journal has its own. A traceback
    keeps its line ends.
    """
    text = f"{entry.module} ({entry.level}) {whole_text(entry)}" if line is None else line
    fields: dict[str, str | int | None] = {"MESSAGE": text, "SLUICE_MODULE": entry.module}
    connection, link = link_numbers(entry)
    fields.update(SLUICE_CONNECTION=connection, SLUICE_LINK=link)
    fields.update(CODE_FILE=entry.file, CODE_LINE=entry.line)
    return {name: str(value).encode("utf-8", "backslashreplace") for name, value in fields.items() if value is not None}


def _fields(entry: LogEntry, timestamp: str | None, source: bool) -> dict[str, str | int | None]:
    fields: dict[str, str | int | None] = {} if timestamp is None else {"time": timestamp}
    fields.update(level=entry.level, module=entry.module, message=whole_text(entry))
    for name, number in zip(("connection", "link"), link_numbers(entry), strict=True):
        if number is not None:
            fields[name] = number
    if source and entry.file is not None:
        fields.update(file=entry.file, line=entry.line)
    return fields


def _json_line(entry: LogEntry, timestamp: str | None, source: bool) -> str:
    return json_codec.encode(_fields(entry, timestamp, source)).decode()


def _logfmt_line(entry: LogEntry, timestamp: str | None, source: bool) -> str:
    return " ".join(f"{name}={_logfmt_value(value)}" for name, value in _fields(entry, timestamp, source).items())


def _logfmt_value(value: str | int | None) -> str:
    text = str(value)
    return text if _BARE.fullmatch(text) else json_codec.encode(text).decode()


FORMATS: Final[dict[str, LineFormat]] = {TEXT: _text_line, "json": _json_line, "logfmt": _logfmt_line}
