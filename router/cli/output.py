"""Output of the tools: text that is harmless to terminals, whoever chose it.

Clients choose names of containers, links and addresses, routers choose texts of errors. `escape_output` replaces the
standard streams of a tool by ones that escape everything that is not printable, so that no tool can forget it. Ends of
lines pass there, because a tool writes whole lines; `one_line` escapes them too, in texts within a line.
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any, Final, TextIO, cast

from router.log.text import safe

_DELETE: Final = "\x7f"  # the only control character that JSON does not escape


class EscapingStream:
    """A text stream in front of another one, with escapes for what is not printable or not in the encoding."""

    def __init__(self, stream: TextIO) -> None:
        self.stream: Final = stream

    def write(self, text: str) -> int:
        """Write text; ends of lines stay. Return its length."""
        self.stream.write(_encodable(printable(text), self.stream))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def printable(text: str) -> str:
    """Return text with escapes for all that is not printable, except ends of lines and tabs."""
    return text if text.isprintable() else "\n".join(safe(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """Return text with escapes for all that is not printable, as a part of a line."""
    return text if text.isprintable() else safe(text).replace("\t", "\\t")


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON of printable ASCII characters and ends of lines."""
    return json.dumps(value, indent=indent, default=str).replace(_DELETE, f"\\u{ord(_DELETE):04x}")


@contextlib.contextmanager
def escape_output() -> Iterator[None]:
    """Put EscapingStreams in place of the standard output and error, unless they are such."""
    with contextlib.redirect_stdout(_escaping(sys.stdout)), contextlib.redirect_stderr(_escaping(sys.stderr)):
        yield


def raw_output() -> TextIO:
    """Return the standard output for a tool that steers the terminal itself, and escapes texts by itself."""
    return sys.stdout.stream if isinstance(sys.stdout, EscapingStream) else sys.stdout


def _escaping(stream: TextIO | None) -> TextIO | None:
    """Return the stream with escapes; None is a stream that was closed before the start."""
    return stream if stream is None or isinstance(stream, EscapingStream) else cast(TextIO, EscapingStream(stream))


def _encodable(text: str, stream: TextIO) -> str:
    if text.isascii():
        return text
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
