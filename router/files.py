"""Open files for writing in directories that others may write to, with root's rights or without."""

import errno
import os
import stat
from typing import Final

MOST_LINKS: Final = 8  # on the way to a file
_FOREIGN: Final = "It is a symbolic link that root has not made"


def open_own(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a file. With root's rights, follow a symbolic link in its place only if root has made it.

    Nobody else then decides which file is opened. Folders on the way are followed: they have to be out of the reach of
    others. Raises OSError and ValueError.
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
            return os.open(path, flags, mode)  # a descriptor, such as that of /dev/stderr: no text that leads elsewhere
        path = _target(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def create_new(path: str, mode: int) -> int:
    """Create a file for writing, in the place of one that is there; links are never followed. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, mode)


def _target(path: str) -> str:
    """Return where a link of root leads. Raises OSError."""
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)  # its owner and its text are those of one link
    try:
        status = os.fstat(link)
        if not stat.S_ISLNK(status.st_mode):
            return path  # it was replaced meanwhile
        if status.st_uid != 0:
            raise OSError(errno.ELOOP, _FOREIGN, path)
        return os.path.join(os.path.dirname(path), os.readlink("", dir_fd=link))
    finally:
        os.close(link)
