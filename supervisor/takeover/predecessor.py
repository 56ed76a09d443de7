"""Running router whose listening sockets this process takes over."""

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, TypeVar

from sluice.router.log import ProcessLog
from sluice.router.version import VERSION
from sluice.supervisor.children.private_directory import PREFIX, usual_bases
from sluice.supervisor.takeover.messages import (
    MOST_SOCKETS,
    PROTOCOL,
    SOCKET_NAME,
    Answer,
    Greeting,
    Handed,
    HandedSocket,
    Peer,
    Refusal,
    RunningIdentity,
    SuccessorReady,
    Take,
    TakeOverError,
    Yielded,
    peer_of,
    receive_answer,
    send,
)

ANSWER_SECONDS: Final = 10.0  # time limit of an answer at the start
YIELD_SECONDS: Final = 60.0  # time limit of the last answer; the running router limits itself to less
LOG_MODULE: Final = "SERVER"

A = TypeVar("A")


class Predecessor:
    """Connection to the running router. Owner: the supervisor.

    sockets: its listening sockets with their descriptions, until `InheritedSockets` takes them.
    """

    def __init__(self, channel: socket.socket, peer: Peer, identity: RunningIdentity) -> None:
        self.peer: Final = peer
        self.identity: Final = identity
        self.sockets: list[tuple[HandedSocket, socket.socket]] = []
        self.notify = ""  # address of the service manager's socket
        self.watchdog = ""  # period of its watchdog in µs
        self._channel: Final = channel
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> None:
        """Get the listening sockets. Raises TakeOverError and OSError."""
        send(self._channel, Take(VERSION))
        more = True
        while more:
            answer, opened = receive_answer(self._channel)
            handed = _expected(answer, Handed)
            self.sockets.extend(zip(handed.sockets, opened, strict=True))
            self.notify, self.watchdog, more = handed.notify, handed.watchdog, handed.more
            if len(self.sockets) > MOST_SOCKETS:
                raise TakeOverError(f"it has more than {MOST_SOCKETS} listening sockets")

    def report_ready(
        self,
        loop: asyncio.AbstractEventLoop,
        taken: Collection[int],
        yielded: Callable[[], None],
        refused: Callable[[str], None],
        log: ProcessLog,
    ) -> None:
        """Report that this router can accept connections. taken: indexes of the sockets that it uses.

        yielded: called when the running router has stopped accepting connections, or has died. refused: called with the
        reason if it goes on, so that this router must not begin.
        """
        self._loop = loop
        self._channel.setblocking(False)

        def finish(reason: str | None, warning: str = "") -> None:
            self.close()
            if warning:
                log.warning(LOG_MODULE, warning)
            if reason is None:
                yielded()
            else:
                refused(reason)

        def receive() -> None:
            try:
                answer, _ = receive_answer(self._channel)
            except BlockingIOError:
                return
            except (TakeOverError, OSError) as error:
                finish(None, f"The router that was taken over is lost: {error}")
                return
            if isinstance(answer, Refusal):
                finish(f"Process {self.peer.pid} refuses the take-over: {answer.reason}")
            elif isinstance(answer, Yielded):
                finish(None)
            else:
                finish(None, f"Process {self.peer.pid}, which was to be taken over, has ended")

        loop.add_reader(self._channel, receive)
        late = f"Process {self.peer.pid} has not yielded within {YIELD_SECONDS:g} seconds: this router begins"
        self._timer = loop.call_later(YIELD_SECONDS, finish, None, late)
        try:
            send(self._channel, SuccessorReady(sorted(taken)))
        except OSError:
            return  # `receive` finds the closed connection, behind a refusal that may have come before

    def close(self) -> None:
        """Close the connection."""
        if self._loop is not None and self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()
        for _, opened in self.sockets:
            opened.close()
        self.sockets.clear()


def find_predecessor(router: str, process: int | None, users: Collection[int]) -> Predecessor:
    """Return the connection to the running router with this id, before it has handed over anything.

    process: its process id, if several routers have the id. users: the users that it may have. Raises TakeOverError.
    """
    found: list[Predecessor] = []
    faults: list[str] = []
    try:
        for path in _offers(users):
            try:
                candidate = _greet(path, process, users)
            except (TakeOverError, OSError) as error:
                faults.append(f"{path}: {error}")
                continue
            if candidate is not None and candidate.identity.router == router:
                found.append(candidate)
            elif candidate is not None:
                candidate.close()
        if len(found) != 1:
            raise TakeOverError(_describe(router, process, found, faults))
        return found.pop()
    finally:
        for each in found:
            each.close()


def _describe(router: str, process: int | None, found: Collection[Predecessor], faults: Collection[str]) -> str:
    """Return why there is not exactly one running router."""
    which = f"router '{router}'" if process is None else f"router '{router}' with process id {process}"
    if found:
        pids = ", ".join(str(each.peer.pid) for each in found)
        return f"several processes run {which}: {pids}; name one: --take-over PID"
    return "; ".join((f"no process of this user runs {which}", *faults))


def _offers(users: Collection[int]) -> Iterator[Path]:
    """Yield the sockets of the running routers of these users."""
    for base in dict.fromkeys(usual_bases()):
        for directory in sorted(Path(base).glob(f"{PREFIX}*")):
            try:
                facts = directory.lstat()
            except OSError:  # removed in the meantime
                continue
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid in users:
                yield directory / SOCKET_NAME


def _greet(path: Path, process: int | None, users: Collection[int]) -> Predecessor | None:
    """Return the connection to the router behind a socket; None: there is none, or another process is wanted.

    Raises TakeOverError and OSError.
    """
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        channel.settimeout(ANSWER_SECONDS)
        try:
            channel.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):  # not serving yet, or killed
            channel.close()
            return None
        peer = peer_of(channel)
        if peer.user not in users:
            raise TakeOverError(f"it belongs to user {peer.user}")
        if process is not None and peer.pid != process:
            channel.close()
            return None
        send(channel, Greeting())
        identity = _expected(receive_answer(channel)[0], RunningIdentity)
        if identity.protocol != PROTOCOL:
            raise TakeOverError(f"it speaks version {identity.protocol} of the protocol of take-overs")
        return Predecessor(channel, peer, identity)
    except BaseException:
        channel.close()
        raise


def _expected(answer: Answer | None, kind: type[A]) -> A:
    """Return the answer, which must be of this kind. Raises TakeOverError."""
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, Refusal):
        raise TakeOverError(f"it refuses: {answer.reason}")
    raise TakeOverError("it has ended" if answer is None else "unexpected answer")
