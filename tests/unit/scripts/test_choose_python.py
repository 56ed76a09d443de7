"""Choice of the Python interpreter for the build by scripts/choose-python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "choose-python"
pytestmark = pytest.mark.starts

# Python that reports version 3.10, whatever interpreter runs it.
OLD_PYTHON = f"""#!/bin/sh
(echo 'import sys; sys.version_info = (3, 10, 0); sys.version = "3.10.0"'; cat) >"$0.py"
exec {sys.executable} "$0.py" "$2"
"""


def choose(python: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHON": python}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_requested_python_is_chosen() -> None:
    result = choose(sys.executable)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == sys.executable


def test_old_python_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text(OLD_PYTHON)
    old.chmod(0o755)
    result = choose(str(old))
    assert result.returncode == 1
    assert f"{old} is Python 3.10.0: too old" in result.stderr


def test_missing_python_is_refused(tmp_path: Path) -> None:
    result = choose(str(tmp_path / "python3"))
    assert result.returncode == 1
    assert "no Python 3.11 or newer" in result.stderr
