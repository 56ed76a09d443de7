"""Process attributes set through system calls. Most last for the life of a process, so a child process sets them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.router.process import BACKGROUND_NICE, KEPT_CAPABILITIES, PR_SET_PDEATHSIG, prctl

ROOT = Path(__file__).parents[3]


def run(program: str) -> list[str]:
    """Run a program that may use all of `sluice.router.process`; return its words."""
    head = "import ctypes, os; from sluice.router.process import *; from pathlib import Path\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_failed_call_names_its_option() -> None:
    with pytest.raises(OSError, match=r"prctl\(PR_SET_PDEATHSIG\): ") as caught:
        prctl(PR_SET_PDEATHSIG, 10_000)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.starts
def test_memory_of_process_is_closed_to_others() -> None:
    dumpable = "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"  # PR_GET_DUMPABLE
    assert run(f"{dumpable}forbid_memory_access()\n{dumpable}") == ["1", "0"]


@pytest.mark.starts
def test_dropped_capabilities_are_gone_for_good() -> None:
    words = run("drop_capabilities()\nprint(Path('/proc/self/status').read_text())")
    found = {name: int(words[words.index(f"{name}:") + 1], 16) for name in ("CapPrm", "CapEff", "CapInh", "NoNewPrivs")}
    assert found["CapPrm"] & ~KEPT_CAPABILITIES == found["CapEff"] & ~KEPT_CAPABILITIES == 0
    assert (found["CapInh"], found["NoNewPrivs"]) == (0, 1)


@pytest.mark.starts
def test_background_process_yields_to_others() -> None:
    words = run("raise_nice_value()\nprint(os.getpriority(os.PRIO_PROCESS, 0))")
    assert words == [str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + BACKGROUND_NICE))]


@pytest.mark.starts
def test_short_slice_keeps_nice_value_and_policy() -> None:
    after = "print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))"
    nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)
    assert run(f"os.nice(3)\nshorten_scheduling_slice()\n{after}") == [str(nice), str(os.SCHED_OTHER)]
