"""The text of log lines: cut to a length, and harmless. It may come from peers."""

import re
from typing import Final

MAX_TEXT: Final = 2047  # octets of a line's text; the rest is cut, as 1.19 does

# What a peer could forge lines or steer terminals with: control characters, and lines that are not indented.
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\n(?! )")


def cut(text: str) -> str:
    """Return as much of `text` as fits MAX_TEXT octets, without a part of a character at the end."""
    octets = text.encode("utf-8", "backslashreplace")
    return text if len(octets) <= MAX_TEXT else octets[:MAX_TEXT].decode("utf-8", "ignore")


def safe(text: str) -> str:
    """Return `text` with control characters written as escapes, and further lines indented."""
    return _UNSAFE.sub(lambda match: "\n " if match.group() == "\n" else f"\\x{ord(match.group()):02x}", text)


def place(fault: BaseException) -> str:
    """Where an exception was raised, as the kind of its repetitions."""
    at = fault.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    line = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    return f"{type(fault).__name__} {line}"
