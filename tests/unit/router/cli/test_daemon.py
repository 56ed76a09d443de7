"""Detached routers: session, pid file, user, and the report to the parent process."""

import os
import pwd
import select
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.other_user import modules, program_out_of_reach, python_for
from tests.unit.router.cli.commands import ROOT, CommandRunner

pytestmark = pytest.mark.starts


def wait_for_record(shell, done):
    """Return the record of the detached router, which may still run after its parent has exited."""
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pid = int((shell.folder / "pid").read_text())
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return shell.recorded()
    try:
        assert select.select([descriptor], [], [], 60)[0], "the detached router did not end"
    finally:
        os.close(descriptor)
    return shell.recorded()


@pytest.mark.parametrize("command", [["qdrouterd"], ["sluice", "run"]])
def test_daemon_writes_pidfile_and_detaches(shell, command):
    pidfile = shell.folder / "pid"
    done = shell(*command, "-d", "-c", "good.conf", "-P", str(pidfile))
    recorded = wait_for_record(shell, done)
    assert pidfile.read_text() == f"{recorded['pid']}\n"
    assert stat.S_IMODE(pidfile.stat().st_mode) == 0o666
    assert recorded["session"] not in (os.getsid(0), recorded["pid"])
    assert (recorded["directory"], recorded["stdin"]) == ("/", "/dev/null")
    assert recorded["descriptors"] <= 4  # null device three times, and the listed directory


def test_daemon_with_invalid_configuration_fails(shell):
    pidfile = shell.folder / "pid"
    done = shell("qdrouterd", "-d", "-c", "bad.conf", "-P", str(pidfile))
    assert done.returncode == 1
    path = shell.folder / "bad.conf"
    assert done.stderr.startswith(f"bin/qdrouterd: Python: Exception: Cannot load configuration file {path}: ")
    assert done.stderr.count("\n") == 1
    assert pidfile.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-P", "/nonexistent/pid"], "Can't write pidfile /nonexistent/pid"),
        (["-U", "nobody-has-this-name"], "Can't look up user nobody-has-this-name"),
    ],
)
def test_daemon_that_cannot_start_reports_reason(shell, words, message):
    done = shell("qdrouterd", "-d", "-c", "good.conf", *words)
    assert (done.returncode, done.stderr) == (1, f"bin/qdrouterd: {message}\n")
    assert not shell.record.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch users")
def test_daemon_switches_user():
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # other users may not enter pytest's folders
        folder = Path(name)
        folder.chmod(0o777)
        shell = CommandRunner(folder)
        shell.python, shell.path = python_for("nobody"), [modules()]
        done = shell("qdrouterd", "-d", "-c", "good.conf", "-P", str(folder / "pid"), "-U", "nobody")
        assert wait_for_record(shell, done)["user"] == pwd.getpwnam("nobody").pw_uid


def test_daemon_user_that_cannot_run_router_is_refused(shell):
    program_out_of_reach("nobody")  # skips the test if every user can run it
    done = shell("qdrouterd", "-d", "-c", "good.conf", "-U", "nobody")
    assert done.returncode == 1
    reason = "that user cannot run the router: the user may not enter /"
    assert f"bin/qdrouterd: Can't become user nobody: {reason}" in done.stderr
    assert not shell.record.exists()


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ("os._exit(0)", "the detached router ended before it had started"),
        ("daemon.report('no \\udcff'); os._exit(0)", "no \\udcff"),
        ("daemon.report(None); os._exit(0)", "None"),
    ],
)
def test_parent_receives_outcome_of_daemon(ending, outcome):
    program = (
        "import os\n"
        "from sluice.router.cli.daemon import Daemon\n"
        "daemon = Daemon.detach()\n"
        f"if not daemon.is_parent: {ending}\n"
        "print(daemon.outcome())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{outcome}\n", "")
