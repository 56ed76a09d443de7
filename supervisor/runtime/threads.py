"""Threads for work that would block the event loop: file systems, name servers, long computations."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

_Result = TypeVar("_Result")


class Threads:
    """Limited number of threads, one for each call. Owner: supervisor.

    Neither the event loop nor the exit of the process waits for a thread. A caller waits at most as long as it
    specifies. A thread that a file system blocks for ever stays, and counts towards the limit.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, most: int, begin: Callable[[], object] | None = None
    ) -> None:
        """name: of the threads. most: limit of concurrent threads. begin: called first in each thread."""
        self._loop: Final = loop
        self._name: Final = name
        self._most: Final = most
        self._begin: Final = begin
        self._running = 0

    def run(self, work: Callable[[], _Result], seconds: float | None = None) -> "asyncio.Future[_Result]":
        """Run `work` in a thread and return a future for its result or exception.

        `work` must not touch objects of the event loop. The future raises TimeoutError if `work` takes longer than
        `seconds`, and OSError if no thread is free.
        """
        future: asyncio.Future[_Result] = self._loop.create_future()
        if self._running >= self._most:
            future.set_exception(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
            return future

        def finish(result: _Result | None, error: Exception | None) -> None:
            self._running -= 1
            if future.done():
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)

        def run() -> None:
            result: _Result | None = None
            failure: Exception | None = None
            try:
                if self._begin is not None:
                    self._begin()
                result = work()
            except Exception as error:  # noqa: BLE001 - the future raises it
                failure = error
            try:
                self._loop.call_soon_threadsafe(finish, result, failure)
            except RuntimeError:
                return  # the loop has ended

        try:
            threading.Thread(target=run, name=self._name, daemon=True).start()
        except RuntimeError:  # the system is out of threads
            future.set_exception(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
            return future
        self._running += 1
        if seconds is not None:
            timer = self._loop.call_later(seconds, _expire, future)
            future.add_done_callback(lambda _: timer.cancel())
        return future


def _expire(future: "asyncio.Future[_Result]") -> None:
    if not future.done():
        future.set_exception(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
