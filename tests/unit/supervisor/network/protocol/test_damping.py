"""Delays of the routing protocol: damping of neighbours, and gaps that double."""

from __future__ import annotations

import pytest

from sluice.supervisor.network.protocol.damping import Damping, DoublingPacer
from sluice.supervisor.network.protocol.timers import Timers

TIMERS = Timers(flap_half_life=1000.0, flap_free=2.0, flap_most=30.0, flap_alone=2.0)


def lose(damping: Damping, *, times: int, now: float) -> None:
    for _ in range(times):
        damping.lost(now)


def test_damping_first_losses_are_free() -> None:
    damping = Damping(TIMERS)
    lose(damping, times=2, now=100.0)
    assert damping.held_until < 100.0


def test_damping_further_losses_double_delay() -> None:
    damping = Damping(TIMERS)
    lose(damping, times=2, now=100.0)
    delays = []
    for _ in range(4):
        damping.lost(100.0)
        delays.append(damping.held_until - 100.0)
    assert delays == [1.0, 2.0, 4.0, 8.0]


def test_damping_of_only_path_is_shorter() -> None:
    damping = Damping(TIMERS)
    lose(damping, times=6, now=100.0)
    assert (damping.held_until, damping.held_alone_until) == (108.0, 100.0 + TIMERS.flap_alone)


def test_damping_of_constant_flapping_is_limited() -> None:
    """Losses beyond the limit do not extend the time until the neighbour is trusted again."""
    damping = Damping(TIMERS)
    lose(damping, times=200, now=100.0)
    assert damping.held_until == 100.0 + TIMERS.flap_most
    assert damping.penalty(100.0 + 3 * TIMERS.flap_half_life) < TIMERS.flap_free


def test_damping_penalty_halves_with_time() -> None:
    damping = Damping(TIMERS)
    lose(damping, times=4, now=100.0)
    assert damping.penalty(100.0 + TIMERS.flap_half_life) == 2.0
    later = 100.0 + 3 * TIMERS.flap_half_life
    held = damping.held_until
    damping.lost(later)
    assert damping.held_until == held, "the penalty has become too small for a delay"


def test_restart_is_not_penalised() -> None:
    damping = Damping(TIMERS)
    lose(damping, times=3, now=100.0)
    assert damping.held_until > 100.0
    damping.restarted(100.0)
    assert damping.held_until < 100.0
    assert damping.held_alone_until < 100.0
    assert damping.penalty(100.0) == 2.0


def test_pacer_after_quiet_time_permits_event_at_once() -> None:
    pacer = DoublingPacer(1.0, 8.0)
    assert pacer.when(5.0) == 5.0
    for _ in range(4):
        pacer.done(5.0)
    assert pacer.when(5.0) == 13.0
    assert pacer.when(21.0) == 21.0
    pacer.done(21.0)
    assert pacer.when(21.0) == 22.0, "the gap is the first one again"


def test_pacer_gap_doubles_up_to_limit() -> None:
    pacer = DoublingPacer(1.0, 8.0)
    now, gaps = 5.0, []
    for _ in range(6):
        pacer.done(now)
        following = pacer.when(now)
        gaps.append(following - now)
        now = following
    assert gaps == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize("asked", [5.5, 6.0, 7.25])
def test_pacer_event_is_never_permitted_in_past(asked: float) -> None:
    pacer = DoublingPacer(1.0, 8.0)
    pacer.done(5.0)
    assert pacer.when(asked) == max(asked, 6.0)
