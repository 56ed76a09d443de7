"""A router process for tests: configuration, start and stop with checks, waiting for the log, its process family."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from tests.system import fork_server

ROOT = Path(__file__).resolve().parents[2]
#: Seconds for a router to start (Python start-up of several processes on a busy machine), and to stop.
START_TIMEOUT = 30.0
STOP_TIMEOUT = 15.0
#: Poll interval in s for conditions without an event (processes of other programs, counters in /proc).
POLL = 0.02
#: Lowest port to choose. Ports below it belong to well-known services.
LOWEST_PORT = 11000

#: Section of the configuration: its name and attributes.
Section = tuple[str, dict[str, Any]]

#: Address settings that docs/spec/routing-semantics.md presumes.
SETTINGS: list[Section] = [
    ("address", {"prefix": name, "distribution": name}) for name in ("closest", "balanced", "multicast", "unavailable")
]
#: Group of a vhost whose users may do everything.
EVERYTHING: dict[str, Any] = {
    "users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True,
    "allowAnonymousSender": True,
}  # fmt: skip
#: Router section that lets management name files.
FILES: Section = ("router", {"allowFilesByManagement": True})


def listener(name: str | None = None, **attributes: Any) -> Section:
    """Return a listener on a free loopback port. Tests find the port by its name. Attributes that are None are omitted.

    Scripted peers send no empty frames, and a busy machine may delay a peer beyond the default idle time-out.
    """
    named = {"name": name} if name else {}
    patient = {} if "role" in attributes else {"idleTimeoutSeconds": 120}
    given = {"host": "127.0.0.1", "port": 0, **named, **patient, **attributes}
    return "listener", {key: value for key, value in given.items() if value is not None}


def render(sections: Iterable[Section]) -> str:
    """Return the text of a configuration file. Booleans become yes and no, nested maps JSON."""
    lines = []
    for section, attributes in sections:
        lines.append(f"{section} {{")
        for name, value in attributes.items():
            if isinstance(value, dict):
                lines.extend("    " + line for line in f"{name}: {json.dumps(value, indent=4)}".splitlines())
            else:
                lines.append(f"    {name}: {_text(value)}")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def command() -> list[str]:
    """Return the command that starts the router: the installed command, or else the module with this Python."""
    installed = ROOT / ".venv" / "bin" / "sluice"
    if installed.exists():
        return [str(installed)]
    return [sys.executable, "-m", "sluice.router.cli.main"]


def poll(condition: Callable[[], Any], what: str, timeout: float = 10.0) -> Any:
    """Evaluate `condition()` repeatedly until it is true, and return its value; for conditions without an event."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {timeout} s: {what}")
        threading.Event().wait(POLL)
    return value


