"""Supervisor's end of the telemetry process: starts and restarts the process, and exchanges lines of JSON with it.

The router never waits for the process. If the process does not read, its messages are not kept: it is killed, and
another process starts with the state at that time.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

from router.environment import child_environment
from router.log import ERROR, ProcessLog

MODULE: Final = "supervisor.telemetry.process"
LOG_MODULE: Final = "SERVER"
FIRST_PAUSE: Final = 0.1  # seconds before another process is started; doubled each time that a process exits early
MOST_PAUSE: Final = 60.0
OLD: Final = 30.0  # seconds after which an exit no longer counts as early
MOST_WAITING: Final = 64 << 20  # octets
READ_SIZE: Final = 1 << 18
MOST_LINE: Final = 16 << 20  # octets
END_SECONDS: Final = 5.0  # for its last files

Message = dict[str, Any]


class TelemetryProcess:
    """Telemetry process. Owner: the telemetry subsystem."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        region: int,
        log: ProcessLog,
        on_start: Callable[[], object],
        on_message: Callable[[Message], object],
    ) -> None:
        """name: of the program. region: descriptor of the memory region, open for reading. on_start: called for each
        new process, which has no data yet.
        """
        self._loop: Final = loop
        self._name: Final = f"{name}-tel"
        self._region: Final = region
        self._log: Final = log
        self._on_start: Final = on_start
        self._on_message: Final = on_message
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._socket: socket.socket | None = None
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._pause = FIRST_PAUSE
        self._started = 0.0
        self._restart: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Return the pid of the process, or None."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start a process. It shares only a socket and the counters with the supervisor."""
        self._restart = None
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            self._not_started(error)
            return
        words = [str(theirs.fileno()), str(self._region), str(os.getpid()), self._name]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, *words],
                pass_fds=(theirs.fileno(), self._region),
                stdin=subprocess.DEVNULL,
                env=child_environment(),
            )
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError as error:
            ours.close()
            self._not_started(error)
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket, self._started = ours, self._loop.time()
        self._inbox.clear()
        self._outbox.clear()
        self._loop.add_reader(ours, self._readable)
        self._loop.add_reader(self._pidfd, self._died)
        self._on_start()

    def stop(self) -> None:
        """Kill the process at once."""
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        self._clear()

    async def finish(self) -> None:
        """Let the process write its remaining rows, for a limited time, and end it."""
        if self._restart is not None:
            self._restart.cancel()
            self.start()
        if self._socket is not None:
            ended: asyncio.Future[None] = self._loop.create_future()
            self._loop.remove_reader(self._pidfd)
            self._loop.add_reader(self._pidfd, _done, ended)
            self._socket.shutdown(socket.SHUT_WR)
            _, late = await asyncio.wait((ended,), timeout=END_SECONDS)
            if late:
                self._log.warning(LOG_MODULE, f"The telemetry process does not exit within {END_SECONDS:g} s")
        self.stop()

    def send(self, message: Message) -> None:
        """Send a message to the process. Lost if there is no process."""
        if self._socket is None:
            return
        self._outbox += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(self._outbox) > MOST_WAITING:
            self._lost("it does not read its socket")
            return
        self._writable()

    def _writable(self) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(self._outbox)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the process is exiting, and `_died` follows
        del self._outbox[:sent]
        if self._outbox:
            self._loop.add_writer(self._socket, self._writable)
        else:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        ours = self._socket
        assert ours is not None
        try:
            octets = ours.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            octets = b""
        if not octets:
            self._loop.remove_reader(ours)  # `_died` follows
            return
        self._inbox += octets
        *lines, rest = self._inbox.split(b"\n")
        self._inbox = bytearray(rest)
        try:
            if len(rest) > MOST_LINE:
                raise ValueError("a line without end")
            for line in lines:
                self._on_message(json.loads(line))
                if self._socket is not ours:
                    return
        except (ValueError, KeyError, TypeError) as error:
            self._lost(f"it sent a bad message: {error}")

    def _died(self) -> None:
        assert self._process is not None
        status = self._process.wait()
        cause = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        self._lost(f"process {self._process.pid} exited, {cause}")

    def _lost(self, why: str) -> None:
        self._log.error(LOG_MODULE, f"The telemetry process is restarted: {why}")
        if self._loop.time() - self._started > OLD:
            self._pause = FIRST_PAUSE
        self._clear()
        self._start_later()

    def _not_started(self, error: OSError) -> None:
        text = f"The telemetry process cannot be started: {error.strerror}"
        self._log.repeated(ERROR, LOG_MODULE, "start telemetry", text)
        self._clear()
        self._start_later()

    def _start_later(self) -> None:
        self._restart = self._loop.call_later(self._pause, self.start)
        self._pause = min(2 * self._pause, MOST_PAUSE)

    def _clear(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
