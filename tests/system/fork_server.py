"""Fork server for the installed commands, which saves loading their modules at each start.

Most of the processor time of a router's start is Python and its imports, and the system tests start some 800 routers
(docs/decisions/0044-fork-server.md). A forked process runs the entry point of the command, in a session and an
environment of its own. With SLUICE_TEST_EXEC in the environment, tests run the installed commands instead.

Each process is one request and one reply (its pid) over a SOCK_SEQPACKET pair. The request carries the descriptors of
the new process's standard input, output and error, and the writing end of a pipe for its exit status.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
#: Maximum size of a request (command line and environment) in octets.
MAX_REQUEST: Final = 1 << 18
#: Exit status on the pipe, as in subprocess: negative signal number if a signal ended the process.
STATUS: Final = struct.Struct("=i")
PR_SET_NAME: Final = 15
#: Padding argument: a process writes its title over its arguments.
ROOM: Final = "." * 200

#: Entry points of the commands: the module, and modules that its processes import later.
ENTRIES: Final = {
    "sluice": (
        "sluice.router.cli.main",
        ("sluice.supervisor.main", "sluice.workers.main", "sluice.supervisor.web.server"),
    ),
    "qdstat": ("sluice.router.cli.stat.main", ()),
    "qdmanage": ("sluice.router.cli.manage", ()),
}


class CommandRequest(msgspec.Struct):
    """A command to fork. words: its command line, the program first."""

    words: list[str]
    environment: dict[str, str]
    directory: str


class ForkedProcess:
    """A forked command, with the part of subprocess.Popen's interface that tests use."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        return self._poll_status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status; raise subprocess.TimeoutExpired after `timeout` seconds."""
        code = self._poll_status(None if timeout is None else timeout * 1000)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def _poll_status(self, milliseconds: float | None) -> int | None:
        if self.returncode is None:
            poller = select.poll()
            poller.register(self._status, select.POLLIN)
            if poller.poll(milliseconds):
                self.returncode = STATUS.unpack(os.read(self._status, STATUS.size))[0]
                os.close(self._status)
        return self.returncode


class ForkServer:
    """Client of one command's fork server, which it starts at the first request. Owner: one process of the tests."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._channel: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def start(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        stdin: int,
        stdout: int,
        stderr: int,
    ) -> ForkedProcess:
        """Fork a process that runs the command line `words` (the program first). The descriptors stay open here."""
        channel = self._channel or self._start_server(environment)
        reading, writing = os.pipe()
        try:
            request = msgspec.json.encode(CommandRequest(list(words), dict(environment), str(directory)))
            socket.send_fds(channel, [request], [stdin, stdout, stderr, writing])
        finally:
            os.close(writing)
        answer = channel.recv(64)
        if not answer:
            raise RuntimeError(f"the fork server of {self.command} has ended")
        return ForkedProcess(int(answer), reading)

    def _start_server(self, environment: Mapping[str, str]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_REQUEST)
        with theirs:
            words = [sys.executable, "-m", "tests.system.fork_server", self.command, str(theirs.fileno()), ROOM]
            self._server = subprocess.Popen(
                words, cwd=ROOT, env=dict(environment), pass_fds=[theirs.fileno()], start_new_session=True
            )
        self._channel = ours
        return ours


_servers: dict[str, ForkServer] = {}


def start(
    words: Sequence[str], environment: Mapping[str, str], directory: Path, stdin: int, stdout: int, stderr: int
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start an installed command in a session of its own. Its path is the first of `words`."""
    name = os.path.basename(words[0])
    if name not in ENTRIES or "SLUICE_TEST_EXEC" in os.environ:
        return subprocess.Popen(
            words, env=environment, cwd=directory, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
    server = _servers.setdefault(name, ForkServer(name))
    return server.start(words, environment, directory, stdin, stdout, stderr)


def serve(command: str, channel: socket.socket) -> int:
    """Fork on request until the tests close the channel, and report the exit status of each process.

    The function also returns in forked processes, with the exit status, so that the interpreter ends them normally.
    """
    module, later = ENTRIES[command]
    entry: Callable[[], int] = importlib.import_module(module).main
    for name in later:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # forked processes neither scan the modules for garbage nor copy their pages
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}  # pid and status pipe by process descriptor
    while True:
        for descriptor, _ in poller.poll():
            if descriptor != channel.fileno():
                poller.unregister(descriptor)
                _report(descriptor, *running.pop(descriptor))
                continue
            data, given, _, _ = socket.recv_fds(channel, MAX_REQUEST, 4)
            if not data:
                return 0
            *standard, status = given
            pid = os.fork()
            if pid == 0:
                channel.close()
                for other, (_, pipe) in running.items():
                    os.close(other)
                    os.close(pipe)
                os.close(status)
                _set_up_process(msgspec.json.decode(data, type=CommandRequest), standard)
                return entry()
            for one in standard:
                os.close(one)
            watched = os.pidfd_open(pid)
            running[watched] = pid, status
            poller.register(watched, select.POLLIN)
            channel.send(str(pid).encode())


def _report(descriptor: int, pid: int, status: int) -> None:
    os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        os.write(status, STATUS.pack(code))
    except BrokenPipeError:
        pass  # the requester has closed the pipe
    os.close(status)


def _set_up_process(request: CommandRequest, standard: list[int]) -> None:
    """Set up session, standard streams, directory, environment and arguments in the forked process."""
    os.setsid()
    for place, descriptor in enumerate(standard):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    program = os.path.basename(request.words[0])
    ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(program.encode()))
    sys.argv = request.words


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
