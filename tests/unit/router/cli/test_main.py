"""Commands of `sluice` and their help."""

import json
import os
import platform
import re
import subprocess
import sys

import pytest

from sluice.router.version import VERSION
from tests.unit.router.cli.commands import ROOT

pytestmark = pytest.mark.starts


@pytest.mark.parametrize("word", ["version", "--version"])
def test_sluice_version_prints_version(shell, word):
    done = shell("sluice", word)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")


def test_sluice_version_prints_json(shell):
    done = shell("sluice", "version", "--json")
    assert json.loads(done.stdout) == {"version": VERSION, "python": platform.python_version()}


@pytest.mark.parametrize("words", [[], ["nonsense"], ["check"], ["run", "x"]])
def test_sluice_with_invalid_arguments_prints_usage(shell, words):
    done = shell("sluice", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: sluice")


def test_help_lists_tools(shell):
    done = shell("sluice", "--help")
    assert done.returncode == 0
    for tool in ("stat", "manage", "top", "explain", "trace", "reload"):
        assert re.search(rf"^ +{tool} ", done.stdout, re.MULTILINE)
        help_text = shell("sluice", tool, "--help")
        assert (help_text.returncode, help_text.stderr) == (0, "")
        assert help_text.stdout.startswith(f"usage: sluice {tool} ")
        assert shell("sluice", tool, "--version").stdout == f"{VERSION}\n"


def test_router_commands_load_no_client_libraries(shell):
    """The commands that run a router, and the list of commands, load no libraries of the tools."""
    modules = "sluice.router.cli.main, sluice.router.cli.qdrouterd, sluice.supervisor.main, sluice.workers.main"
    program = f"import sys; import {modules}; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    ).stdout
    assert "'sluice.router.cli.main'" in loaded
    assert "'sluice.router.client'" not in loaded
    assert "'rich'" not in loaded


def test_tools_load_no_slow_libraries():
    """Tools start in 0.15 s of CPU. Of this, asyncio would cost 50 ms, TLS, SASL and the configuration 20 ms each."""
    modules = "sluice.router.cli.main, sluice.router.cli.stat.main, sluice.router.cli.manage, sluice.router.cli.explain"
    modules += ", sluice.router.cli.hello"
    program = f"import sys; import {modules}; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    ).stdout
    assert "'sluice.router.client.blocking'" in loaded
    for name in ("asyncio", "ssl", "hashlib", "sluice.router.sasl", "sluice.router.config", "sluice.router.log"):
        assert f"'{name}'" not in loaded
