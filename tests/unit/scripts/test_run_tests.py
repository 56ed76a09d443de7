"""Second run of failed tests by scripts/run_tests.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "run_tests.py"
pytestmark = pytest.mark.starts

ONCE = """
import pathlib
def test_module_fails_once():
    mark = pathlib.Path(__file__).with_name("ran")
    known = mark.exists()
    mark.touch()
    assert known
"""
ALWAYS = """
import pytest
@pytest.mark.parametrize("n", [1, 2])
def test_module_always_fails(n):
    assert n == 0
"""
#: A fixture of the session fails once: each of its tests has an error.
FIXTURE = """
import pathlib
import pytest
@pytest.fixture(scope="session")
def broker():
    mark = pathlib.Path(__file__).with_name("ran")
    known = mark.exists()
    mark.touch()
    assert known, "the broker did not start"
@pytest.mark.parametrize("n", [1, 2, 3])
def test_broker_is_there(broker, n):
    pass
"""
GROUPED = "import pytest\npytestmark = pytest.mark.xdist_group('a/group')\n" + ONCE


def run(folder: Path, text: str, again: int, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_it.py").write_text(text)
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments, "test_it.py"], cwd=folder, capture_output=True, text=True, timeout=110,
        check=False, env={**os.environ, "SLUICE_TESTS_AGAIN": str(again)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "arguments"), [(ONCE, ()), (GROUPED, ("-n", "1", "--dist", "loadgroup"))], ids=["alone", "in a group"]
)
def test_failed_test_passes_alone(tmp_path: Path, text: str, arguments: tuple[str, ...]) -> None:
    result = run(tmp_path, text, 1, *arguments)
    assert result.returncode == 0, result.stdout
    assert result.stdout.endswith("Passed only alone, find out why:\n    test_it.py::test_module_fails_once\n")


def test_failed_test_fails_twice(tmp_path: Path) -> None:
    result = run(tmp_path, ALWAYS, 2)
    assert result.returncode == 1
    assert "Once more, alone: 2 tests" in result.stdout
    assert "Passed only alone" not in result.stdout


@pytest.mark.parametrize("again", [0, 1])
def test_failures_beyond_limit_run_once(tmp_path: Path, again: int) -> None:
    """With a limit of 0 or 1, none of the two failed tests runs again."""
    result = run(tmp_path, ALWAYS, again)
    assert result.returncode == 1
    assert "Once more" not in result.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "in parallel"])
def test_failed_fixture_counts_as_one_failure(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run(tmp_path, FIXTURE, 1, *arguments)
    assert result.returncode == 0, result.stdout
    assert "Once more, alone: 3 tests" in result.stdout


def test_module_without_tests_returns_5(tmp_path: Path) -> None:
    assert run(tmp_path, "", 1).returncode == 5
