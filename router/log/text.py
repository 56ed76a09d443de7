"""Truncation and escaping of the text of log lines, which may come from peers."""

from typing import Final

MAX_TEXT: Final = 2047  # octets of a line's text; the rest is cut, as in 1.19

CONTINUED: Final = "\n    | "  # separator before each further line of a traceback
_SHORT: Final = {"\n": "\\n", "\r": "\\r"}


def truncate_text(text: str) -> str:
    """Truncate `text` to MAX_TEXT octets, at the end of a character."""
    octets = text.encode("utf-8", "backslashreplace")
    return text if len(octets) <= MAX_TEXT else octets[:MAX_TEXT].decode("utf-8", "ignore")


def escape_unprintable(text: str, *, lines: bool = False) -> str:
    """Return `text` with all unprintable characters except tabs written as escapes.

    Line ends, control characters and characters that change the direction of text would let a peer forge lines or
    control terminals. `lines`: the text is a traceback of the router itself; its line ends stay, and CONTINUED marks
    its further lines.
    """
    if lines:
        return CONTINUED.join(escape_unprintable(line) for line in text.split("\n"))
    return "".join(each if each.isprintable() or each == "\t" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    number = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def place(fault: BaseException) -> str:
    """Return type, file and line of an exception, which identify repetitions of the same failure."""
    at = fault.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    line = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    return f"{type(fault).__name__} {line}"
