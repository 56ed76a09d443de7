"""File of a history: JSON, replaced atomically, so that a crash leaves the old or the new one."""

import os
from typing import Any, Final

from sluice.router import json_codec
from sluice.router.files import create_new

VERSION: Final = 1
FILE_MODE: Final = 0o640
MAX_FILE: Final = 16 << 20  # octets; a file of this version has about 1 MB
NEW: Final = ".new"  # suffix of a file that is being written


class HistoryFileError(Exception):
    """Error for a file that cannot be used; the text is the reason."""


def write_history(path: str, state: dict[str, Any]) -> None:
    """Replace the file. For a thread, as it waits for the disk. Raises HistoryFileError."""
    new = path + NEW
    try:
        descriptor = create_new(new, FILE_MODE)
        with open(descriptor, "wb") as opened:
            opened.write(json_codec.encode({"version": VERSION, **state}))
            opened.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except OSError as error:
        raise HistoryFileError(f"{error.strerror}: '{error.filename or new}'") from error


def read_history(path: str) -> dict[str, Any] | None:
    """Return the state in the file; None if there is no file. For a thread. Raises HistoryFileError."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as opened:
            content = opened.read(MAX_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HistoryFileError(f"{error.strerror}: '{path}'") from error
    if len(content) > MAX_FILE:
        raise HistoryFileError("it is too long")
    try:
        state = json_codec.decode(content)
    except ValueError as error:
        raise HistoryFileError(f"it is no JSON: {error}") from error
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise HistoryFileError("it is of another version")
    return state
