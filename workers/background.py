"""Work of a worker that takes long and is no delivery: keys of passwords. One thread does it, piece after piece."""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

Result = bytes | Exception


class Background:
    """The thread, which is there from the first piece of work on. Owner: the worker."""

    def __init__(self, loop: Any) -> None:
        """loop: the worker's."""
        self._loop: Final = loop
        self._work: Final[SimpleQueue[tuple[Callable[[], bytes], Callable[[Result], None]]]] = SimpleQueue()
        self._done: Final[SimpleQueue[tuple[Callable[[Result], None], Result]]] = SimpleQueue()
        self._eventfd = -1

    def run(self, work: Callable[[], bytes], then: Callable[[Result], None]) -> None:
        """Do `work`, which touches nothing of the worker's; then call `then`, in the loop."""
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
