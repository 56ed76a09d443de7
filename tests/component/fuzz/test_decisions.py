"""Decisions of a fuzzed conversation, read from octets."""

from random import Random

from tests.component.engine.replay import play
from tests.fuzz.decisions import SLICE, Decisions
from tests.fuzz.workers import case_of

STEPS = 30
FAR = 100  # number of decisions, more than a slice has octets


def drawn(octets: bytes) -> list[list[float]]:
    """Return the numbers drawn by each step."""
    rng = Decisions(octets)
    return [[number for _ in range(FAR) for number in (rng.random(), rng.choice(range(300)))] for _ in rng.steps()]


def test_changed_slice_changes_decisions_of_its_step_only() -> None:
    octets = Random(1).randbytes((1 + STEPS) * SLICE)
    at = 7 * SLICE + SLICE - 1
    changed = drawn(octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1 :])
    assert [step for step, before in enumerate(drawn(octets)) if changed[step] != before] == [6]


def test_removed_slice_removes_decisions_of_its_step_only() -> None:
    octets = Random(1).randbytes((1 + STEPS) * SLICE)
    before = drawn(octets)
    assert drawn(octets[: 7 * SLICE] + octets[8 * SLICE :]) == before[:6] + before[7:]


def test_short_input_gives_case_without_events() -> None:
    assert case_of(b"")["events"] == []
    assert case_of(bytes(SLICE + 1))["events"] == []


def test_cases_of_random_octets_can_be_played() -> None:
    for seed in range(10):
        play(case_of(Random(seed).randbytes((1 + STEPS) * SLICE)))
