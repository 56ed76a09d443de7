"""Processes that a benchmark starts and ends: byte relay, router, load generator.

Each process is ended by its own id. Nothing here looks processes up by name.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loadtests.configuration import router_configuration

ROOT = Path(__file__).resolve().parent.parent
WIRE = ROOT / "loadtests" / "wire"
AMQPLOAD = WIRE / "build" / "amqpload"
RELAY = WIRE / "build" / "relay"
RELAY_BUFFER = 65536  # octets
DEFAULT_ROUTER = (str(ROOT / ".venv" / "bin" / "sluice"), "run")

START_LIMIT = 30.0  # seconds until "Listening on": far above the bar of 1 s, so that a slow start is still measured
STOP_LIMIT = 20.0  # seconds to exit after SIGTERM
RUN_LIMIT = 400.0  # seconds for one run of the generator; the longest (10 GB at 100 MB/s) takes 100
LOG_LINES_KEPT = 40
LISTENING = re.compile(r"Listening on \S*?:(\d+)")
RELOADED = re.compile(r"Configuration reloaded from|The configuration stays as it is")


class MeasureError(Exception):
    """Raised if a process did not start, ended early, or reported a fault. The text names it and the reason."""


def build_tools() -> None:
    """Compile amqpload and relay if needed. Raises MeasureError with the compiler's output."""
    made = subprocess.run(["make", "-s", "-C", str(WIRE)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise MeasureError(f"make -C {WIRE} failed:\n{made.stderr.strip()}")


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Relay:
    """Byte relay: `pid`, `sender_port` and `receiver_port` after entry.

    beyond: a second relay that octets from the sender's side pass as well, as a model of a hop. onward: port to which
    each connection is relayed; there is no `receiver_port`.
    """

    pid: int
    sender_port: int
    receiver_port: int

    def __init__(self, beyond: Relay | None = None, onward: int | None = None) -> None:
        self._beyond = beyond
        self._onward = onward if beyond is None else beyond.sender_port

    def __enter__(self) -> Self:
        words = [str(RELAY)]
        if self._onward is not None:
            words += [str(RELAY_BUFFER), str(self._onward)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.pid = self._process.pid
        line = self._process.stdout.readline()
        if not line:
            raise MeasureError(f"the relay ended with status {self._process.wait()} before it listened")
        ports = json.loads(line)
        self.sender_port = ports["sender_port"]
        if self._beyond is not None:
            self.receiver_port = self._beyond.receiver_port
        elif self._onward is None:
            self.receiver_port = ports["receiver_port"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()

    def load(self, **options: object) -> dict[str, Any]:
        """Run amqpload directly through the relay. Return its report."""
        return load(port=self.sender_port, receiver_port=self.receiver_port, direct=True, **options)


class BenchRouter:
    """Router process with its own configuration, started on entry and stopped on exit.

    After entry: `port` (of the first listener), `ports` (of all, in their order), `pid`, `configuration` (its file),
    `start_seconds` (from exec to the log line with the last port).
    """

    port: int
    pid: int
    configuration: Path
    start_seconds: float

    def __init__(self, workers: int, command: Sequence[str] = DEFAULT_ROUTER, text: str | None = None) -> None:
        """Prepare the router. text: the configuration; None: that of the benchmark."""
        self._reloads = threading.Semaphore(0)  # reloads reported in the log
        self._text = router_configuration(workers) if text is None else text
        self._command = list(command)
        self._lines: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._listening = threading.Event()
        self.ports: list[int] = []
        self._listeners = self._text.count("listener {")

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="bench-")
        self.configuration = Path(self._directory.name) / "bench.conf"
        self.configuration.write_text(self._text)
        self._start()
        return self

    def _start(self) -> None:
        before = time.monotonic()
        try:
            self._process = subprocess.Popen(
                [*self._command, "-c", str(self.configuration)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=ROOT,
                start_new_session=True,  # only the measuring program gets Ctrl-C; it stops the router
            )
        except OSError as error:
            self._directory.cleanup()
            raise MeasureError(f"cannot start the router: {error}") from error
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self._listening.wait(START_LIMIT)
        self.start_seconds = time.monotonic() - before
        if len(self.ports) < self._listeners:
            output = "\n".join(self._lines)
            self._stop()
            raise MeasureError(f"the router did not listen within {START_LIMIT:g} s; its output:\n{output}")
        self.port = self.ports[0]

    def kill_and_restart(self) -> None:
        """Kill the router with SIGKILL and start it again. Raises MeasureError.

        Clients find it on the same port only if the configuration names the port.
        """
        self._process.kill()
        self._process.wait()
        self._reader.join(STOP_LIMIT)
        self._listening.clear()
        self.ports.clear()
        self._start()

    def _read_log(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip())
            if RELOADED.search(line):
                self._reloads.release()
            if len(self.ports) < self._listeners and (found := LISTENING.search(line)):
                self.ports.append(int(found.group(1)))
                if len(self.ports) == self._listeners:
                    self._listening.set()
        self._listening.set()  # at the end of the log, `__enter__` must not wait any longer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        early = self._process.poll()
        stopped = self._stop()
        if kind is None and early is not None:
            output = "\n".join(self._lines)
            raise MeasureError(f"the router ended by itself with status {early}; its output:\n{output}")
        if kind is None and not stopped:
            raise MeasureError(f"the router did not stop within {STOP_LIMIT:g} s of SIGTERM and was killed")

    def _stop(self) -> bool:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT)
            clean = True
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            clean = False
        self._reader.join(STOP_LIMIT)
        self._directory.cleanup()
        return clean

    def hang_up(self) -> None:
        """Send SIGHUP and wait until the log reports a reload. Raises MeasureError."""
        self._process.send_signal(signal.SIGHUP)
        if not self._reloads.acquire(timeout=START_LIMIT):
            raise MeasureError(f"no reload within {START_LIMIT:g} s of SIGHUP")

    def load(self, **options: object) -> dict[str, Any]:
        """Run amqpload against the router; its report includes CPU and memory of the router's processes."""
        return load(port=self.port, pid=self.pid, **options)

    def start_load(self, **options: object) -> subprocess.Popen[str]:
        """Start amqpload in the background; `finish_load` waits for it."""
        return start_load({"port": self.port, "pid": self.pid, **options})


def arguments(options: Mapping[str, object]) -> list[str]:
    """Return amqpload's command line:

    `max_frame=512` is --max-frame 512, `direct=True` is --direct, False is omitted.
    """
    words: list[str] = []
    for name, value in options.items():
        if value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


def start_load(options: Mapping[str, object]) -> subprocess.Popen[str]:
    """Start amqpload in the background."""
    words = [str(AMQPLOAD), *arguments(options)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_load(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for amqpload; return its report. Raises MeasureError if it found a fault."""
    try:
        out, complaints = process.communicate(timeout=RUN_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise MeasureError(f"amqpload took longer than {RUN_LIMIT:g} s: {process.args!r}") from None
    if process.returncode:
        raise MeasureError(complaints.strip() or f"amqpload ended with status {process.returncode}")
    report: dict[str, Any] = json.loads(out)
    return report


def load(**options: object) -> dict[str, Any]:
    """Run amqpload to its end; return its report. Raises MeasureError if it found a fault."""
    return finish_load(start_load(options))


def cpu_model() -> str:
    """Return the processor's name and the number of processors that this process may use."""
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{names[0] if names else os.uname().machine}, {len(os.sched_getaffinity(0))} usable CPUs"
