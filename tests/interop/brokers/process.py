"""Base of the brokers: a child process on a chosen port of loopback that keeps its messages when it is killed."""

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
#: Folder into which scripts/interop-tools fetches programs.
TOOLS = ROOT / "build" / "interop"
#: Seconds, less than the limit of a test. A broker takes 3 to 10 alone, more where tests share processors and disk.
START_LIMIT = 100.0
STOP_LIMIT = 30.0
#: Protocol header of the SASL layer. A broker that speaks AMQP 1.0 answers with equal octets.
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


class BrokerError(Exception):
    """Raised when a broker fails to start or stop. The text has the end of its output."""


class BrokerUnavailable(Exception):
    """Raised when this machine cannot run a broker. The text has the reason."""


def require(path: Path, name: str) -> Path:
    """Return `path`, which scripts/interop-tools creates. Raises BrokerUnavailable with the reason of that script."""
    if path.exists():
        return path
    reason = TOOLS / f"{name}.missing"
    raise BrokerUnavailable(
        reason.read_text().strip() if reason.exists() else f"not fetched yet: scripts/interop-tools {name}"
    )


class BrokerProcess(ABC):
    """Broker with its files in `directory`. An attach creates the queue that it names."""

    #: Name of the product.
    name: str
    user: str | None = None
    password: str | None = None

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()  # kept over restarts: a port chosen by the broker would change
        self._process: subprocess.Popen[bytes] | None = None
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Write the configuration. Raises `BrokerUnavailable`."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that runs the broker in the foreground."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return the environment of the broker."""

    @property
    def url(self) -> str:
        """URL of the broker: amqp://[USER:PASSWORD@]127.0.0.1:PORT."""
        who = f"{self.user}:{self.password}@" if self.user else ""
        return f"amqp://{who}127.0.0.1:{self.port}"

    def existing(self, queue: str) -> str:
        """Return an address for an existing queue. An attach to this address declares no queue."""
        return queue

    def wait_until_kept(self, queue: str) -> None:  # noqa: B027 - by default there is no wait
        """Wait until a new durable queue would survive `kill`. Raises BrokerError."""

    @property
    def log(self) -> Path:
        """File with the standard output and standard error of the broker."""
        return self.directory / "output.log"

    @property
    def alive(self) -> bool:
        """True while the process of the broker runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker and wait until it speaks AMQP. Raises BrokerError."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Start the broker in a session of its own, so that no child process of it survives `kill`."""
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
        """Wait until the broker answers the AMQP header. Raises BrokerError."""
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
        """Stop the broker with SIGTERM; it can be started again.

        Kills the broker and raises BrokerError if it does not exit within STOP_LIMIT.
        """
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
        """Stop the broker for the last time, with SIGTERM."""
        self.end()

    def kill(self) -> None:
        """Kill the broker at once, as a power failure would."""
        if self._process is not None:
            self._end_session()
            self._process.wait()

    def restart(self) -> None:
        """Kill the broker and start it again. Durable queues and messages survive."""
        self.kill()
        self.start()

    def signal_broker(self, number: int) -> None:
        """Send a signal to the process of the broker, which may be a child of the started process."""
        assert self._process is not None
        self._process.send_signal(number)

    def _end_session(self) -> None:
        """Kill the remaining processes of the process group created by `spawn`."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def logs(self) -> list[Path]:
        """Return the files that say why the broker did not start: by default that with its output."""
        return [self.log]

    def tail(self) -> str:
        """Return the last 3,000 characters of each log."""
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.logs() if path.exists())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
