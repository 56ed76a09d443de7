"""Workflows of the forge: their form, and the make targets that they run."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.unit.source_files import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TOOLS = ROOT / "build" / "interop"
ACTIONLINT = TOOLS / "actionlint"

_TARGET = re.compile(r"^([a-z][a-z-]*(?: [a-z-]+)*):(?!=)", re.MULTILINE)
#: Arguments of make, in commands and in the matrix from which commands take them.
_VERBS = re.compile(r"(?:run: make|\bverb:) \[?([a-z][a-z -]*)")


@pytest.mark.starts
def test_workflows_have_no_faults_of_form() -> None:
    if not ACTIONLINT.exists():
        missing = TOOLS / "actionlint.missing"
        pytest.skip(missing.read_text().strip() if missing.exists() else "no actionlint: run scripts/interop-tools")
    command = [str(ACTIONLINT), "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_workflows_run_existing_make_targets() -> None:
    made = {name for names in _TARGET.findall((ROOT / "Makefile").read_text()) for name in names.split()}
    wanted = {
        verb for workflow in WORKFLOWS for verbs in _VERBS.findall(workflow.read_text()) for verb in verbs.split()
    }
    assert {"build", "test", "lint", "docs", "site", "manylinux", "release-files"} <= wanted
    assert wanted - made == set()
