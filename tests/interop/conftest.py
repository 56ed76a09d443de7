"""Fixtures of the interoperability tests: a router per worker count, other people's clients in their own processes."""

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

from tests.interop.brokers import Artemis, Broker, RabbitMQ, Unavailable
from tests.interop.brokers.process import TOOLS, require
from tests.system.router import SETTINGS, RouterProcess, listener
from tests.worker_counts import pytest_collection_modifyitems, pytest_generate_tests

__all__ = ["pytest_collection_modifyitems", "pytest_generate_tests"]

HERE = Path(__file__).resolve().parent
#: Seconds a client may take; a client that waits for something that never comes ends here.
CLIENT_TIMEOUT = 40.0


@pytest.fixture(scope="module")
def _shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    router = RouterProcess(tmp_path_factory.mktemp(f"interop{request.param}-"), [listener(), *SETTINGS], request.param)
    router.start()
    yield router
    router.stop()


@pytest.fixture
def router(_shared: RouterProcess) -> RouterProcess:
    """A router with the usual address settings, shared by a test module."""
    return _shared


class Client:
    """A client program. Lines of its stderr are events to wait for, its stdout is one JSON value."""

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
        """Wait for a line of stderr."""
        with self._news:
            if not self._news.wait_for(lambda: text in self.errors, CLIENT_TIMEOUT):
                raise AssertionError(f"no {text!r} from {self.arguments}: {self.errors}")

    def result(self) -> Any:
        """Wait for the end; gives what it printed. Fails when the client did."""
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
        """Wait for the end, which has to be an error; gives what it said."""
        try:
            code = self.process.wait(CLIENT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"{self.arguments} did not finish: {self.errors}") from None
        self._reader.join()
        assert code != 0, f"{self.arguments} has not failed: {self.errors}"
        return "\n".join(self.errors)

    def stop(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Clients:
    """Starts programs of one kind, each the command that `words` gives for its name; all are ended with the test."""

    def __init__(self, words: Callable[[str], list[str]]) -> None:
        self.words = words
        self.running: list[Client] = []

    @staticmethod
    def of_proton() -> Clients:
        """Programs with python-qpid-proton."""
        return Clients(lambda name: [sys.executable, str(HERE / "qpid_proton" / f"{name}.py")])

    def __call__(self, name: str, *arguments: Any) -> Client:
        client = Client([*self.words(name), *map(str, arguments)])
        self.running.append(client)
        return client

    def stop(self) -> None:
        """End what still runs."""
        for client in self.running:
            client.stop()


@pytest.fixture
def proton() -> Iterator[Clients]:
    """Programs with python-qpid-proton."""
    pytest.importorskip("proton", reason="python-qpid-proton is not installed")
    clients = Clients.of_proton()
    yield clients
    clients.stop()


@pytest.fixture(scope="session")
def _node() -> str:
    """The node interpreter, with the packages of package-lock.json installed."""
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
def rhea(_node: str) -> Iterator[Clients]:
    """Programs with rhea."""
    clients = Clients(lambda name: [_node, str(HERE / "rhea" / f"{name}.js")])
    yield clients
    clients.stop()


def fetched(path: Path, name: str) -> Path:
    """What scripts/interop-tools has made there; without it the test is skipped, with the reason."""
    try:
        return require(path, name)
    except Unavailable as error:
        pytest.skip(f"{name}: {error}")


@pytest.fixture
def jms() -> Iterator[Clients]:
    """The commands of java/Client.java, with Qpid JMS."""
    classes = fetched(TOOLS / "java" / "classes", "java")
    path = os.pathsep.join([str(classes), str(TOOLS / "java" / "jms" / "*")])
    # Half of the second that a client takes goes by without these: it compiles what it runs once.
    words = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64M", "-cp", path, "Client"]
    clients = Clients(lambda name: [*words, name])
    yield clients
    clients.stop()


@pytest.fixture
def go() -> Iterator[Clients]:
    """The commands of go/main.go, with go-amqp."""
    program = fetched(TOOLS / "go" / "client", "go")
    clients = Clients(lambda name: [str(program), name])
    yield clients
    clients.stop()


@pytest.fixture
def rust() -> Iterator[Clients]:
    """Commands of rust/src/main.rs, with fe2o3-amqp."""
    program = fetched(TOOLS / "rust" / "debug" / "client", "rust")
    clients = Clients(lambda name: [str(program), name])
    yield clients
    clients.stop()


def running(kind: type[Broker], factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker while the tests of the session run."""
    try:
        broker = kind(factory.mktemp(kind.name.lower()))
    except Unavailable as error:
        pytest.skip(f"{kind.name}: {error}")
    with broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """RabbitMQ, for all tests; one that kills it starts it again."""
    yield from running(RabbitMQ, tmp_path_factory)


@pytest.fixture(scope="session")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """ActiveMQ Artemis, for all tests; one that kills it starts it again."""
    yield from running(Artemis, tmp_path_factory)
