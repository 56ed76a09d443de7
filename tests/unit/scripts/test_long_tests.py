"""Long tests within a deadline: scripts/long_tests.py and tests/time_left.py."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "long_tests.py"
pytestmark = pytest.mark.starts

MAKEFILE = """
first second third:
\t@echo ran $@ $${SLUICE_TESTS_ROTATE-without rotation}
broken:
\t@echo fault; echo on stderr >&2; false
"""
TESTS = """
import pytest
def test_module_short_test():
    pass
@pytest.mark.timeout(500)
def test_module_long_test():
    pass
@pytest.mark.timeout(0)
def test_module_fuzz_target():
    pass
"""
PLUGIN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.time_left import from_environment
def pytest_configure(config):
    found = from_environment(config, 20.0)
    if found:
        config.pluginmanager.register(found)
"""


def long_tests(folder: Path, *parts: str, seconds: float | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the script in a folder with its own Makefile, with `seconds` left (None: no deadline)."""
    (folder / "Makefile").write_text(MAKEFILE)
    of_ci = ("SLUICE_TESTS_", "SLUICE_TIMES")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(of_ci)}
    if seconds is not None:
        environment["SLUICE_TESTS_UNTIL"] = str(time.time() + seconds)
    return subprocess.run(
        [sys.executable, SCRIPT, *parts], cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env=environment,
    )  # fmt: skip


def commit(folder: Path) -> int:
    """Make a commit in the folder and return the number that determines the order of the parts."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "A commit"], cwd=folder, check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True).stdout
    return int(head[:8], 16)


def test_parts_without_deadline_run_in_their_order(tmp_path: Path) -> None:
    commit(tmp_path)
    result = long_tests(tmp_path, "third", "first=1000", "second")
    assert result.returncode == 0
    ran = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("ran ")]
    assert ran == ["third", "first", "second"]
    assert "without rotation" in result.stdout
    assert "Did not fit" not in result.stdout


def test_parts_with_deadline_rotate_with_the_commit(tmp_path: Path) -> None:
    number = commit(tmp_path)
    parts = ["first", "second", "third"]
    result = long_tests(tmp_path, *parts, seconds=900)
    ran = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("ran ")]
    assert ran == parts[number % 3 :] + parts[: number % 3]
    assert f"ran first {number}\n" in result.stdout


def test_parts_beyond_the_deadline_are_listed(tmp_path: Path) -> None:
    result = long_tests(tmp_path, "first", "second=200", "third=90", seconds=150)
    assert result.returncode == 0
    assert "ran first" in result.stdout
    assert "ran third" in result.stdout
    assert result.stdout.endswith("Did not fit into the time:\n    second: all tests\n")


def test_part_that_fails_fails_the_run_after_all_parts(tmp_path: Path) -> None:
    result = long_tests(tmp_path, "broken", "first")
    assert result.returncode == 1
    before, _, end = result.stdout.partition("The end of broken, which failed:\n")
    assert "fault\n" in before
    assert "ran first" in before
    assert {"    fault", "    on stderr"} <= set(end.splitlines())
    assert result.stdout.endswith("Failed parts: broken\n")


@pytest.mark.parametrize(
    ("seconds", "left_out"), [(1000, 0), (400, 1), (100, 2), (10, 3)], ids=["all", "no long", "no default", "none"]
)
@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_tests_whose_limit_passes_the_deadline_are_left_out(
    tmp_path: Path, seconds: int, left_out: int, processes: tuple[str, ...]
) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_it.py").write_text(TESTS)
    report = tmp_path / "left-out"
    environment = {**os.environ, "SLUICE_TESTS_UNTIL": str(time.time() + seconds), "SLUICE_TESTS_LEFT_OUT": str(report)}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-o", "timeout=120", "-p", "no:cacheprovider", *processes], cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    assert f"{3 - left_out} passed" in result.stdout or left_out == 3
    expected = f"test_it.py: {left_out} tests" if left_out else ""
    assert (report.read_text() if report.exists() else "").rstrip() == expected
