"""Exchanges of clients that log in, as requests to the authentication process.

Nothing here blocks; answers arrive by callbacks. If the process dies or does not answer in time, all waiting clients
are refused and another process is started for later clients.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sluice.router.log import CRITICAL, LEVELS, MODULES, ProcessLog
from sluice.supervisor.auth.messages import (
    MAX_MESSAGE,
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
from sluice.supervisor.auth.messages import LoginReply as Reply
from sluice.supervisor.children.child_process import ChildProcess, ChildProgram, Command, module_command
from sluice.supervisor.runtime.deadline import Deadline
from sluice.supervisor.runtime.remote_hosts import HostCounts

MODULE: Final = "sluice.supervisor.auth.process"
ANSWER_SECONDS: Final = 60.0  # time limit for one answer; longer than the process itself waits for any provider
MOST_PAUSE: Final = 5.0  # maximum seconds before a restart, during which no client can log in
MOST_EXCHANGES: Final = 10_000  # maximum number of exchanges at a time
MOST_OF_HOST: Final = 1_000  # maximum number of exchanges of one remote host
MOST_UNSENT: Final = 16 << 20  # octets the process may leave unread; with more it hangs or is overloaded
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
        command: Command | None = None,
        on_users: Callable[[UsersRead | UsersMissing], object] | None = None,
    ) -> None:
        """Create without starting the process.

        name: name of the program. on_configured: called each time a process reports that it uses the present
        configuration. on_users: called when a file of users was read, and with users that a file does not have.
        command: for tests, the command that starts the process with this descriptor.
        """
        program = ChildProgram(
            label="authentication",
            command=command or module_command(MODULE, f"{name}-auth"),
            log_module="AUTHSERVICE",
            log_level=CRITICAL,
            most_message=MAX_MESSAGE,
            most_unsent=MOST_UNSENT,
            most_pause=MOST_PAUSE,
        )
        self._child: Final = ChildProcess(loop, program, self, log)
        self._loop: Final = loop
        self._log: Final = log
        self._on_configured: Final = on_configured
        self._on_users: Final = on_users
        self._configuration: Configure | None = None
        self._exchanges: dict[int, _PendingExchange] = {}
        self._shares: Final = HostCounts(MOST_EXCHANGES, MOST_OF_HOST)
        self._asked: dict[int, float] = {}  # start of the wait for an answer, by number of the exchange; oldest first
        self._watched: tuple[int, float] | None = None  # entry of `_asked` to which `_deadline` applies: the oldest
        self._deadline: Deadline | None = None
        self._next = 1
        self.states: Sequence[ProviderState] = ()  # states of the providers, as reported by the present process

    @property
    def pid(self) -> int | None:
        """Process id; None while there is no process."""
        return self._child.pid

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
        elif not self._child.running:
            if start:
                self._child.start()
        elif before is not None and before.library not in (None, configuration.library):
            # libsasl2 can be initialised only once in a process.
            self._child.restart("it restarts with another configuration of libsasl2")
        else:
            self._send(configuration)

    def stop(self) -> None:
        """End the process and refuse all waiting clients."""
        self._child.stop()
        self.states = ()
        self._refuse_all("the router is shutting down, or no listener needs authentication")

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
                else "too many clients are logging in at the same time"
            )
            self._loop.call_soon(on_reply, LoginRefused(number, text))
            return number
        self._exchanges[number] = _PendingExchange(on_reply, context.host)
        self._child.start()
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
            self._child.fail("it does not answer", f" within {ANSWER_SECONDS:g} s")
        else:
            self._watch()

    # The child

    def child_started(self) -> None:
        """Configure the new process."""
        if self._configuration is not None:
            self._send(self._configuration)

    def child_reported(self, content: bytes) -> None:
        """Handle a message of the process. Raises MessageError."""
        self._handle(decode_report(content))

    def child_lost(self, why: str) -> None:
        """Refuse all clients that wait for an answer of the process that was lost."""
        self.states = ()
        self._refuse_all(f"the authentication process has ended: {why}")

    def _refuse_all(self, text: str) -> None:
        waiting = [(number, self._end(number)) for number in list(self._exchanges)]
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        for number, on_reply in waiting:
            if on_reply is not None:
                on_reply(LoginRefused(number, text))

    def _send(self, message: Request) -> None:
        if self._child.running:
            self._child.send(encode(message))
        elif not isinstance(message, CancelExchange | Configure | ConfirmUsers):
            # The others are not needed: a new process gets its configuration, and reports when it has read files.
            self._refuse_soon(message)

    def _refuse_soon(self, message: BeginExchange | Init | Respond | CheckTokenRequest) -> None:
        """Refuse an exchange for lack of a process, after the caller has got the number of the exchange."""
        on_reply = self._end(message.exchange)
        if on_reply is not None:
            refusal = LoginRefused(message.exchange, "the authentication process is not running")
            self._loop.call_soon(on_reply, refusal)

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
