"""qdrouterd's options, exit codes, detaching and signals (management.md 3.1, 3.3, 3.4)."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.interop.dispatch.node import ManagementNode
from tests.interop.dispatch.programs import program, run
from tests.system.router import RouterProcess, free_port, listener, poll

Start = Callable[..., RouterProcess]


@pytest.mark.parametrize("option", ["-v", "--version", "--vers"])
def test_version_option_prints_version(option: str) -> None:
    ran = run("qdrouterd", option)
    assert ran.code == 0
    assert re.fullmatch(r"\d+\.\d+\S*\n", ran.out)
    assert ran.err == ""


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_option_prints_usage(option: str) -> None:
    ran = run("qdrouterd", option)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == f"Usage: {program('qdrouterd')} [OPTIONS]"
    assert lines[1] == ""
    order = ["--config", "--include", "--daemon", "--pidfile", "--user", "--test-hooks", "--version", "--help"]
    places = [ran.out.index(option) for option in order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nosuch"], "unrecognized option '--nosuch'"),
        (["-x"], "invalid option -- 'x'"),
        (["-c"], "option requires an argument -- 'c'"),
        (["--config"], "option '--config' requires an argument"),
        (["a", "b"], "Unexpected arguments: a b"),
    ],
)
def test_wrong_command_line_prints_usage_and_fails(arguments: list[str], said: str) -> None:
    ran = run("qdrouterd", *arguments)
    assert ran.code == 1
    assert said in ran.err
    assert ran.out.startswith(f"Usage: {program('qdrouterd')} [OPTIONS]\n\n")


def test_options_act_from_left_to_right() -> None:
    assert run("qdrouterd", "-v", "--nosuch").code == 0
    assert run("qdrouterd", "--nosuch", "-v").code == 1


def test_missing_library_path_is_refused(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    ran = run("qdrouterd", "-I", str(gone))
    assert ran.code == 1
    assert ran.last_error.startswith(f"{program('qdrouterd')}: Cannot find Python library path '{gone}'")
    file = tmp_path / "file"
    file.write_text("")
    ran = run("qdrouterd", "-I", str(file))
    assert ran.code == 1
    said = f"{program('qdrouterd')}: Run Time: Python library path '{file}' not a directory"
    assert ran.last_error.startswith(said)


def stop_detached(pid: int) -> None:
    """Stop a detached router if it is still running, and wait until it has exited."""
    try:
        process = psutil.Process(pid)
        process.terminate()
    except psutil.NoSuchProcess:
        return
    poll(lambda: not process.is_running(), "the detached router ended", 15)


# --- detached -----------------------------------------------------------------------------------------------------


@pytest.fixture
def start_detached(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Factory start_detached(*options): runs qdrouterd with -d and -P and returns the process id.

    The exit code has to be 0. The routers are stopped after the test.
    """
    found: list[int] = []

    def begin(*options: str, cwd: Path | None = None) -> int:
        pidfile = tmp_path / "router.pid"
        ran = run("qdrouterd", "-d", "-P", str(pidfile), *options, cwd=cwd)
        if pidfile.exists():
            found.append(int(pidfile.read_text()))
        assert (ran.code, ran.out, ran.err) == (0, "", "")
        return found[-1]

    yield begin
    for pid in found:
        stop_detached(pid)


def config_file(directory: Path, port: int, log: str) -> Path:
    """Write a configuration file for a detached router."""
    path = directory / "detached.conf"
    path.write_text(
        f"listener {{\n    host: 127.0.0.1\n    port: {port}\n}}\n"
        f"log {{\n    module: DEFAULT\n    enable: info+\n    outputFile: {log}\n}}\n"
    )
    return path


def test_detached_router_writes_pid_file(tmp_path: Path, start_detached: Callable[..., int]) -> None:
    """The program exits with 0 when the configuration is valid.

    The router has its own session, cwd / and null devices; its pid file has mode 0666 and is never removed.
    """
    port = free_port()
    path = config_file(tmp_path, port, str(tmp_path / "router.log"))
    pid = start_detached("-c", path.name, cwd=tmp_path)
    pidfile = tmp_path / "router.pid"
    assert pidfile.read_text() == f"{pid}\n"
    assert stat.S_IMODE(pidfile.stat().st_mode) == 0o666
    process = psutil.Process(pid)
    assert process.cwd() == "/"
    assert os.getsid(pid) != os.getsid(0)
    assert [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)] == ["/dev/null"] * 3
    poll(lambda: "Listening on" in (tmp_path / "router.log").read_text(), "the detached router listens", 15)
    node = ManagementNode.connect(port)
    assert node.one("router")["mode"] == "standalone"
    node.close()
    process.terminate()
    poll(lambda: not process.is_running(), "the detached router ended", 15)
    assert pidfile.exists()


