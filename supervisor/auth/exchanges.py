"""SASL exchanges in the authentication process: offered mechanisms, choice of the provider, and time limits.

Work that computes or blocks runs in threads, in a pool for each kind of work, so that a hanging provider delays no
other: passwords (PBKDF2), tokens (signatures, and keys that must be fetched), libsasl2. Nothing here blocks the event
loop.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field

from sluice.router.amqp.errors import AmqpError
from sluice.router.amqp.sasl import NOT_OFFERED
from sluice.router.sasl.bearer import OAuthBearerServer, XOAuth2Server
from sluice.router.sasl.claimed import claimed_user
from sluice.router.sasl.mechanism import Answer, Challenge, Failure, ServerExchange, Success, wrong_credentials
from sluice.router.sasl.scram import ScramServer
from sluice.router.sasl.simple import AnonymousServer, ExternalServer, PlainServer
from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import BOUND_MECHANISMS, HASHES, PLUS
from sluice.supervisor.auth import messages
from sluice.supervisor.auth.attempts import Attempts, TooManyAttempts
from sluice.supervisor.auth.library import Library, LibraryError, LibraryExchange
from sluice.supervisor.auth.messages import (
    ExchangeContext,
    Facts,
    Init,
    LoginAccepted,
    LoginOffer,
    LoginRefused,
    LogLine,
    Report,
    Respond,
    Service,
)
from sluice.supervisor.auth.service import ServiceError, ServiceExchange
from sluice.supervisor.runtime.threads import Threads

MOST_EXCHANGES: Final = 10_000  # maximum number of exchanges at a time
STEP_SECONDS: Final = 20.0  # time limit of a provider for one answer, without waits for the rate limit and delays
IDLE_SECONDS: Final = 120.0  # time limit of a client for its response
# Maximum number of threads of each pool.
MOST_LIBRARY: Final = 64
MOST_TOKENS: Final = 32
MOST_PASSWORDS: Final = 64
EXTERNAL, ANONYMOUS, PLAIN = "EXTERNAL", "ANONYMOUS", "PLAIN"
BEARERS: Final = {"OAUTHBEARER": OAuthBearerServer, "XOAUTH2": XOAuth2Server}

_Result = TypeVar("_Result")
Send = Callable[[Report], object]
_Work = Callable[[], Awaitable[LoginOffer | Answer]]
# Return the user of a token, checked by the issuers with these names.
CheckTokenOf = Callable[[Sequence[str], str], Success | Failure]


class ThreadPool:
    """Thread pool for one kind of work. Work beyond `at_once` waits without a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, most: int, at_once: int) -> None:
        """Create without threads. most: maximum number of threads, hanging ones included. at_once: of working ones."""
        self._threads: Final = Threads(loop, name, most)
        self._turn: Final = asyncio.Semaphore(at_once)

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work`. Raises TimeoutError, OSError (no thread), and the exceptions of `work`."""
        async with self._turn:
            return await self._threads.run(work, STEP_SECONDS)


class ThreadPools:
    """Thread pools of all kinds of work. Owner: the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        cores = len(os.sched_getaffinity(0))
        self.passwords: Final = ThreadPool(loop, "passwords", MOST_PASSWORDS, cores)
        self.tokens: Final = ThreadPool(loop, "tokens", MOST_TOKENS, MOST_TOKENS)
        self.library: Final = ThreadPool(loop, "libsasl2", MOST_LIBRARY, MOST_LIBRARY)


def _no_issuers(names: Sequence[str], token: str) -> Failure:
    """Refuse every token: the default of `check_token` without issuers."""
    return wrong_credentials("the issuer of the token is not known")


class Providers(Struct):
    """Configured providers by name of their entity. Owner: the process."""

    users: Mapping[str, Callable[[], Users | None]] = field(default_factory=dict)  # None: the file was never read
    prefixes: Mapping[str, str] = field(default_factory=dict)  # prefix of user names, by name of the users file
    check_token: CheckTokenOf = _no_issuers
    services: Mapping[str, Service] = field(default_factory=dict)
    library: Library | None = None


class _Mechanism(Protocol):
    """Chosen mechanism of a SASL exchange."""

    async def step(self, response: bytes) -> Answer: ...


class _LocalMechanism:
    """Mechanism implemented by the router. pool: for long work. file: the users file of the mechanism, if any."""

    def __init__(
        self, exchange: ServerExchange, pool: ThreadPool | None = None, file: "_ExchangeUsersFile | None" = None
    ) -> None:
        self._exchange: Final = exchange
        self._pool: Final = pool
        self._file: Final = file

    async def step(self, response: bytes) -> Answer:
        if self._pool is None:
            answer = self._exchange.step(response)
        else:
            answer = await self._pool.run(partial(self._exchange.step, response))
        return self._file.named(answer) if self._file is not None and isinstance(answer, Success) else answer


class _ExchangeUsersFile(NamedTuple):
    """Users file against which a SASL exchange is checked."""

    name: str
    prefix: str  # prefix of the names of its users
    find: Callable[[], Users | None]  # return its present content

    def named(self, success: Success) -> Answer:
        """Return the success with the router's name of the user, or a failure if the user was deleted meanwhile."""
        present = self.find()
        if present is None or success.user not in present.users:
            return wrong_credentials("the user has been deleted")
        facts = Facts(account=(self.name, success.user))
        return Success(self.prefix + success.user, success.additional, {"facts": facts})


class _LibraryMechanism:
    """Mechanism of libsasl2."""

    def __init__(self, exchange: LibraryExchange, name: str, pool: ThreadPool) -> None:
        self._exchange: Final = exchange
        self._name: Final = name
        self._pool: Final = pool

    async def step(self, response: bytes) -> Answer:
        return await self._pool.run(partial(self._exchange.step, self._name, response))


class _ServiceMechanism:
    """Mechanism of an authentication service."""

    def __init__(self, exchange: ServiceExchange, name: str, hostname: str | None) -> None:
        self._exchange: Final = exchange
        self._name: Final = name
        self._hostname: Final = hostname

    async def step(self, response: bytes) -> Answer:
        return await self._exchange.step(self._name, response, self._hostname)


class _SaslExchange(Struct):
    """State of a SASL exchange. At most one task works on it."""

    context: ExchangeContext
    offered: list[str] = field(default_factory=list)  # offered mechanisms
    mechanism: _Mechanism | None = None  # chosen mechanism
    claim: str = ""  # mechanism and the user name that the client gives
    library: LibraryExchange | None = None
    service: ServiceExchange | None = None
    task: "asyncio.Task[None] | None" = None  # task that works on the next answer
    idle: asyncio.TimerHandle | None = None  # timer that runs while the client has to respond


class SaslExchanges:
    """SASL exchanges of the authentication process. Owner: the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, providers: Providers, attempts: Attempts, send: Send) -> None:
        self._loop: Final = loop
        self.providers = providers
        self._attempts: Final = attempts
        self._send: Final = send
        self._pools: Final = ThreadPools(loop)
        self._running: dict[int, _SaslExchange] = {}

    def __len__(self) -> int:
        return len(self._running)

    # Requests

    def begin(self, message: messages.BeginExchange) -> None:
        """Begin an exchange and send the mechanisms that the client may choose from."""
        if len(self._running) >= MOST_EXCHANGES:
            self._send(LoginRefused(message.exchange, "too many clients are logging in at the same time"))
            return
        running = self._running[message.exchange] = _SaslExchange(message.context)
        self._work(message.exchange, running, partial(self._offer, running))

    def init(self, message: Init) -> None:
        """Begin the mechanism that the client has chosen."""
        running = self._running.get(message.exchange)
        if running is None or running.task is not None or running.mechanism is not None:
            self._send(LoginRefused(message.exchange, "the SASL exchange has already ended"))
            return
        self._work(message.exchange, running, partial(self._choose, running, message))

    def respond(self, message: Respond) -> None:
        """Continue the mechanism with the client's response to a challenge."""
        running = self._running.get(message.exchange)
        if running is None or running.task is not None or running.mechanism is None:
            self._send(LoginRefused(message.exchange, "the SASL exchange has already ended"))
            return
        self._work(message.exchange, running, partial(self._step, running, message.response))

    def check(self, message: messages.CheckTokenRequest) -> None:
        """Check a token that is not part of a SASL exchange."""
        if message.exchange in self._running or len(self._running) >= MOST_EXCHANGES:
            self._send(LoginRefused(message.exchange, "too many clients are logging in at the same time"))
            return
        running = self._running[message.exchange] = _SaslExchange(message.context)
        running.mechanism = _LocalMechanism(
            _TokenMechanism(self._token_check(message.context), message.token), self._pools.tokens
        )
        self._work(message.exchange, running, partial(self._step, running, b""))

    def cancel(self, message: messages.CancelExchange) -> None:
        """Drop the exchange of a client that has left."""
        running = self._running.pop(message.exchange, None)
        if running is None:
            return
        if running.task is None:
            self._close(running)
        else:  # close afterwards, so that resources the task is about to get are released, too
            running.task.add_done_callback(lambda _: self._close(running))
            running.task.cancel()

    # Work

    def _work(self, number: int, running: _SaslExchange, work: _Work) -> None:
        if running.idle is not None:
            running.idle.cancel()
            running.idle = None
        running.task = self._loop.create_task(self._answer(number, running, work))

    async def _answer(self, number: int, running: _SaslExchange, work: _Work) -> None:
        try:
            answer = await self._guarded(work)
        except Exception as error:  # noqa: BLE001 - logged, and the client is refused
            text = f"[C{running.context.connection}] Login refused after an internal error: "
            text += f"{type(error).__name__}: {error}"
            self._log("critical", "AUTHSERVICE", text)
            answer = Failure("internal error")
        running.task = None
        if self._running.get(number) is not running:
            return
        match answer:
            case LoginOffer():
                running.offered = answer.mechanisms
                answer.exchange = number
                self._send(answer)
            case Challenge():
                self._send(messages.LoginChallenge(number, answer.octets))
            case Success():
                self._end(number, running)
                facts = answer.facts.get("facts", Facts())
                self._send(LoginAccepted(number, answer.user, facts, answer.additional))
                return
            case Failure():
                self._end(number, running)
                self._send(LoginRefused(number, answer.text))
                return
        running.idle = self._loop.call_later(IDLE_SECONDS, self._expire, number, running)

    async def _guarded(self, work: _Work) -> LoginOffer | Answer:
        """Run `work`; turn the expected errors of providers and clients into a Failure."""
        try:
            return await work()
        except TimeoutError:
            return Failure("SASL(-8): the provider did not answer in time")
        except LibraryError as error:
            return Failure(str(error))
        except OSError as error:
            return Failure(f"SASL(-8): no thread is free to ask the provider: {error.strerror}")
        except TooManyAttempts:
            return Failure("too many failed attempts from this host")

    def _expire(self, number: int, running: _SaslExchange) -> None:
        self._end(number, running)
        self._send(LoginRefused(number, "the client did not respond in time"))

    def _end(self, number: int, running: _SaslExchange) -> None:
        del self._running[number]
        self._close(running)

    def _close(self, running: _SaslExchange) -> None:
        if running.idle is not None:
            running.idle.cancel()
        if running.service is not None:
            running.service.close()
        if running.library is not None:
            # A hanging step still uses the exchange; `close` waits for its end in a thread.
            closing = asyncio.ensure_future(self._pools.library.run(running.library.close))
            closing.add_done_callback(_forget)

    # Offered mechanisms

    async def _offer(self, running: _SaslExchange) -> LoginOffer | Failure:
        context = running.context
        if context.service is not None:
            found = await self._service_mechanisms(running, context.service)
            if isinstance(found, Failure):
                return found
        elif context.library:
            found = await self._library_mechanisms(running)
        else:
            found = self._own(context)
        if not context.anonymous:
            found = [name for name in found if name != ANONYMOUS]
        if context.service is None and context.external is None:
            found = [name for name in found if name != EXTERNAL]
        if context.mechanisms is not None:
            found = [name for name in found if name in context.mechanisms]
        return LoginOffer(0, found)

    async def _service_mechanisms(self, running: _SaslExchange, name: str) -> list[str] | Failure:
        service = self.providers.services.get(name)
        if service is None:
            return Failure(f"there is no authentication service {name!r}")
        running.service = ServiceExchange(service)
        return await self._from_service(running.service.begin)

    async def _from_service(self, call: Callable[[], Awaitable[_Result]]) -> _Result | Failure:
        """Return the answer of the service. A failed connection is logged and becomes a Failure (security.md A-5)."""
        try:
            async with asyncio.timeout(STEP_SECONDS):
                return await call()
        except ServiceError as error:
            text = str(error)
        except AmqpError as error:
            text = f"{error.condition} {error.description}"
        except TimeoutError:
            text = "amqp:resource-limit-exceeded the authentication service did not answer in time"
        self._log("warning", "AUTHSERVICE", f"Downstream disconnected: {text}")
        return Failure("")

    async def _library_mechanisms(self, running: _SaslExchange) -> list[str]:
        library, context = self.providers.library, running.context
        if library is None:
            return []
        pool = self._pools.library

        def begin() -> tuple[LibraryExchange, list[str]]:
            exchange = library.begin(context.encryption, context.external)
            return exchange, exchange.mechanisms()

        running.library, found = await pool.run(begin)
        return found

    def _own(self, context: ExchangeContext) -> list[str]:
        names = [EXTERNAL]
        users = self._users(context)
        if users is not None:
            if context.binding is not None:
                names += [name for name in BOUND_MECHANISMS if name.removesuffix(PLUS) in users.mechanisms]
            names += users.mechanisms
        if context.issuers:
            names += BEARERS
        if users is not None:
            names.append(PLAIN)
        return [*names, ANONYMOUS]

    def _users(self, context: ExchangeContext) -> Users | None:
        find = None if context.users is None else self.providers.users.get(context.users)
        return None if find is None else find()

    # The chosen mechanism

    async def _choose(self, running: _SaslExchange, message: Init) -> Answer:
        name = message.mechanism
        running.claim = f"{name} {claimed_user(name, message.response)}"
        if name not in running.offered:
            return Failure(NOT_OFFERED)
        running.mechanism = self._mechanism(running, name, message.hostname)
        if name.removesuffix(PLUS) in HASHES and isinstance(running.mechanism, _LocalMechanism):
            return await running.mechanism.step(message.response)  # no attempt yet: the proof is in the next response
        return await self._step(running, message.response)

    def _mechanism(self, running: _SaslExchange, name: str, hostname: str | None) -> _Mechanism:
        context = running.context
        if running.service is not None:
            return _ServiceMechanism(running.service, name, hostname)
        if name == ANONYMOUS:
            return _LocalMechanism(AnonymousServer())
        if name == EXTERNAL:
            return _LocalMechanism(ExternalServer(context.external))
        if running.library is not None:
            return _LibraryMechanism(running.library, name, self._pools.library)
        if name in BEARERS:
            return _LocalMechanism(BEARERS[name](self._token_check(context)), self._pools.tokens)
        users, file_name = self._users(context) or Users({}), context.users or ""
        file = _ExchangeUsersFile(file_name, self.providers.prefixes.get(file_name, ""), partial(self._users, context))
        if name.removesuffix(PLUS) in HASHES:
            bound = any(each in BOUND_MECHANISMS for each in running.offered)
            scram = ScramServer(name, users, binding=context.binding or b"", offers_bound=bound)
            return _LocalMechanism(scram, file=file)
        return _LocalMechanism(PlainServer(users), self._pools.passwords, file)

    def _token_check(self, context: ExchangeContext) -> Callable[[str, str], Success | Failure]:
        providers = self.providers

        def check(user: str, token: str) -> Success | Failure:
            """Check a token. The user name that the client gives is ignored, because the token names the user."""
            return providers.check_token(context.issuers, token)

        return check

    async def _step(self, running: _SaslExchange, response: bytes) -> Answer:
        assert running.mechanism is not None
        mechanism, host = running.mechanism, running.context.host
        delay = 0.0
        async with self._attempts.turn(host, running.claim):
            if running.service is not None:
                answer: Answer = await self._from_service(partial(mechanism.step, response))
            else:
                answer = await mechanism.step(response)
            if isinstance(answer, Failure) and answer.credentials:
                delay = self._attempts.failed(host)
                if self._attempts.guesses(host):
                    self._log("warning", "AUTHSERVICE", f"Many failed logins from {host}: further attempts are delayed")
        if delay:
            await asyncio.sleep(delay)
        if isinstance(answer, Success) and running.service is not None:
            self._log("info", "AUTHSERVICE", f"authenticated as {answer.user}")
        elif isinstance(answer, Failure) and running.service is not None and answer.text:
            self._log("warning", "AUTHSERVICE", f"Downstream disconnected: {answer.text}")
            return Failure("")
        return answer

    def _log(self, level: str, module: str, text: str) -> None:
        self._send(LogLine(module, level, text))


class _TokenMechanism:
    """Check of a token outside SASL, in the form of a mechanism."""

    def __init__(self, check: Callable[[str, str], Success | Failure], token: str) -> None:
        self._check: Final = check
        self._token: Final = token

    def step(self, response: bytes) -> Answer:
        return self._check("", self._token)


def _forget(future: "asyncio.Future[Any]") -> None:
    """Ignore the outcome of closing an exchange of the library. If its thread hangs, the exchange is never released."""
    if not future.cancelled():
        future.exception()
