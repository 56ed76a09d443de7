"""Supervisor's end of the authentication process: starts and restarts the process, and sends requests to it.

Nothing here blocks; answers arrive by callbacks. If the process dies or does not answer in time, all waiting clients
are refused and another process is started for later clients.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from router.environment import child_environment
from router.log import CRITICAL, LEVELS, MODULES, ProcessLog
from supervisor.auth.messages import (
    BeginExchange,
    CancelExchange,
    CheckTokenRequest,
    Configure,
    Configured,
    ConfirmUsers,
    ExchangeContext,
    Init,
    LoginChallenge,
    LoginOffer,
    LoginRefused,
    LogLine,
    MessageError,
    MessageSplitter,
    ProviderState,
    Report,
    Request,
    Respond,
    States,
    UsersMissing,
    UsersRead,
    decode_report,
    encode,
)
from supervisor.auth.messages import LoginReply as Reply
from supervisor.runtime.deadline import Deadline
from supervisor.runtime.remote_hosts import HostCounts

MODULE: Final = "supervisor.auth.process"
ANSWER_SECONDS: Final = 60.0  # time limit for one answer; longer than the process itself waits for any provider
FIRST_PAUSE: Final = 0.1  # seconds before a restart; doubled each time the process exits within LONG_LIVED_SECONDS
MOST_PAUSE: Final = 5.0  # maximum seconds before a restart
LONG_LIVED_SECONDS: Final = 30.0  # lifetime in seconds after which the next pause is FIRST_PAUSE again
MOST_EXCHANGES: Final = 10_000  # maximum number of exchanges at a time
MOST_OF_HOST: Final = 1_000  # maximum number of exchanges of one remote host
MOST_WAITING: Final = 16 << 20  # octets the process may leave unread; with more it hangs or is overloaded
READ_SIZE: Final = 1 << 18
MAX_CONFIRMED_USERS: Final = 256  # maximum number of user names in a ConfirmUsers message

OnReply = Callable[[Reply], object]


class _PendingExchange(NamedTuple):
    """Exchange of a client that logs in. host: the client's address."""

    on_reply: OnReply
    host: str


