"""Commands that run the router as another user. The tests' own interpreter may be out of that user's reach."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@cache
def _find_python(user: str) -> str | None:
    """Return the path of an interpreter of this version that `user` can run with the installed modules."""
    name = f"python3.{sys.version_info.minor}"
    for path in (sys.executable, os.path.realpath(sys.executable), f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        words = [path, "-P", "-c", "import zmq, sluice.router.ring.region"]
        try:
            done = subprocess.run(words, user=user, env=_environment(), capture_output=True, timeout=60, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return path
    return None


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": modules()}


def modules() -> str:
    """Return the PYTHONPATH for an interpreter in another place."""
    return os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])


def python_for(user: str) -> str:
    """Return the path of a Python that `user` can run with `modules`. Skip the test if there is none."""
    if os.getuid() != 0:
        pytest.skip("only root can switch users")
    path = _find_python(user)
    if path is None:
        pytest.skip(f"there is no Python that user {user} can run with the modules of this one")
    return path


def program_for(user: str) -> tuple[str, ...]:
    """Return the command with which `user` can run all of `sluice`. Skip the test if there is no suitable Python."""
    return ("env", f"PYTHONPATH={modules()}", python_for(user), "-P", "-m", "sluice.router.cli.main")


def program_out_of_reach(user: str) -> tuple[str, ...]:
    """Return a command for `sluice` with a Python that `user` cannot run; empty if `user` cannot run this Python.

    Skip the test if `user` can run it.
    """
    if os.getuid() != 0:
        pytest.skip("only root can switch users")
    try:
        subprocess.run([sys.executable, "-V"], user=user, capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    pytest.skip(f"user {user} can run this Python")
