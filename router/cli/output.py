"""Escaping of the tools' output, so that no text can control the terminal.

Names of containers, links and addresses come from clients, error texts from routers. `escape_output` replaces the
standard streams of a tool by streams that escape all unprintable characters, so no tool can omit it. Line ends pass
these streams, because tools write whole lines. `one_line` escapes line ends, too, for texts within a line.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Final, TextIO, cast

from sluice.router import json_codec
from sluice.router.escapes import escape_unprintable

_DELETE: Final = "\x7f"  # the only control character that JSON does not escape


class EscapingStream:
    """Text stream that writes to another stream and escapes unprintable or unencodable characters."""

    def __init__(self, stream: TextIO) -> None:
        self.stream: Final = stream

    def write(self, text: str) -> int:
        """Write text without escaping its line ends. Return its length."""
        self.stream.write(encodable(printable(text), self.stream))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def printable(text: str) -> str:
    """Return text with all unprintable characters escaped, except line ends and tabs."""
    return text if text.isprintable() else "\n".join(escape_unprintable(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """Return text with all unprintable characters escaped, for use within a line."""
    return text if text.isprintable() else escape_unprintable(text).replace("\t", "\\t")


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON with printable ASCII characters and line ends only."""
    return json_codec.dispatch_text(value, indent, str).replace(_DELETE, f"\\u{ord(_DELETE):04x}")


@contextlib.contextmanager
def escape_output() -> Iterator[None]:
    """Replace standard output and standard error by EscapingStreams, unless they are EscapingStreams already."""
    with contextlib.redirect_stdout(_escaping(sys.stdout)), contextlib.redirect_stderr(_escaping(sys.stderr)):
        yield


def raw_output() -> TextIO:
    """Return the unescaped standard output, for a tool that controls the terminal and escapes texts itself."""
    return sys.stdout.stream if isinstance(sys.stdout, EscapingStream) else sys.stdout


def _escaping(stream: TextIO | None) -> TextIO | None:
    """Return a stream with escaping; None is a stream that was closed before the start."""
    return stream if stream is None or isinstance(stream, EscapingStream) else cast(TextIO, EscapingStream(stream))


def encodable(text: str, stream: TextIO) -> str:
    """Return text with the characters escaped that the encoding of a stream does not have."""
    if text.isascii():
        return text
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