class AuthenticationProcess:
    """Authentication process as the supervisor sees it. Owner: the authentication subsystem.

    A restarted process gets the present configuration again.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        log: ProcessLog,
        on_configured: Callable[[Configured], object],
        command: Callable[[int], list[str]] | None = None,
        on_users: Callable[[UsersRead | UsersMissing], object] | None = None,
    ) -> None:
        """Create without starting the process.

        name: name of the program. on_configured: called each time a process reports that it uses the present
        configuration. on_users: called when a file of users was read, and with users that a file does not have.
        command: for tests, the command that starts the process with this descriptor.
        """
        self._loop: Final = loop
        self._name: Final = f"{name}-auth"
        self._log: Final = log
        self._on_configured: Final = on_configured
        self._on_users: Final = on_users
        self._command: Final = command or self._usual_command
        self._configuration: Configure | None = None
        self._exchanges: dict[int, _PendingExchange] = {}
        self._shares: Final = HostCounts(MOST_EXCHANGES, MOST_OF_HOST)
        self._asked: dict[int, float] = {}  # start of the wait for an answer, by number of the exchange; oldest first
        self._watched: tuple[int, float] | None = None  # entry of `_asked` to which `_deadline` applies: the oldest
        self._deadline: Deadline | None = None
        self._next = 1
        self.states: Sequence[ProviderState] = ()  # states of the providers, as reported by the present process
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._socket: socket.socket | None = None
        self._reader = MessageSplitter()
        self._outbox = bytearray()  # encoded messages; those of one iteration of the event loop are sent together
        self._sending = False  # True: `_send_first` is scheduled, or a writer is registered
        self._pause = FIRST_PAUSE
        self._started = 0.0
        self._restart: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None while there is no process."""
        return None if self._process is None else self._process.pid

    @property
    def exchanges(self) -> int:
        """Number of exchanges under way."""
        return len(self._exchanges)

    # Configuration

    def configure(self, configuration: Configure | None, *, start: bool = True) -> None:
        """Use these providers; None: end the process.

        start: start the process now if there is none; False: start it with the first client.
        """
        before, self._configuration = self._configuration, configuration
        if configuration is None:
            self.stop()
        elif self._process is None:
            if self._restart is None and start:
                self._start()
        elif before is not None and before.library not in (None, configuration.library):
            # libsasl2 can be initialised only once in a process.
            self._lost("it starts again with another configuration of libsasl2", again=True)
        else:
            self._send(configuration)

    def stop(self) -> None:
        """End the process and refuse all waiting clients."""
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        self._end_process()
        self._refuse_all("the router stops, or no listener needs authentication")

    # Exchanges

    def begin(self, context: ExchangeContext, on_reply: OnReply) -> int:
        """Begin an exchange for a client that wants to authenticate. Returns its number.

        on_reply: called with a LoginOffer or LoginRefused, and with all later replies. The exchange ends with
        LoginAccepted or LoginRefused, or by `cancel`.
        """
        return self._begin(context, lambda number: BeginExchange(number, context), on_reply)

    def check(self, context: ExchangeContext, token: str, on_reply: OnReply) -> int:
        """Begin an exchange that checks a single token by the issuers of the context. Returns its number."""
        return self._begin(context, lambda number: CheckTokenRequest(number, context, token), on_reply)

    def init(self, number: int, mechanism: str, response: bytes, hostname: str | None = None) -> None:
        """Pass on the mechanism that the client has chosen, with its initial response."""
        self._ask(number, Init(number, mechanism, response, hostname))

    def step(self, number: int, response: bytes) -> None:
        """Pass on the client's response to a challenge."""
        self._ask(number, Respond(number, response))

    def cancel(self, number: int) -> None:
        """Cancel an exchange, because the client has left."""
        if self._end(number) is not None:
            self._send(CancelExchange(number))

    def confirm(self, file: str, users: Sequence[str]) -> None:
        """Ask which of these users are missing from a file. Without a process there is no answer."""
        for first in range(0, len(users), MAX_CONFIRMED_USERS):
            self._send(ConfirmUsers(file, list(users[first : first + MAX_CONFIRMED_USERS])))

    def _begin(self, context: ExchangeContext, make: Callable[[int], Request], on_reply: OnReply) -> int:
        number, self._next = self._next, self._next + 1
        if self._configuration is None or not self._shares.take(context.host):
            text = (
                "no authentication provider is available"
                if self._configuration is None
                else "too many clients log in at once"
            )
            self._loop.call_soon(on_reply, LoginRefused(number, text))
            return number
        self._exchanges[number] = _PendingExchange(on_reply, context.host)
        if self._process is None and self._restart is None:
            self._start()
        self._ask(number, make(number))
        return number

    def _end(self, number: int) -> OnReply | None:
        """End an exchange. Returns its callback; None if it has ended before."""
        self._asked.pop(number, None)
        exchange = self._exchanges.pop(number, None)
        if exchange is None:
            return None
        self._shares.give_back(exchange.host)
        return exchange.on_reply

    def _ask(self, number: int, message: Request) -> None:
        if number not in self._exchanges:
            return  # the exchange was refused meanwhile, and the client was notified
        self._asked.pop(number, None)
        self._asked[number] = self._loop.time()
        if self._deadline is None:
            self._watch()
        self._send(message)

    def _watch(self) -> None:
        """Start the timer for the oldest pending answer. One timer serves all, since most answers arrive in time."""
        self._watched = next(iter(self._asked.items()), None)
        self._deadline = None if self._watched is None else Deadline(self._loop, ANSWER_SECONDS, self._look)

    def _look(self) -> None:
        assert self._watched is not None
        number, since = self._watched
        if self._asked.get(number) == since:
            self._replace_hanging_process()
        else:
            self._watch()

    def _replace_hanging_process(self) -> None:
        """Replace a process that has not answered in time."""
        self._log.critical("AUTHSERVICE", f"The authentication process does not answer within {ANSWER_SECONDS:g} s")
        self._lost("it does not answer", again=True)

    # The process

    def _usual_command(self, descriptor: int) -> list[str]:
        return [sys.executable, "-P", "-m", MODULE, str(descriptor), str(os.getpid()), self._name]

    def _start(self) -> None:
        """Start the process. It inherits only a socket from the supervisor: no memory, no keys, no other descriptor."""
        self._restart = None
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            self._not_started(error)
            return
        try:
            self._process = subprocess.Popen(
                self._command(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
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
        self._socket, self._reader, self._started = ours, MessageSplitter(), self._loop.time()
        self._outbox.clear()
        self._sending = False
        self._loop.add_reader(ours, self._readable)
        self._loop.add_reader(self._pidfd, self._died)
        if self._configuration is not None:
            self._send(self._configuration)

    def _not_started(self, error: OSError) -> None:
        text = f"Passwords and tokens cannot be checked: the authentication process cannot be started: {error.strerror}"
        self._log.repeated(CRITICAL, "AUTHSERVICE", "start", text)
        self._end_process()
        self._start_later()

    def _start_later(self) -> None:
        if self._restart is None and self._configuration is not None:
            self._restart = self._loop.call_later(self._pause, self._start)
            self._pause = min(2 * self._pause, MOST_PAUSE)

    def _died(self) -> None:
        assert self._process is not None
        status = self._process.wait()
        self._log.critical("AUTHSERVICE", f"The authentication process {self._process.pid} died ({_cause(status)})")
        self._lost("it died", again=True)

    def _lost(self, why: str, *, again: bool) -> None:
        if self._loop.time() - self._started > LONG_LIVED_SECONDS:
            self._pause = FIRST_PAUSE
        self._end_process()
        if again:
            self._start_later()
        self._refuse_all(f"the authentication process has ended: {why}")

    def _end_process(self) -> None:
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
        self.states = ()

    def _refuse_all(self, text: str) -> None:
        waiting = [(number, self._end(number)) for number in list(self._exchanges)]
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        for number, on_reply in waiting:
            if on_reply is not None:
                on_reply(LoginRefused(number, text))

    # The socket

    def _send(self, message: Request) -> None:
        if self._socket is None:
            if isinstance(message, CancelExchange | Configure | ConfirmUsers):
                return  # a new process gets its configuration when it starts, and reports when it has read files
            self._refuse_soon(message)
            return
        self._outbox += encode(message)
        if len(self._outbox) > MOST_WAITING:
            self._lost("it does not read", again=True)
        elif not self._sending:
            self._sending = True
            self._loop.call_soon(self._send_first, self._socket)

    def _refuse_soon(self, message: BeginExchange | Init | Respond | CheckTokenRequest) -> None:
        """Refuse an exchange for lack of a process, after the caller has got the number of the exchange."""
        on_reply = self._end(message.exchange)
        if on_reply is not None:
            refusal = LoginRefused(message.exchange, "the authentication process is not running")
            self._loop.call_soon(on_reply, refusal)

    def _send_first(self, ours: socket.socket) -> None:
        if ours is self._socket:
            self._write()
            if self._outbox:
                self._loop.add_writer(ours, self._writable)
            else:
                self._sending = False

    def _writable(self) -> None:
        assert self._socket is not None
        self._write()
        if not self._outbox:
            self._sending = False
            self._loop.remove_writer(self._socket)

    def _write(self) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(self._outbox)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._outbox)  # the process is exiting: `_died` follows
        del self._outbox[:sent]

    def _readable(self) -> None:
        ours = self._socket
        assert ours is not None
        try:
            octets = ours.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            octets = b""
            self._log.critical("AUTHSERVICE", f"The authentication process cannot be read: {error.strerror}")
        if not octets:
            self._loop.remove_reader(ours)  # the process is exiting: `_died` follows
            return
        try:
            for each in self._reader.feed(octets):
                self._handle(decode_report(each))
                if self._socket is not ours:
                    return
        except MessageError as error:
            self._log.critical("AUTHSERVICE", f"The authentication process sent a bad message: {error}")
            self._lost("it sent a bad message", again=True)

    def _handle(self, report: Report) -> None:
        match report:
            case Configured():
                if self._configuration is not None and report.serial == self._configuration.serial:
                    self._on_configured(report)
            case States():
                self.states = report.states
            case UsersRead() | UsersMissing():
                if self._on_users is not None:
                    self._on_users(report)
            case LogLine():
                level, module = LEVELS.get(report.level), report.module
                if level is not None and module in MODULES:
                    self._log.write(level, module, report.text)
            case LoginOffer() | LoginChallenge():
                self._asked.pop(report.exchange, None)
                exchange = self._exchanges.get(report.exchange)
                if exchange is not None:
                    exchange.on_reply(report)
            case _:
                on_reply = self._end(report.exchange)
                if on_reply is not None:
                    on_reply(report)


def _cause(status: int) -> str:
    """Describe the exit status of a process, or the signal that ended it."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
