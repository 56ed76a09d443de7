"""A directory that only the router's user can enter, for the sockets that need a name (decisions 0050, 0056).

Other users, and other containers that share the network of a pod, cannot reach what is in it. It goes with the router.
What a killed router leaves behind is removed by the next one: whoever lives holds a lock.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "sluice-"
LOCK: Final = "lock"
MOST_PATH: Final = 90  # octets: with the name of a socket the kernel takes 107
SHARED_MEMORY: Final = "/dev/shm"


class PrivateDirectory:
    """Owner: the supervisor. `path` is there from the constructor until `remove`."""

    def __init__(self, bases: Iterable[str] | None = None) -> None:
        """bases: directories that it may be in, the best one first. Raises OSError if it can be in none of them."""
        faults = []
        for base in usual_bases() if bases is None else bases:
            _sweep(base)
            try:
                path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
            except OSError as error:
                faults.append(f"{base}: {error.strerror}")
                continue
            if len(os.fsencode(path)) <= MOST_PATH:
                self.path = path
                self._lock = _locked(path)
                return
            path.rmdir()
            faults.append(f"{base}: its path is too long")
        raise OSError(f"no directory for the sockets of the workers: {'; '.join(faults)}")

    def give(self, user: int, group: int) -> None:
        """Make it another user's; -1: the same. Raises OSError."""
        for each in (*self.path.iterdir(), self.path):
            os.chown(each, user, group, follow_symlinks=False)

    def remove(self) -> None:
        """Remove it with all that is in it. A user that the router has become may have no right to."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def usual_bases() -> Iterator[str]:
    """Return where it may be: of systemd, of the user's session, in memory, and where temporary files are."""
    for variable in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        base = os.environ.get(variable, "").partition(":")[0]
        if base:
            yield base
    yield SHARED_MEMORY
    yield tempfile.gettempdir()


def _locked(directory: Path) -> int:
    """Make the lock; nobody sees it before it is held."""
    new = directory / f"{LOCK}.new"
    lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(directory / LOCK)
    return lock


def _sweep(base: str) -> None:
    """Remove what routers of this user have left here that were killed."""
    with contextlib.suppress(OSError):  # nothing of ours depends on it
        for each in Path(base).glob(f"{PREFIX}*"):
            if each.is_dir() and not each.is_symlink() and each.stat().st_uid == os.geteuid() and not _lives(each):
                shutil.rmtree(each, ignore_errors=True)


def _lives(directory: Path) -> bool:
    """Whether a router has it, or is about to."""
    try:
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
