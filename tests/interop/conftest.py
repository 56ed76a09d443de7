"""Fixtures of the interoperability tests: a router per worker count, other people's clients in their own processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.router import SETTINGS, Router, listener

HERE = Path(__file__).resolve().parent
#: Seconds a client may take; a client that waits for something that never comes ends here.
CLIENT_TIMEOUT = 40.0


@pytest.fixture(scope="module", params=[1, 3], ids=["1-worker", "3-workers"])
def router(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A router with the usual address settings."""
    router = Router(tmp_path_factory.mktemp(f"interop{request.param}-"), [listener(), *SETTINGS], request.param)
    router.start()
    yield router
    router.stop()


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

    def stop(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Clients:
    """Starts programs of one kind; all are ended with the test."""

    def __init__(self, interpreter: str, folder: Path, suffix: str) -> None:
        self.interpreter = interpreter
        self.folder = folder
        self.suffix = suffix
        self.running: list[Client] = []

    def __call__(self, name: str, *arguments: Any) -> Client:
        program = self.folder / f"{name}{self.suffix}"
        client = Client([self.interpreter, str(program), *map(str, arguments)])
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
    clients = Clients(sys.executable, HERE / "qpid_proton", ".py")
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
    clients = Clients(_node, HERE / "rhea", ".js")
    yield clients
    clients.stop()
