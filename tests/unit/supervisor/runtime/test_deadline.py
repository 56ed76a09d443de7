"""Deadlines for others, which exclude time in which the supervisor did not run."""

import asyncio
import time

from sluice.supervisor.runtime.deadline import HELD_UP, Deadline

SECONDS = 0.05


def test_deadline_calls_its_action():
    async def scenario():
        called = asyncio.Event()
        Deadline(asyncio.get_running_loop(), SECONDS, called.set)
        async with asyncio.timeout(10):
            await called.wait()

    asyncio.run(scenario())


def test_deadline_after_hold_up_starts_again():
    async def scenario():
        called = asyncio.Event()
        begun = time.monotonic()
        Deadline(asyncio.get_running_loop(), SECONDS, called.set)
        time.sleep(SECONDS + 1.2 * HELD_UP)
        await asyncio.sleep(0)
        assert not called.is_set()
        async with asyncio.timeout(10):
            await called.wait()
        assert time.monotonic() - begun >= 2 * SECONDS + 1.2 * HELD_UP

    asyncio.run(scenario())


def test_cancelled_deadline_does_not_call():
    async def scenario():
        called = asyncio.Event()
        Deadline(asyncio.get_running_loop(), 0, called.set).cancel()
        await asyncio.sleep(SECONDS)
        assert not called.is_set()

    asyncio.run(scenario())
