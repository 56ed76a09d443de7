"""Waiting for conditions."""

import asyncio
import time
from collections.abc import Callable

SECONDS = 30.0


def until(condition: Callable[[], object]) -> None:
    """Wait, in this thread."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


async def soon(condition: Callable[[], object]) -> None:
    """Wait, while the event loop goes on."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.002)
