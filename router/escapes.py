"""Escaping of text that may come from peers, for logs and terminals."""

from typing import Final

CONTINUED: Final = "\n    | "  # separator before each further line of a traceback
_SHORT: Final = {"\n": "\\n", "\r": "\\r"}


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