def test_detached_router_with_bad_file_fails(tmp_path: Path) -> None:
    """The program prints one line on stderr and exits with 1; the pid file exists nevertheless."""
    path = tmp_path / "bad.conf"
    path.write_text("nosuch {\n}\n")
    pidfile = tmp_path / "bad.pid"
    ran = run("qdrouterd", "-d", "-c", str(path), "-P", str(pidfile))
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith(f"{program('qdrouterd')}: ")
    assert "No such entity type 'org.apache.qpid.dispatch.nosuch'" in ran.err
    assert pidfile.exists()


def test_detached_router_without_pid_file_or_user_fails(tmp_path: Path) -> None:
    path = config_file(tmp_path, 0, str(tmp_path / "router.log"))
    assert run("qdrouterd", "-d", "-c", str(path), "-P", "/nonexistent/dir/pid").code == 1
    assert run("qdrouterd", "-d", "-c", str(path), "-U", "no-such-user-here").code == 1


# --- output and signals -------------------------------------------------------------------------------------------

#: Log lines of a start, in order.
FIRST_LINES = [
    r"SERVER \(info\) Container Name: QDR",
    r"ROUTER \(info\) Router started in Standalone mode",
    r"ROUTER \(info\) Version: ",
    r"ROUTER_CORE \(info\) Router Core thread running. 0/QDR",
    r"AGENT \(info\) Activating management agent on \$_management_internal",
    r"POLICY \(info\) Policy configured maxConnections: 65535, policyDir: '',access rules enabled: 'false', "
    r"use hostname patterns: 'false'",
    r"CONN_MGR \(info\) Configured Listener: 127.0.0.1:0 proto=any, role=normal",
    r"SERVER \(notice\) Operational, 3 Threads Running \(process ID \d+\)",
    r"SERVER \(notice\) Process VmSize \S+ \S+ \(\S+ \S+ available memory\)",
    r"SERVER \(notice\) Listening on 127.0.0.1:",
]


def test_startup_log_lines_keep_order(start: Start) -> None:
    router = start(workers=3)
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} [+-]\d{4} "
    places = []
    for wanted in FIRST_LINES:
        found = [number for number, line in enumerate(router.lines) if re.match(stamp + wanted, line)]
        assert found, f"no line {wanted!r} in\n{router.log}"
        places.append(found[0])
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGQUIT, 0), (signal.SIGINT, -signal.SIGINT)], ids=str
)
def test_stop_signal_closes_connections(start: Start, number: int, code: int) -> None:
    """The router logs the shutdown, closes connections and leaves nothing behind; SIGINT is visible to the shell."""
    router = start(workers=2)
    node = ManagementNode.connect(router.port)
    os.kill(router.pid, number)
    assert router.wait_exit() == code
    assert re.search(r"SERVER \(notice\) Shut Down", router.log)
    assert re.search(r"SERVER \(info\) \[C1\] Closing connection on shutdown", router.log)
    assert re.search(r"ROUTER_CORE \(info\) Router Core thread exited", router.log)
    router.check_nothing_left()
    connection: Any = node.connection.conn
    connection.free()


def test_hangup_keeps_router_running(start: Start) -> None:
    router = start(workers=2)
    os.kill(router.pid, signal.SIGHUP)
    node = ManagementNode.connect(router.port)
    assert node.one("router")["id"] == "QDR"
    node.close()
    router.stop()


def test_required_listener_on_taken_port_stops_router(start: Start, tmp_path: Path) -> None:
    """The log has an error and a critical line, and the exit code is 1."""
    holder = start()
    path = tmp_path / "second.conf"
    path.write_text(f"listener {{\n    host: 127.0.0.1\n    port: {holder.port}\n}}\n")
    ran = run("qdrouterd", "-c", str(path))
    assert ran.code == 1
    where = f"127.0.0.1:{holder.port}"
    assert re.search(rf"SERVER \(error\) Listener error on {where}: ", ran.err)
    assert re.search(rf"SERVER \(critical\) Shutting down, required listener failed {where}", ran.err)


def test_later_listener_on_taken_port_is_logged(start: Start) -> None:
    """Only the first listener is required (docs/decisions/0009); without a later one the router works."""
    holder = start()
    sections = [listener(), ("listener", {"host": "127.0.0.1", "port": holder.port, "name": "taken"})]
    directory = holder.directory.parent / "second"
    directory.mkdir()
    router = RouterProcess(directory, sections)
    router.spawn()
    router.wait_log(rf"SERVER \(error\) Listener error on 127.0.0.1:{holder.port}: ")
    port = int(router.wait_log(r"Listening on \S*?:(\d+)")[1])
    node = ManagementNode.connect(port)
    assert len(node.rows("listener")) == 2
    node.close()
    router.stop()


# brokers-and-edge.md L-3.
def test_named_listeners_appear_in_log(start: Start) -> None:
    router = start([listener("l0"), listener("l1")])
    assert set(router.ports) == {"l0", "l1"}
