"""Memory and output caused by one octet of each frame type: within the limits of docs/internals/threat-model.md, and
at least half of them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.component.engine.amplification import FrameAmplification
from tests.conftest import FLAVOUR

#: Reason: the allocator of sanitizers adds to each object and keeps freed ones.
pytestmark = pytest.mark.skipif(FLAVOUR == "debug", reason="memory is not measured under sanitizers")

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/internals/threat-model.md"
HEADING = "### What an octet can cause"
PATIENCE = 300.0
#: Tolerance of a measurement in octets of memory: tables that double, kept memory of freed objects.
SLACK = 20_000
#: Octets of output allowed for any row: flows of a session, answers to headers.
ANSWER = 64


@dataclass(frozen=True)
class StatedLimits:
    """Limits of memory and output in octets: per octet of frames, and in addition per delivery or copy."""

    memory: int
    output: int
    memory_of_delivery: int
    output_of_delivery: int


def _rows() -> Iterator[tuple[str, StatedLimits]]:
    text = PAGE.read_text()
    section = text[text.index(HEADING) :]
    for name, *numbers in re.findall(r"^\| `([a-z]+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", section, re.MULTILINE):
        yield name, StatedLimits(*map(int, numbers))


STATED = dict(_rows())


@pytest.fixture(scope="module")
def caused() -> dict[str, FrameAmplification]:
    """Measurements of all rows, from a process of its own in which objects of Python are allocated one by one."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.component.engine.amplification"],
        cwd=ROOT,
        env={**os.environ, "PYTHONMALLOC": "malloc"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return {name: FrameAmplification(**values) for name, values in json.loads(ended.stdout).items()}


def test_frame_types_are_stated(caused: dict[str, FrameAmplification]) -> None:
    assert {one.frame for one in caused.values()} == set(STATED)


def test_rows_stay_within_stated_limits(caused: dict[str, FrameAmplification]) -> None:
    wrong = []
    for name, one in caused.items():
        stated = STATED[one.frame]
        memory = stated.memory * one.sent + stated.memory_of_delivery * one.deliveries + SLACK
        output = stated.output * one.sent + stated.output_of_delivery * one.deliveries + ANSWER
        if one.memory > memory or one.output > output:
            wrong.append(f"{name}: {one.memory} octets of memory of {memory}, {one.output} of output of {output}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("frame", STATED)
def test_stated_limits_are_nearly_reached(caused: dict[str, FrameAmplification], frame: str) -> None:
    """The most expensive row of a frame type reaches at least half of each limit. Limits of one octet are exempt."""
    stated = STATED[frame]
    rows = [one for one in caused.values() if one.frame == frame]

    def nearly(number: int, most: float) -> bool:
        return number <= max(1.0, 2 * most)

    assert nearly(stated.memory, max(one.memory / one.sent for one in rows))
    assert nearly(stated.output, max(one.output / one.sent for one in rows))
    touching = [one for one in rows if one.deliveries]
    kept = max(((one.memory - stated.memory * one.sent) / one.deliveries for one in touching), default=0)
    written = max(((one.output - stated.output * one.sent) / one.deliveries for one in touching), default=0)
    assert nearly(stated.memory_of_delivery, kept)
    assert nearly(stated.output_of_delivery, written)