class RouterProcess:
    """A supervisor process with its family.

    The `router` section is written here (id QDR, workerThreads); such a section among `sections` adds to it.
    text: replaces the whole configuration.
    options: additional command-line options.
    program: words that start the command.
    complete: adds sections to each configuration.
    """

    def __init__(
        self,
        directory: Path,
        sections: Iterable[Section],
        workers: int = 1,
        text: str | None = None,
        options: Sequence[str] = (),
        complete: Callable[[Iterable[Section]], Iterable[Section]] = tuple,
        program: Sequence[str] = (),
    ) -> None:
        self.workers = workers
        self.options = options
        self.program: Sequence[str] = program or command()
        self.complete = complete
        self.directory = directory
        self.config = directory / "sluice.conf"
        if text is None:
            self.configure(sections)
        else:
            self.config.write_text(text)
        self.lines: list[str] = []
        self.ports: dict[str, int] = {}
        self._news = threading.Condition()
        self._ended = False
        self._process: fork_server.ForkedProcess | subprocess.Popen[bytes] | None = None
        self._session = 0
        self._reader: threading.Thread | None = None
        self._sockets: dict[str, str] = {}

    def configure(self, sections: Iterable[Section]) -> None:
        """Write the configuration file. A running router reads it only on reload."""
        given = list(self.complete(sections))
        own: dict[str, Any] = {"id": "QDR", "workerThreads": self.workers}
        for name, attributes in given:
            if name == "router":
                own.update(attributes)
        self.config.write_text(render([("router", own), *(one for one in given if one[0] != "router")]))

    # --- life -----------------------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the process without waiting for its listeners."""
        self._ended = False
        words = [*self.program, "run", "-c", str(self.config), *self.options]
        reading, writing = os.pipe()
        with open(os.devnull, "r+b") as null, open(writing, "wb") as stderr:
            streams = null.fileno(), null.fileno(), stderr.fileno()
            self._process = fork_server.start(words, self.environment(), self.directory, *streams)
        self._session = self._process.pid
        log = open(reading, errors="replace")  # noqa: SIM115 - closed by the reader thread
        self._reader = threading.Thread(target=self._read, args=(log,), daemon=True)
        self._reader.start()

    def environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.directory),
        }

    def start(self) -> None:
        """Start the process and wait until all configured listeners listen."""
        wanted = self.config.read_text().count("listener {")
        before = len(self.lines)
        self.spawn()
        seen = re.compile(r"Listening on \S*?:(\d+)(?: \(([\w-]+)\))?")

        def listening() -> bool:
            found = [match for line in self.lines[before:] if (match := seen.search(line))]
            self.ports = {match[2] or "": int(match[1]) for match in found}
            return len(found) >= wanted

        try:
            self.wait(listening, f"{wanted} listeners", START_TIMEOUT)
        except AssertionError:
            self.kill()
            raise

    def _read(self, log: IO[str]) -> None:
        with log:
            for line in log:
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        """Port of the unnamed listener."""
        return self.ports[""]

    @property
    def alive(self) -> bool:
        """True if the supervisor runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Text written to stderr so far."""
        with self._news:
            return "\n".join(self.lines)

    def wait(self, condition: Callable[[], Any], what: str, timeout: float = 10.0) -> Any:
        """Wait for a condition on the log, evaluated at every new line."""
        deadline = time.monotonic() + timeout
        with self._news:
            while not (value := condition()):
                left = deadline - time.monotonic()
                if left <= 0 or self._ended:
                    how = "the log ended" if self._ended else f"nothing within {timeout} s"
                    raise AssertionError(f"{how} while waiting for {what}; log:\n" + "\n".join(self.lines[-40:]))
                self._news.wait(left)
        return value

    def wait_log(self, pattern: str, timeout: float = 10.0, after: int = 0) -> re.Match[str]:
        """Wait for a matching line at index `after` or later."""
        search = re.compile(pattern)

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines[after:] if (match := search.search(line))), None)

        match: re.Match[str] = self.wait(found, f"log line {pattern!r}", timeout)
        return match

    def wait_exit(self, timeout: float = STOP_TIMEOUT) -> int:
        """Wait for the supervisor to exit, and return its exit code."""
        assert self._process is not None
        assert self._reader is not None
        code = self._process.wait(timeout)
        self._reader.join(STOP_TIMEOUT)
        return code

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Stop normally and check: exit code 0, no process or socket left, no traceback in the log."""
        if not self.alive:
            raise AssertionError(f"the router ended by itself with code {self.wait_exit()}; log:\n{self.tail()}")
        self._sockets = self.unix_sockets()
        os.kill(self.pid, signal_number)
        try:
            code = self.wait_exit()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not stop within {STOP_TIMEOUT} s; log:\n{self.tail()}") from None
        self.check_nothing_left()
        assert code == 0, f"exit code {code}; log:\n{self.tail()}"
        assert "Traceback (most recent call last)" not in self.log, self.tail(200)

    def check_nothing_left(self) -> None:
        """Check that no process of this router and none of its unix sockets is left. Kill remaining processes."""
        try:
            poll(lambda: not self.family(), "all processes of the router have ended", STOP_TIMEOUT)
        except AssertionError:
            left = [(process.pid, process.name()) for process in self.family()]
            self.kill()
            raise AssertionError(f"processes left after the end: {left}") from None
        still = set(_unix_table()) & set(self._sockets)
        assert not still, f"unix sockets left: {[self._sockets[inode] for inode in still]}"
        files = [path for path in self._sockets.values() if path.startswith("/") and Path(path).exists()]
        files += [str(path) for path in self.directory.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]
        assert not files, f"socket files left: {files}"

    def kill(self) -> None:
        """Kill the whole family, whatever its state."""
        for process in self.family():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if self._process is not None:
            self._process.wait(STOP_TIMEOUT)
        if self._reader is not None:
            self._reader.join(STOP_TIMEOUT)  # so that its end is not taken for the end of the next process

    def tail(self, count: int = 60) -> str:
        """Return the last `count` lines of the log."""
        with self._news:
            return "\n".join(self.lines[-count:])

    # --- the family -----------------------------------------------------------------------------------------------

    def family(self) -> list[psutil.Process]:
        """Return all living processes of this router's session, the supervisor included."""
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                # Tests call this often, and the machine has many processes: only the router's own are passed to psutil.
                if not self._session or os.getsid(int(name)) != self._session:
                    continue
                process = psutil.Process(int(name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return found

    def worker_pids(self) -> list[int]:
        """Return the pids of the leaves of the family tree, which are the processes that can hold TCP connections."""
        family = {process.pid: process for process in self.family()}
        parents = set()
        for process in family.values():
            try:
                parents.add(process.ppid())
            except psutil.NoSuchProcess:
                continue
        return sorted(pid for pid in family if pid not in parents and pid != self.pid)

    def owners(self) -> dict[int, int]:
        """Return the pid that owns the router's end of each connection, by the port of the other end."""
        # A single read: the table has the sockets of all tests that run in parallel, and thousands in TIME_WAIT.
        family = {process.pid for process in self.family()}
        table = psutil.net_connections("tcp4")
        return {each.raddr.port: int(each.pid) for each in table if each.pid in family and each.raddr}

    def workers_of(self, local_ports: set[int]) -> dict[int, int]:
        """Return the pid that owns the router's end of each connection, by the test's port."""

        def found() -> dict[int, int] | None:
            owners = self.owners()
            return {port: owners[port] for port in local_ports} if local_ports <= owners.keys() else None

        owners: dict[int, int] = poll(found, f"a process holds the connection from each port of {local_ports}")
        return owners

    def worker_of(self, local_port: int) -> int:
        """Return the pid that owns the router's end of the connection from the test's `local_port`."""
        return self.workers_of({local_port})[local_port]

    def descriptors(self) -> int:
        """Return the number of open file descriptors of the family."""
        return sum(_of(process, psutil.Process.num_fds) for process in self.family())

    def memory(self) -> int:
        """Return the private (unique) memory of the family in octets."""
        return sum(_of(process, lambda one: one.memory_full_info().uss) for process in self.family())

    def unix_sockets(self) -> dict[str, str]:
        """Return the named unix sockets of the family: inode -> path (abstract names begin with `@`)."""
        table = _unix_table()
        inodes: set[str] = set()
        for process in self.family():
            try:
                links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{process.pid}/fd")]
            except OSError:
                continue
            inodes.update(match[1] for link in links if (match := re.match(r"socket:\[(\d+)\]", link)))
        return {inode: path for inode, path in table.items() if inode in inodes}


def _of(process: psutil.Process, measure: Callable[[psutil.Process], int]) -> int:
    try:
        return measure(process)
    except psutil.NoSuchProcess:
        return 0


def _unix_table() -> dict[str, str]:
    """Return all named unix sockets of the machine: inode -> path."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[6]: row[7] for row in rows if len(row) > 7}


def free_port() -> int:
    """Return a free loopback port below the kernel's range for outgoing connections."""
    highest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(LOWEST_PORT, highest) if highest > 2 * LOWEST_PORT else 0
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return int(probe.getsockname()[1])
