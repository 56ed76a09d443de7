"""Deadlines for others, which exclude time in which the supervisor did not run."""

import asyncio
import time

from supervisor.runtime.deadline import HELD_UP, Deadline

SECONDS = 0.05


def test_it_comes():
    async def scenario():
        came = asyncio.Event()
        Deadline(asyncio.get_running_loop(), SECONDS, came.set)
        async with asyncio.timeout(10):
            await came.wait()

    asyncio.run(scenario())


def test_after_a_hold_up_it_begins_anew():
    async def scenario():
        came = asyncio.Event()
        begun = time.monotonic()
        Deadline(asyncio.get_running_loop(), SECONDS, came.set)
        time.sleep(SECONDS + 1.2 * HELD_UP)
        await asyncio.sleep(0)
        assert not came.is_set()
        async with asyncio.timeout(10):
            await came.wait()
        assert time.monotonic() - begun >= 2 * SECONDS + 1.2 * HELD_UP

    asyncio.run(scenario())


def test_it_can_be_called_off():
    async def scenario():
        came = asyncio.Event()
        Deadline(asyncio.get_running_loop(), 0, came.set).cancel()
        await asyncio.sleep(SECONDS)
        assert not came.is_set()

    asyncio.run(scenario())
