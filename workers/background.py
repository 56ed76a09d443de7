"""Thread for a worker's long computations outside the data path, such as keys of passwords. The thread runs one at a
time."""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

Result = bytes | Exception


class DescriptorWatcher(Protocol):
    """Event loop that watches descriptors."""

    def add(self, fd: int, what: Callable[[], object]) -> object:
        """Call `what` whenever the descriptor is readable."""


class BackgroundThread:
    """Background thread, started with the first computation. Owner: the worker."""

    def __init__(self, loop: DescriptorWatcher) -> None:
        """Create it without a thread. loop: the worker's event loop."""
        self._loop: Final = loop
        self._work: Final[SimpleQueue[tuple[Callable[[], bytes], Callable[[Result], None]]]] = SimpleQueue()
        self._done: Final[SimpleQueue[tuple[Callable[[Result], None], Result]]] = SimpleQueue()
        self._eventfd = -1

    def run(self, work: Callable[[], bytes], then: Callable[[Result], None]) -> None:
        """Run `work` in the thread, then call `then` with its result in the loop. `work` must not touch objects of the
        worker."""
        if self._eventfd < 0:
            self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._loop.add(self._eventfd, self._finished)
            threading.Thread(target=self._run, name="background", daemon=True).start()
        self._work.put((work, then))

    def _run(self) -> None:
        while True:
            work, then = self._work.get()
            result: Result
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - it is the result
                result = error
            self._done.put((then, result))
            os.eventfd_write(self._eventfd, 1)

    def _finished(self) -> None:
        os.eventfd_read(self._eventfd)
        while not self._done.empty():
            then, result = self._done.get()
            then(result)
