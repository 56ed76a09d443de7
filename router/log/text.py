"""Truncation of the text of log lines, which may come from peers."""

from typing import Final

MAX_TEXT: Final = 2047  # octets of a line's text; the rest is cut, as in 1.19


def truncate_text(text: str) -> str:
    """Truncate `text` to MAX_TEXT octets, at the end of a character."""
    octets = text.encode("utf-8", "backslashreplace")
    return text if len(octets) <= MAX_TEXT else octets[:MAX_TEXT].decode("utf-8", "ignore")


def place(fault: BaseException) -> str:
    """Return type, file and line of an exception, which identify repetitions of the same failure."""
    at = fault.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    line = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    return f"{type(fault).__name__} {line}"
