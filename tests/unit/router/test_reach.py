"""Check that another user can run this program: the attempts in a forked process, and the reported path."""

import os
import sys

import pytest

from sluice.router import user_check
from sluice.router.user_check import find_obstacle

pytestmark = pytest.mark.starts
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def test_current_user_has_no_obstacle():
    assert find_obstacle(lambda: None) is None


def test_refused_change_of_user_is_reported():
    def become() -> None:
        raise PermissionError(1, "Operation not permitted")

    assert find_obstacle(become) == f"{sys.executable}: Operation not permitted"


@as_root
def test_inaccessible_folder_is_reported(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    (closed / "modules").mkdir(parents=True)
    closed.chmod(0o700)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder.parent != folder and "pytest" in str(folder):
            folder.chmod(0o755)
    monkeypatch.setattr(sys, "path", [str(closed / "modules")])
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(os, "__file__", "/bin/true")
    monkeypatch.setattr(user_check, "__file__", "/bin/true")
    told = find_obstacle(lambda: os.setuid(65534))
    assert told == f"the user may not enter {closed}, on the way to {closed}/modules"


def test_missing_module_is_reported(monkeypatch):
    monkeypatch.setattr(user_check, "TRIED_MODULES", ("no_such_module",))
    assert find_obstacle(lambda: None) == "ModuleNotFoundError: No module named 'no_such_module'"


def test_program_that_does_not_end_is_reported(monkeypatch):
    monkeypatch.setattr(user_check, "SECONDS", 0.05)
    monkeypatch.setattr(user_check, "TRIED_MODULES", ("time; time.sleep(60)",))
    assert find_obstacle(lambda: None) == f"{sys.executable} does not start within 0.05 seconds"
