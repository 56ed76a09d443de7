"""State of a file, which differs after the file was written or replaced."""

import os

FileState = tuple[int, ...] | None  # None: not found


def read_file_state(path: str) -> FileState:
    """Return the state of the file to which `path` leads. A replaced symbolic link counts as a replaced file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
