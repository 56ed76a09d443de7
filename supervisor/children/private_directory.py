"""Directory that only the router's user can enter, for sockets that need a path (decisions 0050, 0056).

Other users, and other containers that share the network of a pod, cannot reach the sockets. The directory is removed
when the router exits. Directories of killed routers are removed by the next router: a running router holds a lock.
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
MOST_PATH: Final = 90  # octets; with the name of a socket the kernel allows 107
SHARED_MEMORY: Final = "/dev/shm"


class PrivateDirectory:
    """Private directory of a router. `path` exists from the constructor until `remove`. Owner: the supervisor."""

    def __init__(self, bases: Iterable[str] | None = None) -> None:
        """Create the directory. bases: candidate parent directories, best first. Raises OSError if none is usable."""
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
        raise OSError(f"no directory can hold the sockets of the workers: {'; '.join(faults)}")

    def give(self, user: int, group: int) -> None:
        """Change the owner of the directory and its contents; -1: unchanged. Raises OSError."""
        for each in (*self.path.iterdir(), self.path):
            os.chown(each, user, group, follow_symlinks=False)

    def remove(self) -> None:
        """Remove the directory and its contents. May have no effect if the router has become another user."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def usual_bases() -> Iterator[str]:
    """Yield candidate parent directories: systemd's, the user session's, shared memory, temporary files."""
    for variable in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        base = os.environ.get(variable, "").partition(":")[0]
        if base:
            yield base
    yield SHARED_MEMORY
    with contextlib.suppress(FileNotFoundError):  # no directory for temporary files is writable
        yield tempfile.gettempdir()


def _locked(directory: Path) -> int:
    """Create the lock file and return its descriptor. The file is not visible before the lock is held."""
    new = directory / f"{LOCK}.new"
    lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(directory / LOCK)
    return lock


def _sweep(base: str) -> None:
    """Remove the directories of killed routers of this user."""
    with contextlib.suppress(OSError):  # best effort
        for each in Path(base).glob(f"{PREFIX}*"):
            if each.is_dir() and not each.is_symlink() and each.stat().st_uid == os.geteuid() and not _lives(each):
                shutil.rmtree(each, ignore_errors=True)


def _lives(directory: Path) -> bool:
    """Return whether a router uses the directory, or is about to."""
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
