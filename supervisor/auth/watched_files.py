"""Watching of files that may change while the router runs: users and keys.

A thread checks them once a second. Replaced symbolic links are noticed, too.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from sluice.supervisor.auth.messages import ProviderState

CHECK_INTERVAL: Final = 1.0  # seconds between two checks
KEPT: Final = "; the values read before stay in force"
_Value = TypeVar("_Value")
_Signature = tuple[str, int, int, int, int]


class WatchedFile(Generic[_Value]):
    """Watched file with its last valid value. An invalid file leaves the previous value in force.

    Owner: `FileWatcher`. `value` and `problem` may be read in any thread.
    """

    def __init__(self, path: str, read: Callable[[str], _Value], log: Callable[[str, str], None], what: str) -> None:
        """Create without reading the file.

        read: read and check the file; raises OSError, ValueError. log: called with level and text, in the thread that
        checks the file. what: name of the entity in log messages.
        """
        self.path: Final = path
        self.value: _Value | None = None
        self.problem: str | None = None  # problem with the present file; None: it is valid
        self._read: Final = read
        self._log: Final = log
        self._what: Final = what
        self._seen: _Signature | None = None

    def get(self) -> _Value | None:
        """Return the last valid value; None if there never was one."""
        return self.value

    def look(self) -> None:
        """Read the file if it has changed. Errors are stored in `problem`, and logged if they are new."""
        try:
            seen = _signature(self.path)
            if seen == self._seen:
                return
            value = self._read(self.path)
        except OSError as error:
            self._seen = None  # read the file at the next check in any case
            self._note(f"{self.path}: {error.strerror or error}")
        except ValueError as error:
            self._seen = seen
            self._note(f"{self.path}: {error}")
        else:
            again = self._seen is not None or self.value is not None
            self._seen, self.value, self.problem = seen, value, None
            if again:
                self._log("info", f"{self._what}: read {self.path} again")

    def _note(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        kept = KEPT if self.value is not None else "; until it is valid, logins that need it are refused"
        self._log("error", f"{self._what}: {problem}{kept}")


def file_state(kind: str, name: str, file: WatchedFile[Any]) -> ProviderState:
    """Return the state of the provider that uses the file. Without a valid value it is not usable."""
    kept = KEPT if file.value is not None else ""
    text = "in use" if file.problem is None else file.problem + kept
    return ProviderState(kind, name, file.value is not None, file.problem is None, text)


class FileWatcher:
    """Thread that checks files. A file system that does not respond blocks only this thread. Owner: the process."""

    def __init__(self, every: float = CHECK_INTERVAL) -> None:
        self._every: Final = every
        self._files: list[WatchedFile[object]] = []
        self._lock: Final = threading.Lock()
        self._wake: Final = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, files: list[WatchedFile[object]]) -> None:
        """Watch these files from now on, and no others."""
        with self._lock:
            self._files = list(files)
        if self._thread is None and files:
            self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._wake.wait(self._every):
            with self._lock:
                files = list(self._files)
            for each in files:
                each.look()


def _signature(path: str) -> _Signature:
    """Return values that differ if the file was modified or replaced."""
    status = os.stat(path)
    return os.path.realpath(path), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
