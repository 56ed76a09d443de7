"""Child process with a program of its own, started by exec: start, restart after its exit, messages, and end.

The child inherits a socket, and no memory of the supervisor. Nothing here blocks, and the router never waits for a
child: a child that does not read its messages, sends invalid ones or exits is replaced. Messages to a child that was
replaced, and those sent before the next one runs, are lost; the owner begins anew with each child.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from sluice.router.environment import child_environment
from sluice.router.log import ProcessLog
from sluice.supervisor.children.framing import MessageError, MessageSplitter, pack

FIRST_PAUSE: Final = 0.1  # seconds before a restart; doubled each time the child exits within LONG_LIVED_SECONDS
LONG_LIVED_SECONDS: Final = 30.0  # lifetime in seconds after which the next pause is FIRST_PAUSE again
READ_SIZE: Final = 1 << 18

Command = Callable[[int], list[str]]  # command that starts the program, given the descriptor of its socket


class ChildProgram(NamedTuple):
    """Program of a child, with its limits and its place in the log."""

    label: str  # function of the child in the router, for the log
    command: Command
    log_module: str
    log_level: int  # level of the lines about its failures
    most_message: int  # maximum octets of a message of the child
    most_unsent: int  # octets that the child may leave unread; with more it hangs or is overloaded
    most_pause: float  # maximum seconds before a restart
    descriptors: tuple[int, ...] = ()  # inherited descriptors beside the socket


class ChildOwner(Protocol):
    """Owner of a child, which knows the content of the messages."""

    def child_started(self) -> None:
        """Send the first messages to a new child."""

    def child_reported(self, content: bytes) -> None:
        """Handle a message of the child. Raises MessageError if it is invalid."""

    def child_lost(self, why: str) -> None:
        """Abort work that waits for the child, which was lost and is restarted. why: reason, for users."""


def module_command(module: str, name: str, *descriptors: int) -> Command:
    """Return the command for a module of the router.

    Its arguments are the descriptors of the socket and of `descriptors`, the pid of the supervisor, and the name that
    the process takes.
    """

    def command(ours: int) -> list[str]:
        return [sys.executable, "-P", "-m", module, *map(str, (ours, *descriptors, os.getpid())), name]

    return command


class ChildProcess:
    """Child process, and its successors. Owner: the subsystem that uses it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, program: ChildProgram, owner: ChildOwner, log: ProcessLog
    ) -> None:
        """Create without starting the program."""
        self._loop: Final = loop
        self._program: Final = program
        self._owner: Final = owner
        self._log: Final = log
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._socket: socket.socket | None = None
        self._splitter = MessageSplitter(program.most_message)
        self._unsent = bytearray()  # messages; those of one iteration of the event loop are sent together
        self._sending = False  # True: `_send_unsent` is scheduled or waits for the socket
        self._pause = FIRST_PAUSE
        self._started_at = 0.0
        self._restart: asyncio.TimerHandle | None = None
        self._finished: asyncio.Future[None] | None = None  # from `finish` on: completes when the child has ended

    @property
    def pid(self) -> int | None:
        """Process id; None while there is no process."""
        return None if self._process is None else self._process.pid

    @property
    def unsent(self) -> int:
        """Octets of messages that the child has not read and its socket does not hold."""
        return len(self._unsent)

    @property
    def running(self) -> bool:
        """True if messages reach a process."""
        return self._socket is not None

    # Life

    def start(self) -> None:
        """Start the child, unless it runs or its restart is scheduled."""
        if self._process is None and self._restart is None:
            self._start()

    def stop(self) -> None:
        """Kill the child at once, and start no other."""
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        self._clear()

    async def finish(self, seconds: float) -> None:
        """Let the child handle all messages and exit by itself, for a limited time; then kill it.

        A child whose restart is scheduled starts at once, because it may have to finish the work of its predecessor.
        """
        if self._restart is not None:
            self._restart.cancel()
            self._start()
        if self._socket is not None:
            self._finished = self._loop.create_future()
            self._send_unsent(self._socket)
            _, late = await asyncio.wait((self._finished,), timeout=seconds)
            if late:
                text = f"{self._subject} does not exit within {seconds:g} s and is killed"
                self._log.warning(self._program.log_module, text)
        self.stop()

    def fail(self, why: str, details: str = "") -> None:
        """Replace a child that does not work. why: reason, for the log and for users; details: more for the log."""
        text = f"{self._subject} is restarted: {why}{details}"
        self._log.write(self._program.log_level, self._program.log_module, text)
        self.restart(why)

    def restart(self, why: str) -> None:
        """Replace the child, which is no failure. why: reason, for users."""
        if self._loop.time() - self._started_at > LONG_LIVED_SECONDS:
            self._pause = FIRST_PAUSE
        self._clear()
        if self._finished is None:
            self._start_later()
        self._owner.child_lost(why)

    @property
    def _subject(self) -> str:
        return f"The {self._program.label} process"

    def _start(self) -> None:
        self._restart = None
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            self._not_started(error)
            return
        try:
            self._process = subprocess.Popen(
                self._program.command(theirs.fileno()),
                pass_fds=(theirs.fileno(), *self._program.descriptors),
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
        self._socket, self._started_at = ours, self._loop.time()
        self._splitter = MessageSplitter(self._program.most_message)
        self._unsent.clear()
        self._sending = False
        self._loop.add_reader(ours, self._read, ours)
        self._loop.add_reader(self._pidfd, self._exited)
        self._owner.child_started()

    def _not_started(self, error: OSError) -> None:
        program, text = self._program, f"{self._subject} cannot be started: {error.strerror}"
        self._log.repeated(program.log_level, program.log_module, f"start {program.label}", text)
        self._clear()
        self._start_later()

    def _start_later(self) -> None:
        self._restart = self._loop.call_later(self._pause, self._start)
        self._pause = min(2 * self._pause, self._program.most_pause)

    def _exited(self) -> None:
        """Handle the exit of the process: its pidfd is readable."""
        assert self._process is not None
        status = self._process.wait()
        if self._finished is None:
            self.fail("it died", f" (process {self._process.pid}, {_cause(status)})")
        else:
            self._clear()

    def _clear(self) -> None:
        """End the process, if there is one, and close its descriptors."""
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
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    # Messages

    def send(self, content: bytes) -> None:
        """Send a message to the child. Lost if no child runs."""
        if self._socket is None:
            return
        self._unsent += pack(content)
        if len(self._unsent) > self._program.most_unsent:
            self.fail("it does not read")
        elif not self._sending:
            self._sending = True
            self._loop.call_soon(self._send_unsent, self._socket)

    def _send_unsent(self, ours: socket.socket) -> None:
        if ours is not self._socket:
            return  # the child was replaced before this call
        try:
            sent = ours.send(self._unsent) if self._unsent else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = len(self._unsent)  # the child is exiting: `_exited` follows
        del self._unsent[:sent]
        self._sending = bool(self._unsent)
        if self._sending:
            self._loop.add_writer(ours, self._send_unsent, ours)
            return
        self._loop.remove_writer(ours)
        if self._finished is not None:
            ours.shutdown(socket.SHUT_WR)  # the child exits when it has read everything

    def _read(self, ours: socket.socket) -> None:
        try:
            octets = ours.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            octets = b""
        if not octets:
            self._loop.remove_reader(ours)  # the child is exiting: `_exited` follows
            return
        try:
            for content in self._splitter.feed(octets):
                self._owner.child_reported(content)
                if self._socket is not ours:
                    return
        except MessageError as error:
            self.fail("it sent a bad message", f": {error}")


def _cause(status: int) -> str:
    """Describe the exit status of a process, or the signal that ended it."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
