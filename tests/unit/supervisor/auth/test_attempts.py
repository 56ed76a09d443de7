"""Failed attempts: how they are delayed, counted, forgotten, and bounded."""

import asyncio

import pytest

from supervisor.auth import attempts
from supervisor.auth.attempts import Attempts, TooManyAttempts


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_delays_grow_up_to_a_bound_and_fade():
    clock = Clock()
    table = Attempts(clock)
    assert [round(table.failed("a"), 3) for _ in range(4)] == [0.1, 0.2, 0.4, 0.8]
    assert [table.failed("a") for _ in range(10)][-1] == attempts.MOST_DELAY
    assert table.failed("b") == 0.1
    clock.now += 15 * attempts.FADE_SECONDS
    assert table.failures("a") == 0
    assert table.failed("a") == 0.1
    assert table.total == 16


def test_who_begins_to_guess():
    table = Attempts(Clock())
    seen = []
    for _ in range(12):
        table.failed("a")
        seen.append(table.guesses("a"))
    assert seen == [False] * 7 + [True] + [False] * 4
    assert not table.guesses("b")


def test_the_table_is_bounded():
    table = Attempts(Clock(), most=3)
    for host in "abcdef":
        table.failed(host)
    table.failed("d")
    table.failed("g")
    assert len(table) == 3
    assert [table.failures(host) > 0 for host in "adefg"] == [False, True, False, True, True]


def test_a_host_that_guesses_has_one_attempt_at_a_time():
    async def run():
        table = Attempts(Clock())
        inside = most = 0

        async def attempt(host):
            nonlocal inside, most
            async with table.turn(host):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(attempt("a") for _ in range(10)))
        free, most = most, 0
        for _ in range(attempts.ONE_BY_ONE_FROM):
            table.failed("a")
        await asyncio.gather(*(attempt("a") for _ in range(10)))
        guessing, most = most, 0
        await asyncio.gather(*(attempt("b") for _ in range(10)))
        return free, guessing, most

    assert asyncio.run(run()) == (10, 1, 10)


def test_so_many_attempts_of_a_host_may_wait():
    async def run():
        table = Attempts(Clock())
        for _ in range(20):
            table.failed("a")
        end = asyncio.Event()

        async def attempt():
            async with table.turn("a"):
                await end.wait()

        waiting = [asyncio.create_task(attempt()) for _ in range(attempts.MOST_QUEUED)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyAttempts):
            async with table.turn("a"):
                pass
        end.set()
        await asyncio.gather(*waiting)
        async with table.turn("a"):
            pass

    asyncio.run(run())


def test_a_network_of_ipv6_is_one_host():
    """Whoever has one address of 64 bits has as many as he likes."""
    attempts = Attempts(lambda: 0.0)
    for number in range(3):
        attempts.failed(f"2001:db8::{number}")
    assert attempts.failures("2001:db8::ffff:1") == 3
    assert attempts.failures("[2001:db8::7]") == 3
    assert attempts.failures("fe80::1%eth0") == attempts.failures("2001:db8:0:1::1") == 0
    attempts.failed("10.0.0.1")
    assert attempts.failures("10.0.0.2") == 0
    assert len(attempts) == 2
