"""What the brokers share: a process of ours that listens on a port of ours and keeps its messages when it is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.system.router import free_port

ROOT = Path(__file__).resolve().parents[3]
#: Where scripts/interop-tools puts what it fetches.
TOOLS = ROOT / "build" / "interop"
START_LIMIT = 60.0  # seconds; each takes 3 to 10, more where many tests share the processors
STOP_LIMIT = 30.0
#: Header of the SASL layer; a broker that speaks AMQP 1.0 answers with the same eight octets.
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


class BrokerError(Exception):
    """The broker did not do as told; the text has the end of what it wrote."""


class Unavailable(Exception):
    """This machine cannot run the broker; the text says why."""


def require(path: Path, name: str) -> Path:
    """The path, if scripts/interop-tools has made it. Raises Unavailable with its reason."""
    if path.exists():
        return path
    reason = TOOLS / f"{name}.missing"
    raise Unavailable(
        reason.read_text().strip() if reason.exists() else f"not fetched yet: scripts/interop-tools {name}"
    )


class Broker(ABC):
    """A broker with its files in `directory`. Names of its queues are made on attach."""

    #: What people call it.
    name: str
    user: str | None = None
    password: str | None = None

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()  # kept over restarts, so the broker cannot choose one itself
        self._process: subprocess.Popen[bytes] | None = None
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Write the configuration. Raises Unavailable."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that runs it in the foreground."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Its environment."""

    @property
    def url(self) -> str:
        """amqp://[USER:PASSWORD@]127.0.0.1:PORT."""
        who = f"{self.user}:{self.password}@" if self.user else ""
        return f"amqp://{who}127.0.0.1:{self.port}"

    def existing(self, queue: str) -> str:
        """The address of a queue that exists already; attaching to it declares nothing."""
        return queue

    def wait_until_kept(self, queue: str) -> None:  # noqa: B027 - most brokers have nothing to wait for
        """Wait until a durable queue outlives `kill`. Raises BrokerError."""

    @property
    def log(self) -> Path:
        """What it writes on standard output and standard error."""
        return self.directory / "output.log"

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and wait until it speaks AMQP. Raises BrokerError."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Start it in a session of its own, so that nothing it starts outlives `kill`."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                env=self.environment(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Wait until it answers AMQP's header."""
        deadline = time.monotonic() + START_LIMIT
        while not self._speaks():
            if not self.alive:
                raise BrokerError(f"{self.name} ended before it listened:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError(f"{self.name} did not listen within {START_LIMIT:g} s:\n{self.tail()}")
            time.sleep(0.1)

    def _speaks(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2.0) as peer:
                peer.sendall(SASL_HEADER)
                return peer.recv(8) == SASL_HEADER
        except OSError:
            return False

    def end(self) -> None:
        """Stop in order, to be started again; killed when that takes too long."""
        if self._process is None:
            return
        self.signal_broker(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"{self.name} did not stop within {STOP_LIMIT:g} s:\n{self.tail()}") from None
        self._end_session()

    def stop(self) -> None:
        """Stop in order, for good."""
        self.end()

    def kill(self) -> None:
        """End it at once, as a power failure would."""
        if self._process is not None:
            self._end_session()
            self._process.wait()

    def restart(self) -> None:
        """Kill and start again; durable queues and messages come back."""
        self.kill()
        self.start()

    def signal_broker(self, number: int) -> None:
        """Send a signal to the process that is the broker."""
        assert self._process is not None
        self._process.send_signal(number)

    def _end_session(self) -> None:
        """Kill what is left of the process group that `spawn` made."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def tail(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
