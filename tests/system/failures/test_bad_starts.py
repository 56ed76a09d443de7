"""Failing starts: exit code 1 and an error that names cause and place (management.md 2.10, 3.5)."""

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, command, free_port, listener, render


@pytest.fixture
def taken() -> Iterator[int]:
    """Yield a port with another listener."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def expect_failed_start(directory: Path, text: str) -> str:
    """Start with this configuration, and return the log of the failed start: exit code 1, nothing left."""
    router = RouterProcess(directory, [], text=text)
    router.spawn()
    try:
        code = router.wait_exit(30)
    except subprocess.TimeoutExpired:
        router.kill()
        raise AssertionError(f"it started; log:\n{router.tail()}") from None
    router.check_nothing_left()
    assert code == 1, router.tail()
    assert "Traceback (most recent call last)" not in router.log, router.tail()
    return router.log


# brokers-and-edge.md L-4.
def test_taken_port_of_first_listener_fails_start(tmp_path: Path, taken: int) -> None:
    log = expect_failed_start(
        tmp_path, render([("router", {"id": "X"}), ("listener", {"host": "127.0.0.1", "port": taken})])
    )
    assert f"127.0.0.1:{taken}" in log
    assert re.search(r"in use", log)
    assert "required listener failed" in log


def test_taken_port_of_later_listener_is_logged(start: Start, taken: int) -> None:
    """Only the first listener is required; a later one is logged as failed."""
    port = free_port()
    text = (
        render(
            [
                ("router", {"id": "X", "workerThreads": 1}),
                ("listener", {"host": "127.0.0.1", "port": port}),
            ]
        )
        + f"listener{{\n    host: 127.0.0.1\n    port: {taken}\n    name: later\n}}\n"
    )
    router = start(text=text)
    router.wait_log(rf"Listener error on 127\.0\.0\.1:{taken}")
    AmqpPeer.opened(port).close()


#: Faulty configurations, and the pattern that the error must match in addition to the file.
FAULTS: dict[str, tuple[str, str]] = {
    "unknown section": ("router {\n    id: X\n}\nnonsense {\n    a: b\n}\n", r"nonsense"),
    "unknown attribute": ("router {\n    id: X\n    colour: red\n}\n", r"colour"),
    "not an integer": ("router {\n    id: X\n    workerThreads: many\n}\n", r"workerThreads|many"),
    "not a boolean": ("router {\n    id: X\n}\nlistener {\n    port: 0\n    http: perhaps\n}\n", r"http|perhaps"),
    "unknown value of an enumeration": ("router {\n    id: X\n    mode: sideways\n}\n", r"mode|sideways"),
    "two routers": ("router {\n    id: X\n}\nrouter {\n    id: Y\n}\n", r"router"),
    "twice the same listener": (
        "router {\n    id: X\n}\n" + "listener {\n    host: 127.0.0.1\n    port: 15999\n}\n" * 2,
        r"(?i)duplicate",
    ),
    "empty host in failoverUrls": (
        "router {\n    id: X\n}\nlistener {\n    host: 127.0.0.1\n    port: 0\n    failoverUrls: a,,b\n}\n",
        r"No network host in failover",
    ),
}

SYNTAX: dict[str, tuple[str, int]] = {
    "brace on its own line": ("router\n{\n    id: X\n}\n", 1),
    "section not closed": ("router {\n    id: X\n", 1),
    "closed twice": ("router {\n    id: X\n}\n}\n", 4),
    "two things on a line": ("router {\n    id: X }\n", 2),
    "no colon": ("router {\n    id X\n}\n", 2),
    "header with a dot": ("router {\n    id: X\n}\nrouter.config.address {\n    prefix: a\n}\n", 4),
    "quote in a value": ('router {\n    id: "X"\n}\n', 2),
    "unknown escape": ("router {\n    id: a\\q\n}\n", 2),
    "attribute outside of a section": ("id: X\n", 1),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_faulty_configuration_is_named(tmp_path: Path, name: str) -> None:
    text, named = FAULTS[name]
    log = expect_failed_start(tmp_path, text)
    assert re.search(named, log), log
    assert str(tmp_path / "sluice.conf") in log or "sluice.conf" in log or name == "empty host in failoverUrls"


@pytest.mark.parametrize("name", list(SYNTAX))
def test_syntax_errors_name_file_and_line(tmp_path: Path, name: str) -> None:
    text, line = SYNTAX[name]
    log = expect_failed_start(tmp_path, text)
    assert "sluice.conf" in log
    numbers = {int(found) for found in re.findall(r"(?:line |sluice\.conf:)(\d+)", log)}
    assert numbers & {line, line + 1}, log


def test_empty_file_fails_start(tmp_path: Path) -> None:
    assert "Configuration file was empty" in expect_failed_start(tmp_path, "")


def test_missing_file_fails_start(tmp_path: Path) -> None:
    found = subprocess.run(
        [*command(), "run", "-c", str(tmp_path / "none.conf")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=RouterProcess(tmp_path, []).environment(),
    )
    assert found.returncode == 1
    assert "none.conf" in found.stderr or "could not be opened" in found.stderr
    assert "Traceback" not in found.stderr


def test_configuration_without_listener_starts(tmp_path: Path) -> None:
    """A router section without listener is valid. Without the section the router would use the default port."""
    router = RouterProcess(tmp_path, [], text="# nothing\n\nrouter {\n    id: Q\n    workerThreads: 1\n}\n")
    router.spawn()
    try:
        router.wait_log(r"Operational")
        router.stop()
    finally:
        router.kill()


def test_unreadable_file_fails_start(tmp_path: Path) -> None:
    """A directory in place of the file is unreadable even for root."""
    (tmp_path / "sluice.conf").mkdir()
    found = subprocess.run(
        [*command(), "run", "-c", str(tmp_path / "sluice.conf")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=RouterProcess(tmp_path / "sluice.conf", []).environment(),
    )
    assert found.returncode == 1
    assert "Traceback" not in found.stderr


def test_foreign_listener_address_fails_start(tmp_path: Path) -> None:
    """The address 192.0.2.1 is on no machine; a forbidden address fails in the same way."""
    log = expect_failed_start(
        tmp_path, render([("router", {"id": "X"}), ("listener", {"host": "192.0.2.1", "port": 0})])
    )
    assert "192.0.2.1" in log


def test_unwritable_log_file_fails_start(tmp_path: Path) -> None:
    text = render([("router", {"id": "X"}), listener(), ("log", {"module": "DEFAULT", "outputFile": "/nowhere/x.log"})])
    assert "/nowhere/x.log" in expect_failed_start(tmp_path, text)
