"""Opening of files for writing, as root or not, in directories that other users may write to."""

import errno
import os
import stat
from typing import Final

MOST_LINKS: Final = 8  # symbolic links followed for one file
_FOREIGN: Final = "It is a symbolic link that root has not made"


def open_trusted(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a file; as root, follow a symbolic link in its place only if root owns the link.

    Other users then cannot decide which file is opened. Links among the parent folders are followed, so these folders
    must not be writable for others. Raises OSError and ValueError.
    """
    if os.geteuid() != 0:
        return os.open(path, flags, mode)
    for _ in range(MOST_LINKS):
        try:
            return os.open(path, flags | os.O_NOFOLLOW, mode)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        if os.path.realpath(os.path.dirname(path)).startswith("/proc/"):
            return os.open(path, flags, mode)  # a descriptor, such as /dev/stderr: its link has no text to redirect
        path = _target(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def create_new(path: str, mode: int) -> int:
    """Create a file for writing and replace an existing one. Links are never followed. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, mode)


def _target(path: str) -> str:
    """Return the target of a symbolic link owned by root. Raises OSError, also for links of other users."""
    # The descriptor ensures that owner and target are read from the same link.
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(link)
        if not stat.S_ISLNK(status.st_mode):
            return path  # the link was replaced meanwhile
        if status.st_uid != 0:
            raise OSError(errno.ELOOP, _FOREIGN, path)
        return os.path.join(os.path.dirname(path), os.readlink("", dir_fd=link))
    finally:
        os.close(link)
