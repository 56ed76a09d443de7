"""Programs started with closed standard input, output or error, as by cron, init scripts and supervisors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.peer.logins import write_users
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import pass_one
from tests.system.router import ROOT, RouterProcess, free_port, poll, render

BIN = ROOT / ".venv" / "bin"
CLOSED = ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"]


def words_of(name: str, *words: str) -> list[str]:
    """Return the command line of the installed program, or of its module without installation."""
    if (BIN / name).exists():
        return [str(BIN / name), *words]
    module = {"qdstat": "stat.main", "qdmanage": "manage", "sluice": "main"}.get(name, name)
    return [sys.executable, "-m", f"sluice.router.cli.{module}", *words]


def shell(closed: str, words: Sequence[str]) -> list[str]:
    return ["sh", "-c", f'exec "$@" {closed}', "sh", *words]


class FileLoggingRouter:
    """A router that logs to a file."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "router.log"
        self.port, self.people = free_port(), free_port()
        self.config = folder / "router.conf"
        sections = [
            ("router", {"id": "X", "workerThreads": 2}),
            ("listener", {"host": "127.0.0.1", "port": self.port, "saslMechanisms": "ANONYMOUS"}),
            ("saslUsers", {"name": "users", "file": folder / "users"}),
            (
                "listener",
                {"name": "people", "host": "127.0.0.1", "port": self.people, "saslUsers": "users"},
            ),
            ("log", {"module": "DEFAULT", "enable": "info+", "outputFile": self.log}),
        ]
        write_users(folder / "users", guest="secret")
        self.config.write_text(render(sections))
        self.process: psutil.Process | None = None

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def start(self, closed: str) -> None:
        started = subprocess.Popen(shell(closed, words_of("qdrouterd", "-c", str(self.config))))
        self.process = psutil.Process(started.pid)
        poll(lambda: self.text().count("Listening on") == 2 or started.poll() is not None, "the router listens", 30)
        assert started.poll() is None, self.text()

    def start_daemon(self, closed: str) -> None:
        pid = self.config.with_suffix(".pid")
        words = words_of("qdrouterd", "-d", "-P", str(pid), "-c", str(self.config))
        subprocess.run(shell(closed, words), check=True, timeout=60)
        self.process = psutil.Process(int(pid.read_text()))
        poll(lambda: self.text().count("Listening on") == 2, "the router listens", 30)

    def check(self) -> None:
        """Check that a message passes, and that no standard stream of a process is anything but a file or a pipe."""
        assert self.process is not None
        with AmqpPeer.opened(self.port) as peer:
            pass_one(peer.sender("a", credit=False), peer.receiver("a", 10))
        with AmqpPeer(self.people) as peer:  # the authentication process works
            assert peer.sasl("PLAIN", b"\0guest\0secret").code == 0
        for process in (self.process, *self.process.children(recursive=True)):
            for descriptor in range(3):
                target = os.readlink(f"/proc/{process.pid}/fd/{descriptor}")
                assert target.startswith(("/", "pipe:")), (process.name(), descriptor, target)

    def stop(self) -> None:
        if self.process is not None and self.process.is_running():
            self.process.terminate()
            psutil.wait_procs([self.process], 20)
            assert not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE
        assert "Traceback" not in self.text(), self.text()


@pytest.fixture
def logging_router(tmp_path: Path) -> Iterator[FileLoggingRouter]:
    made = FileLoggingRouter(tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("closed", CLOSED)
def test_router_with_closed_streams_runs(logging_router: FileLoggingRouter, closed: str) -> None:
    logging_router.start(closed)
    logging_router.check()


@pytest.mark.parametrize("closed", ["", "<&- >&- 2>&-"])
def test_daemon_with_closed_streams_runs(logging_router: FileLoggingRouter, closed: str) -> None:
    logging_router.start_daemon(closed)
    logging_router.check()


@pytest.mark.parametrize("closed", ["", "<&- >&- 2>&-"])
def test_startup_fault_is_logged(logging_router: FileLoggingRouter, tmp_path: Path, closed: str) -> None:
    """A module that only a router imports fails to load."""
    (tmp_path / "zmq.py").write_text("raise RuntimeError('this library is broken')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        shell(closed, words_of("qdrouterd", "-c", str(logging_router.config))),
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    log = logging_router.text()
    logging_router.log.unlink()
    assert "MAIN (critical) The router has ended after an internal error: RuntimeError('this library is broken')" in log
    assert "zmq.py" in log
    assert done.stderr.endswith("internal error: RuntimeError('this library is broken')\n") is not bool(closed)


def test_zygote_fault_is_logged(logging_router: FileLoggingRouter) -> None:
    program = f"""
from sluice.router.config.load import load
from sluice.router.log import ProcessLog
from sluice.supervisor.main import run
configuration = load({str(logging_router.config)!r})
log = ProcessLog(configuration.log_settings())
run(configuration, log, program="x", test_hooks=False, worker_module="no.such.module")
"""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=ROOT, timeout=60)
    assert done.returncode in (0, 1)
    log = logging_router.text()
    logging_router.log.unlink()
    assert re.search(r"SERVER \(critical\) Process \d+ of the router ends after an internal error", log)
    assert "ModuleNotFoundError: No module named 'no'" in log


def run(closed: str, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(shell(closed, words_of(name, *words)), capture_output=True, text=True, timeout=60)


def test_tool_with_lost_output_names_reason(router: RouterProcess, tmp_path: Path) -> None:
    config = tmp_path / "c.conf"
    config.write_text(render([("router", {"id": "X"}), ("listener", {"host": "localhost"})]))
    bus = ("-b", f"127.0.0.1:{router.port}")
    commands = [
        ("qdstat", *bus),
        ("qdmanage", *bus, "query", "--type=listener"),
        ("sluice", "explain", *bus, "a"),
        ("sluice", "version"),
        ("sluice", "check", str(config)),
        ("qdrouterd", "--version"),
        ("qdrouterd", "--help"),
    ]
    for where, reason in ((">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")):
        for words in commands:
            done = run(where, *words)
            assert (done.returncode, done.stderr) == (1, f"standard output: {reason}\n"), words


@pytest.mark.parametrize("words", [("qdstat",), ("qdmanage",), ("sluice",), ("sluice", "run"), ("sluice", "explain")])
def test_help_without_output_has_no_traceback(words: tuple[str, ...]) -> None:
    done = run(">&-", *words, "--help")
    assert (done.returncode, done.stderr) in ((0, ""), (1, "standard output: Bad file descriptor\n"))


def test_tool_with_unused_closed_streams_works(router: RouterProcess, tmp_path: Path) -> None:
    users = tmp_path / "users"
    made = subprocess.run(
        shell(">&- 2>&-", words_of("sluice", "passwd", "--iterations", "4096", str(users), "alice")),
        input="secret\n",
        text=True,
        timeout=60,
    )
    assert made.returncode == 0
    assert users.read_text()
    done = run("<&-", "qdstat", "-b", f"127.0.0.1:{router.port}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Router Statistics" in done.stdout


def test_tool_without_needed_input_names_reason(router: RouterProcess, tmp_path: Path) -> None:
    done = run("<&-", "sluice", "passwd", str(tmp_path / "users"), "alice")
    assert (done.returncode, done.stderr) == (1, "sluice passwd: the password cannot be read: Bad file descriptor\n")
    done = run("<&-", "qdmanage", "-b", f"127.0.0.1:{router.port}", "create", "--stdin")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "OSError: [Errno 9] Bad file descriptor\n"
