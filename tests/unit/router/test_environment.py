"""Environment variables: those passed to a child, and those erased from memory."""

import os
import subprocess
import sys

import pytest

from sluice.router.environment import child_environment, is_needed

ERASE = """
import os
from sluice.router.environment import find_environment_memory, reduce_environment

area = find_environment_memory()
del os.environ["TOKEN"]
area.erase(["TOKEN"])
if os.fork() == 0:
    print(open(f"/proc/{os.getpid()}/environ").read().replace(chr(0), "|"), flush=True)
    reduce_environment(area)
    print(open(f"/proc/{os.getpid()}/environ").read().replace(chr(0), "|"), sorted(os.environ), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.starts
def test_erased_variable_is_absent_from_proc():
    given = {"A": "1", "TOKEN": "hunter2", "TOKENS": "2", "LANG": "C", "PYTHONPATH": os.getcwd()}
    words = [sys.executable, "-c", ERASE]
    done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert "hunter2" not in done.stdout
    assert "A=1|TOKEN=|" in first
    assert "|TOKENS=2|LANG=C|" in first
    for shown in ("A=|", "TOKENS=|", "|LANG=C|", "'LANG'"):
        assert shown in second
    assert "'A'" not in second


def test_child_gets_variables_that_libraries_need(monkeypatch):
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("SLUICE_FLAVOUR", "debug")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/x")
    found = child_environment()
    assert {"LC_ALL": "C.UTF-8", "SLUICE_FLAVOUR": "debug"}.items() <= found.items()
    assert "PATH" in found
    assert not {"AWS_SECRET_ACCESS_KEY", "CREDENTIALS_DIRECTORY"} & found.keys()


@pytest.mark.parametrize(
    ("name", "needed"),
    [("PATH", True), ("JOURNAL_STREAM", True), ("PYTHONPATH", True), ("PATHS", False), ("SLUICE", False)],
)
def test_needed_variables_are_recognised(name, needed):
    assert is_needed(name) is needed
