"""Thread that runs all simulated routers of a test, and the means to wait for their state."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.peer.wire import TIMEOUT

Result = TypeVar("Result")


class Router19Loop:
    """Event loop in its own thread. All state of the routers is accessed with `lock` held."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.lock = threading.Condition(threading.RLock())
        #: Exceptions of callbacks. A test that ends with one has failed.
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._failed)
        self.loop.run_forever()

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        with self.entered():
            self.errors.append(error)

    def entered(self) -> StateLock:
        """Return a context manager for changes of state. Waiting threads check their conditions after it."""
        return StateLock(self.lock)

    def call(self, function: Callable[..., Result], *arguments: Any, **keywords: Any) -> Result:
        """Call a function in the loop's thread. Return its result."""

        async def run() -> Result:
            with self.entered():
                return function(*arguments, **keywords)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(TIMEOUT)

    def wait(self, condition: Callable[[], Any], what: str, timeout: float = TIMEOUT) -> Any:
        """Wait until `condition()` is true. Return its value."""
        deadline = time.monotonic() + timeout
        with self.lock:
            while not (value := condition()):
                if self.errors:
                    raise AssertionError(f"error in a router of 1.19 while waiting for {what}") from self.errors[0]
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"did not happen within {timeout} s: {what}")
                self.lock.wait(left)
        return value

    def close(self) -> None:
        """End the thread. Raises the first error of a callback."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(TIMEOUT)
        self.loop.close()
        if self.errors:
            raise self.errors[0]


class StateLock:
    """Context manager that holds the lock and notifies waiting threads on release."""

    def __init__(self, lock: threading.Condition) -> None:
        self.lock = lock

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self.lock.notify_all()
        self.lock.release()
