"""Failed login attempts: delays, counts, expiry and bounds."""

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
    clock = Clock()
    table = Attempts(clock)
    seen = []
    for _ in range(12):
        table.failed("a")
        seen.append(table.guesses("a"))
    assert seen == [False] * 7 + [True] + [False] * 4
    assert not table.guesses("b")
    clock.now += attempts.WARN_SECONDS - 1
    for _ in range(attempts.AT_ONCE):
        table.failed("a")
    assert not table.guesses("a")
    clock.now += 1
    table.failed("a")
    assert table.guesses("a")


def test_failures_that_count_have_a_ceiling():
    clock = Clock()
    table = Attempts(clock)
    for _ in range(525):
        table.failed("a")
    clock.now += attempts.FADE_SECONDS * attempts.MOST_FAILURES
    assert table.failures("a") == 0


def test_the_table_is_bounded():
    table = Attempts(Clock(), most=3)
    for host in "abcdef":
        table.failed(host)
    table.failed("d")
    table.failed("g")
    assert len(table) == 3
    assert [table.failures(host) > 0 for host in "adefg"] == [False, True, False, True, True]


class Guesses:
    """Login attempts. Attempts with `good` unset fail. `checked`: claims whose password was checked, in order."""

    def __init__(self, table):
        self.table = table
        self.looked_at = []
        self.tasks = []

    def begin(self, claim, count=1, host="a", good=False):
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._attempt(claim, host, good)))
        return self.tasks[-1]

    async def _attempt(self, claim, host, good):
        async with self.table.turn(host, claim):
            self.looked_at.append(claim)
            await asyncio.sleep(0)
            if not good:
                self.table.failed(host)

    async def rest(self):
        """Run the event loop until only timers are left."""
        for _ in range(1000):
            await asyncio.sleep(0)

    def end(self):
        for task in self.tasks:
            task.cancel()


def test_guesses_in_parallel_are_no_faster():
    async def run():
        clock = Clock()
        table = Attempts(clock)
        guesses = Guesses(table)
        guesses.begin("alice", 50)
        await guesses.rest()
        assert len(guesses.looked_at) == attempts.AT_ONCE
        for seconds in range(1, 6):
            clock.now += attempts.PACE_SECONDS
            guesses.begin("alice")
            await guesses.rest()
            assert len(guesses.looked_at) == attempts.AT_ONCE + seconds
        other = guesses.begin("alice", host="b")
        await other
        guesses.end()

    asyncio.run(run())


def test_attempts_that_do_not_fail_do_not_wait():
    async def run():
        guesses = Guesses(Attempts(Clock()))
        guesses.begin("alice", attempts.MOST_QUEUED, good=True)
        await asyncio.gather(*guesses.tasks)
        assert len(guesses.table) == 0

    asyncio.run(run())


def test_those_that_wait_take_turns_by_what_they_claim():
    async def run():
        clock = Clock()
        table = Attempts(clock)
        guesses = Guesses(table)
        guesses.begin("mallory", attempts.AT_ONCE + attempts.MOST_QUEUED)
        await guesses.rest()
        owner = guesses.begin("alice", good=True)  # the queue is full: one of the guesses makes room
        await guesses.rest()
        refused = [task for task in guesses.tasks if task.done() and task.exception() is not None]
        assert [type(task.exception()) for task in refused] == [TooManyAttempts]
        for _ in range(2):
            clock.now += attempts.PACE_SECONDS
            guesses.begin("mallory")
            await guesses.rest()
        assert owner.done()
        guesses.end()

    asyncio.run(run())


def test_time_passes_for_those_that_wait(monkeypatch):
    monkeypatch.setattr(attempts, "PACE_SECONDS", 0.01)

    async def run():
        guesses = Guesses(Attempts())
        guesses.begin("alice", attempts.AT_ONCE + 20)
        await asyncio.wait_for(asyncio.gather(*guesses.tasks), 10)
        assert len(guesses.looked_at) == attempts.AT_ONCE + 20

    asyncio.run(run())


def test_so_many_attempts_of_a_host_may_wait():
    async def run():
        table = Attempts(Clock())
        for _ in range(20):
            table.failed("a")
        guesses = Guesses(table)
        guesses.begin("alice", attempts.MOST_QUEUED)
        await guesses.rest()
        with pytest.raises(TooManyAttempts):
            async with table.turn("a", "alice"):
                pass
        guesses.tasks[0].cancel()  # a lost client makes room
        await guesses.rest()
        guesses.begin("alice")
        await guesses.rest()
        assert not guesses.tasks[-1].done()
        guesses.end()

    asyncio.run(run())


def test_a_turn_of_a_client_that_is_gone_goes_to_another(monkeypatch):
    async def run():
        clock = Clock()
        table = Attempts(clock)
        for _ in range(attempts.AT_ONCE):
            table.failed("a")
        guesses = Guesses(table)
        first, second = guesses.begin("alice", good=True), guesses.begin("alice", good=True)
        await guesses.rest()
        clock.now += attempts.PACE_SECONDS
        table._next(table._hosts["a"])
        first.cancel()  # its turn has come, but it has not run yet
        await guesses.rest()
        assert second.done()

    asyncio.run(run())


def test_a_network_of_ipv6_is_one_host():
    """A client with one address of a /64 network can use as many as it likes."""
    attempts = Attempts(lambda: 0.0)
    for number in range(3):
        attempts.failed(f"2001:db8::{number}")
    assert attempts.failures("2001:db8::ffff:1") == 3
    assert attempts.failures("[2001:db8::7]") == 3
    assert attempts.failures("fe80::1%eth0") == attempts.failures("2001:db8:0:1::1") == 0
    attempts.failed("10.0.0.1")
    assert attempts.failures("10.0.0.2") == 0
    assert len(attempts) == 2
