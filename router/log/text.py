"""The text of log lines: cut to a length, and harmless. It may come from peers."""

from typing import Final

MAX_TEXT: Final = 2047  # octets of a line's text; the rest is cut, as 1.19 does

CONTINUED: Final = "\n    | "  # before each further line of a trace
_SHORT: Final = {"\n": "\\n", "\r": "\\r"}


def cut(text: str) -> str:
    """Return as much of `text` as fits MAX_TEXT octets, without a part of a character at the end."""
    octets = text.encode("utf-8", "backslashreplace")
    return text if len(octets) <= MAX_TEXT else octets[:MAX_TEXT].decode("utf-8", "ignore")


def safe(text: str, *, lines: bool = False) -> str:
    """Return `text` with all that is not printable written as escapes: ends of lines, control characters, and what
    changes the direction of text, by which a peer could forge lines or steer terminals.

    lines: it is a trace of the router's own, whose further lines are marked.
    """
    if lines:
        return CONTINUED.join(safe(line) for line in text.split("\n"))
    return "".join(each if each.isprintable() or each == "\t" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    number = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def place(fault: BaseException) -> str:
    """Where an exception was raised, as the kind of its repetitions."""
    at = fault.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    line = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    return f"{type(fault).__name__} {line}"
