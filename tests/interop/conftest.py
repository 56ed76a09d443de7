"""Fixtures of the interoperability tests: a router per worker count, and third-party clients in their own processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import Artemis, BrokerProcess, BrokerUnavailable, RabbitMQ
from tests.interop.brokers.process import TOOLS, require
from tests.system.router import SETTINGS, RouterProcess, listener
from tests.worker_counts import pytest_collection_modifyitems, pytest_generate_tests

__all__ = ["pytest_collection_modifyitems", "pytest_generate_tests"]

HERE = Path(__file__).resolve().parent
#: Time limit in seconds for one client; a client that waits for a message that never comes is killed after it.
CLIENT_TIMEOUT = 40.0


@pytest.fixture(scope="module")
def _shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    router = RouterProcess(tmp_path_factory.mktemp(f"interop{request.param}-"), [listener(), *SETTINGS], request.param)
    router.start()
    yield router
    router.stop()


@pytest.fixture
def router(_shared: RouterProcess) -> RouterProcess:
    """Router with the usual address settings, shared by a test module."""
    return _shared


class ClientProgram:
    """Running client program. Each line on its stderr is an event to wait for; its stdout is one JSON value."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.errors: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.errors.append(line.rstrip("\n"))
                self._news.notify_all()

    def wait_for(self, text: str) -> None:
        """Wait for the line `text` on stderr."""
        with self._news:
            if not self._news.wait_for(lambda: text in self.errors, CLIENT_TIMEOUT):
                raise AssertionError(f"no {text!r} from {self.arguments}: {self.errors}")

    def result(self) -> Any:
        """Wait for a successful exit and return the printed JSON value. Raises AssertionError if the program failed."""
        assert self.process.stdout is not None
        try:
            code = self.process.wait(CLIENT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"{self.arguments} did not finish: {self.errors}") from None
        output = self.process.stdout.read()
        self._reader.join()
        assert code == 0, f"{self.arguments} ended with {code}: {self.errors}"
        return json.loads(output)

    def failure(self) -> str:
        """Wait for an exit with an error and return its stderr. Raises AssertionError if the program succeeded."""
        try:
            code = self.process.wait(CLIENT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"{self.arguments} did not finish: {self.errors}") from None
        self._reader.join()
        assert code != 0, f"{self.arguments} has not failed: {self.errors}"
        return "\n".join(self.errors)

    def stop(self) -> None:
        """Kill the program if it is still running."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class ClientLauncher:
    """Launcher of programs of one client library.

    `command` returns the command line for a program's name. All programs are killed at the end of the test.
    """

    def __init__(self, command: Callable[[str], list[str]]) -> None:
        self.command = command
        self.running: list[ClientProgram] = []

    @staticmethod
    def for_proton() -> ClientLauncher:
        """Return the launcher of the programs in `qpid_proton`."""
        return ClientLauncher(lambda name: [sys.executable, str(HERE / "qpid_proton" / f"{name}.py")])

    def __call__(self, name: str, *arguments: Any) -> ClientProgram:
        client = ClientProgram([*self.command(name), *map(str, arguments)])
        self.running.append(client)
        return client

    def stop(self) -> None:
        """Kill all programs that are still running."""
        for client in self.running:
            client.stop()


@pytest.fixture
def proton() -> Iterator[ClientLauncher]:
    """Launcher of the programs with python-qpid-proton."""
    pytest.importorskip("proton", reason="python-qpid-proton is not installed")
    clients = ClientLauncher.for_proton()
    yield clients
    clients.stop()


@pytest.fixture(scope="session")
def _node_interpreter() -> str:
    """Path of the node interpreter. Installs the packages of package-lock.json."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    if not (HERE / "node_modules" / "rhea").is_dir():
        installed = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if installed.returncode:
            pytest.skip(f"npm ci failed: {installed.stderr[-300:]}")
    return node


@pytest.fixture
def rhea(_node_interpreter: str) -> Iterator[ClientLauncher]:
    """Launcher of the programs with rhea."""
    clients = ClientLauncher(lambda name: [_node_interpreter, str(HERE / "rhea" / f"{name}.js")])
    yield clients
    clients.stop()


def require_tool(path: Path, name: str) -> Path:
    """Return `path`, which scripts/interop-tools creates. Skips the test, with the reason, if it does not exist."""
    try:
        return require(path, name)
    except BrokerUnavailable as error:
        pytest.skip(f"{name}: {error}")


@pytest.fixture
def jms() -> Iterator[ClientLauncher]:
    """Launcher of the commands of java/Client.java, with Qpid JMS."""
    classes = require_tool(TOOLS / "java" / "classes", "java")
    path = os.pathsep.join([str(classes), str(TOOLS / "java" / "jms" / "*")])
    # Without these options a client takes twice as long, a second: it compiles code that runs once.
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64M", "-cp", path, "Client"]
    clients = ClientLauncher(lambda name: [*command, name])
    yield clients
    clients.stop()


@pytest.fixture
def go() -> Iterator[ClientLauncher]:
    """Launcher of the commands of go/main.go, with go-amqp."""
    program = require_tool(TOOLS / "go" / "client", "go")
    clients = ClientLauncher(lambda name: [str(program), name])
    yield clients
    clients.stop()


@pytest.fixture
def rust() -> Iterator[ClientLauncher]:
    """Launcher of the commands of rust/src/main.rs, with fe2o3-amqp."""
    program = require_tool(TOOLS / "rust" / "debug" / "client", "rust")
    clients = ClientLauncher(lambda name: [str(program), name])
    yield clients
    clients.stop()


def run_broker(kind: type[BrokerProcess], factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Run a broker of a kind until the end of the session. Skips the test if the broker is unavailable."""
    try:
        broker = kind(factory.mktemp(kind.name.lower()))
    except BrokerUnavailable as error:
        pytest.skip(f"{kind.name}: {error}")
    with broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """RabbitMQ for all tests. A test that kills it has to start it again."""
    yield from run_broker(RabbitMQ, tmp_path_factory)


@pytest.fixture(scope="session")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """ActiveMQ Artemis for all tests. A test that kills it has to start it again."""
    yield from run_broker(Artemis, tmp_path_factory)
