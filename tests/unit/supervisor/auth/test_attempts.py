"""Failed login attempts: delays, counts, expiry and bounds."""

import asyncio

import pytest

from sluice.supervisor.auth import attempts
from sluice.supervisor.auth.attempts import Attempts, TooManyAttempts
from tests.unit.supervisor.adjustable_clock import AdjustableClock


def test_delays_grow_to_bound_and_fade():
    clock = AdjustableClock()
    table = Attempts(clock)
    assert [round(table.failed("a"), 3) for _ in range(4)] == [0.1, 0.2, 0.4, 0.8]
    assert [table.failed("a") for _ in range(10)][-1] == attempts.MOST_DELAY
    assert table.failed("b") == 0.1
    clock.now += 15 * attempts.FADE_SECONDS
    assert table.failures("a") == 0
    assert table.failed("a") == 0.1
    assert table.total == 16


def test_guessing_host_is_reported_once_per_period():
    clock = AdjustableClock()
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


def test_counted_failures_are_bounded():
    clock = AdjustableClock()
    table = Attempts(clock)
    for _ in range(525):
        table.failed("a")
    clock.now += attempts.FADE_SECONDS * attempts.MOST_FAILURES
    assert table.failures("a") == 0


def test_attempts_table_is_bounded():
    table = Attempts(AdjustableClock(), most=3)
    for host in "abcdef":
        table.failed(host)
    table.failed("d")
    table.failed("g")
    assert len(table) == 3
    assert [table.failures(host) > 0 for host in "adefg"] == [False, True, False, True, True]


class LoginGuesses:
    """Login attempts. Attempts with `good` unset fail. `checked`: claims whose password was checked, in order."""

    def __init__(self, table):
        self.table = table
        self.checked = []
        self.tasks = []

    def begin(self, claim, count=1, host="a", good=False):
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._attempt(claim, host, good)))
        return self.tasks[-1]

    async def _attempt(self, claim, host, good):
        async with self.table.turn(host, claim):
            self.checked.append(claim)
            await asyncio.sleep(0)
            if not good:
                self.table.failed(host)

    async def run_until_idle(self):
        """Run the event loop until only timers are left."""
        for _ in range(1000):
            await asyncio.sleep(0)

    def end(self):
        for task in self.tasks:
            task.cancel()


def test_parallel_guesses_are_paced():
    async def run():
        clock = AdjustableClock()
        table = Attempts(clock)
        guesses = LoginGuesses(table)
        guesses.begin("alice", 50)
        await guesses.run_until_idle()
        assert len(guesses.checked) == attempts.AT_ONCE
        for seconds in range(1, 6):
            clock.now += attempts.PACE_SECONDS
            guesses.begin("alice")
            await guesses.run_until_idle()
            assert len(guesses.checked) == attempts.AT_ONCE + seconds
        other = guesses.begin("alice", host="b")
        await other
        guesses.end()

    asyncio.run(run())


def test_successful_attempts_do_not_wait():
    async def run():
        guesses = LoginGuesses(Attempts(AdjustableClock()))
        guesses.begin("alice", attempts.MOST_QUEUED, good=True)
        await asyncio.gather(*guesses.tasks)
        assert len(guesses.table) == 0

    asyncio.run(run())


def test_waiting_attempts_take_turns_by_claimed_user():
    async def run():
        clock = AdjustableClock()
        table = Attempts(clock)
        guesses = LoginGuesses(table)
        guesses.begin("mallory", attempts.AT_ONCE + attempts.MOST_QUEUED)
        await guesses.run_until_idle()
        owner = guesses.begin("alice", good=True)  # the queue is full: one of the guesses makes room
        await guesses.run_until_idle()
        refused = [task for task in guesses.tasks if task.done() and task.exception() is not None]
        assert [type(task.exception()) for task in refused] == [TooManyAttempts]
        for _ in range(2):
            clock.now += attempts.PACE_SECONDS
            guesses.begin("mallory")
            await guesses.run_until_idle()
        assert owner.done()
        guesses.end()

    asyncio.run(run())


def test_waiting_attempts_proceed_with_time(monkeypatch):
    monkeypatch.setattr(attempts, "PACE_SECONDS", 0.01)

    async def run():
        guesses = LoginGuesses(Attempts())
        guesses.begin("alice", attempts.AT_ONCE + 20)
        await asyncio.wait_for(asyncio.gather(*guesses.tasks), 10)
        assert len(guesses.checked) == attempts.AT_ONCE + 20

    asyncio.run(run())


def test_waiting_attempts_of_host_are_bounded():
    async def run():
        table = Attempts(AdjustableClock())
        for _ in range(20):
            table.failed("a")
        guesses = LoginGuesses(table)
        guesses.begin("alice", attempts.MOST_QUEUED)
        await guesses.run_until_idle()
        with pytest.raises(TooManyAttempts):
            async with table.turn("a", "alice"):
                pass
        guesses.tasks[0].cancel()  # a lost client makes room
        await guesses.run_until_idle()
        guesses.begin("alice")
        await guesses.run_until_idle()
        assert not guesses.tasks[-1].done()
        guesses.end()

    asyncio.run(run())


def test_turn_of_lost_client_passes_to_next(monkeypatch):
    async def run():
        clock = AdjustableClock()
        table = Attempts(clock)
        for _ in range(attempts.AT_ONCE):
            table.failed("a")
        guesses = LoginGuesses(table)
        first, second = guesses.begin("alice", good=True), guesses.begin("alice", good=True)
        await guesses.run_until_idle()
        clock.now += attempts.PACE_SECONDS
        table._next(table._hosts["a"])
        first.cancel()  # the attempt's turn has come, but it has not run yet
        await guesses.run_until_idle()
        assert second.done()

    asyncio.run(run())


def test_ipv6_network_counts_as_one_host():
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
