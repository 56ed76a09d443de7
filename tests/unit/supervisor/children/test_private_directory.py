"""Private directory of the router's user: location, permissions, removal."""

import os
import stat
import subprocess
import sys
import tempfile

import pytest

from sluice.supervisor.children.private_directory import LOCK, PrivateDirectory, usual_bases


def test_directory_is_private_and_removed(tmp_path):
    made = PrivateDirectory([str(tmp_path)])
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    (made.path / "deltas").touch()
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_first_usable_base_is_taken(tmp_path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    made = PrivateDirectory([str(tmp_path / "none"), str(long), str(tmp_path)])
    assert made.path.parent == tmp_path
    assert list(long.iterdir()) == []
    made.remove()
    with pytest.raises(OSError, match=r"none: No such file or directory; .*: its path is too long"):
        PrivateDirectory([str(tmp_path / "none"), str(long)])


@pytest.mark.starts
def test_directory_of_killed_router_is_removed(tmp_path):
    alive = PrivateDirectory([str(tmp_path)])
    (tmp_path / "sluice-of-somebody").mkdir()
    (tmp_path / "sluice-link").symlink_to(tmp_path / "sluice-of-somebody")
    program = (
        "import sys, os\n"
        "from sluice.supervisor.children.private_directory import PrivateDirectory\n"
        "made = PrivateDirectory([sys.argv[1]])\n"
        "(made.path / 'deltas').touch()\n"
        "print(made.path, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False, env=os.environ
    )
    left = killed.stdout.strip()
    assert os.path.exists(left), killed.stderr
    other = PrivateDirectory([str(tmp_path)])
    assert not os.path.exists(left)
    assert alive.path.exists()
    assert (alive.path / LOCK).exists()
    assert (tmp_path / "sluice-of-somebody").exists()
    for made in (alive, other):
        made.remove()


def test_usual_bases_follow_environment(monkeypatch):
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/sluice:/run/other")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert list(usual_bases())[:3] == ["/run/sluice", "/run/user/1", "/dev/shm"]


def test_usual_bases_end_early_without_writable_temporary_directory(monkeypatch):
    """A unit with ProtectSystem=strict and without PrivateTmp has none."""

    def fail():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/sluice")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", fail)
    assert list(usual_bases()) == ["/run/sluice", "/dev/shm"]
