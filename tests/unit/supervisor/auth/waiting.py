"""Waiting for conditions with a time limit."""

import asyncio
import time
from collections.abc import Callable

SECONDS = 30.0


def until(condition: Callable[[], object]) -> None:
    """Block this thread until the condition holds."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


async def soon(condition: Callable[[], object]) -> None:
    """Wait until the condition holds, while the event loop runs."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.002)
