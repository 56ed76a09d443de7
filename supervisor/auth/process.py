"""Authentication process: `python -P -m sluice.supervisor.auth.process DESCRIPTOR PARENT NAME`.

It holds secrets and code that must not be in other processes (password verifiers, keys, libsasl2 and its plugins), and
does work that may be slow. It communicates only over its socket, and ends when the socket is closed or the supervisor
dies.
"""

import asyncio
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from sluice.router.process import drop_capabilities, forbid_memory_access, raise_nice_value
from sluice.router.sasl import users
from sluice.router.sasl.users import Users
from sluice.supervisor.auth.attempts import Attempts
from sluice.supervisor.auth.exchanges import Providers, SaslExchanges
from sluice.supervisor.auth.library import Library, LibraryError
from sluice.supervisor.auth.messages import (
    MAX_MESSAGE,
    BeginExchange,
    CancelExchange,
    CheckTokenRequest,
    Configure,
    Configured,
    ConfirmUsers,
    Init,
    LogLine,
    ProviderState,
    Report,
    Request,
    Respond,
    States,
    TokenIssuer,
    UsersFile,
    UsersMissing,
    UsersRead,
    decode_request,
    encode,
)
from sluice.supervisor.auth.messages import LibrarySettings as LibraryConfig
from sluice.supervisor.auth.watched_files import CHECK_INTERVAL, FileWatcher, WatchedFile, file_state
from sluice.supervisor.children.framing import MessageError, MessageSplitter, pack
from sluice.supervisor.children.zygote import IGNORED, adopt_process

if TYPE_CHECKING:
    from sluice.supervisor.auth.issuers import ConfiguredIssuer

READ_SIZE: Final = 65536


class AuthenticationServer(asyncio.Protocol):
    """Authentication process on an event loop. `ended` completes when the supervisor has closed the socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self.ended: Final[asyncio.Future[None]] = loop.create_future()
        self._reader: Final = MessageSplitter(MAX_MESSAGE)
        self._transport: asyncio.WriteTransport | None = None
        self._outbox = bytearray()  # encoded messages; those of one iteration of the event loop are sent together
        self._watcher: Final = FileWatcher()
        self._users: dict[UsersFile, WatchedFile[Users]] = {}
        self._issuers: dict[TokenIssuer, ConfiguredIssuer] = {}
        self._library: Library | None = None
        self._exchanges: Final = SaslExchanges(loop, Providers(), Attempts(), self.send)
        self._one_configuration: Final = asyncio.Lock()
        self._read: dict[str, Users | None] = {}  # users files, by name, that were reported to the supervisor
        self._told: list[ProviderState] = []  # states that were reported to the supervisor
        self._early: (
            list[BeginExchange | Init | Respond | CheckTokenRequest | CancelExchange] | None
        ) = []  # messages that arrived before the first configuration was in use; None: it is in use

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        for octets in self._reader.feed(data):
            self._handle(decode_request(octets))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if not self.ended.done():
            self.ended.set_result(None)

    def send(self, report: Report) -> None:
        """Send a message to the supervisor."""
        try:
            octets = pack(encode(report))
        except MessageError as error:
            self._log("critical", str(error))
            return
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox += octets

    def _flush(self) -> None:
        assert self._transport is not None
        octets, self._outbox = self._outbox, bytearray()
        self._transport.write(octets)

    def _log(self, level: str, text: str) -> None:
        self.send(LogLine("AUTHSERVICE", level, text))

    def _log_from_thread(self, level: str, text: str) -> None:
        try:
            self._loop.call_soon_threadsafe(self._log, level, text)
        except RuntimeError:
            return  # the loop has ended

    def _handle(self, message: Request) -> None:
        if isinstance(message, Configure):
            self._loop.create_task(self._configure_next(message)).add_done_callback(self._configured)
        elif isinstance(message, ConfirmUsers):
            self._confirm(message)
        elif self._early is not None:
            self._early.append(message)
        else:
            self._exchange(message)

    def _exchange(self, message: BeginExchange | Init | Respond | CheckTokenRequest | CancelExchange) -> None:
        match message:
            case BeginExchange():
                self._exchanges.begin(message)
            case Init():
                self._exchanges.init(message)
            case Respond():
                self._exchanges.respond(message)
            case CheckTokenRequest():
                self._exchanges.check(message)
            case CancelExchange():
                self._exchanges.cancel(message)

    def _confirm(self, message: ConfirmUsers) -> None:
        find = self._exchanges.providers.users.get(message.file)
        found = None if find is None else find()
        if found is not None:  # without a valid file no user counts as missing
            missing = [user for user in message.users if user not in found.users]
            if missing:
                self.send(UsersMissing(message.file, missing))

    # The configuration

    def _configured(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log("critical", "".join(traceback.format_exception(error)).rstrip())
        early, self._early = self._early or [], None
        for message in early:
            self._exchange(message)

    async def _configure_next(self, message: Configure) -> None:
        async with self._one_configuration:
            await self._configure(message)

    async def _configure(self, message: Configure) -> None:
        """Use these providers, and no others. Providers that stay keep the values that they have read."""
        kept = {each: self._users.get(each) or self._watched_users(each) for each in message.users}
        issuers = {each: self._issuers.get(each) or self._issuer(each) for each in message.issuers}
        files: list[WatchedFile[object]] = [*kept.values(), *(each.file for each in issuers.values() if each.file)]  # type: ignore[list-item]
        await self._loop.run_in_executor(None, _look, files)
        problems = [("saslUsers", each.name, found.problem) for each, found in kept.items() if found.problem]
        problems += [
            ("tokenIssuer", each.name, found.file.problem)
            for each, found in issuers.items()
            if found.file is not None and found.file.problem
        ]
        if message.library is not None and self._library is None:
            problems += await self._loop.run_in_executor(None, self._start_library, message.library)
        for gone, found in self._issuers.items():
            if gone not in issuers:
                found.stop()
        self._users, self._issuers = kept, issuers
        self._watcher.watch(files)
        self._exchanges.providers = Providers(
            users={each.name: found.get for each, found in kept.items()},
            prefixes={each.name: each.prefix for each in kept},
            services={each.name: each for each in message.services},
            library=self._library,
        )
        if issuers:
            from sluice.supervisor.auth.tokens import check_token

            by_name = {each.name: found.issuer for each, found in issuers.items()}
            self._exchanges.providers.check_token = lambda names, token: check_token(
                [by_name[name] for name in names if name in by_name], token
            )
        self.send(Configured(message.serial, problems))
        self._tell_states()

    def _tell_states(self) -> None:
        """Report changed states of providers, and users files that were read."""
        states = [file_state("saslUsers", each.name, found) for each, found in self._users.items()]
        states += [found.state for found in self._issuers.values()]
        if states != self._told:
            self._told = states
            self.send(States(states))
        read = {each.name: found.value for each, found in self._users.items()}
        before, self._read = self._read, read
        for name, value in read.items():
            if value is not None and value is not before.get(name):
                self.send(UsersRead(name))

    async def watch_states(self) -> None:
        """Report changed states to the supervisor, once a second."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            self._tell_states()

    def _watched_users(self, config: UsersFile) -> WatchedFile[Users]:
        return WatchedFile(config.path, users.read, self._log_from_thread, f"saslUsers {config.name}")

    def _issuer(self, config: TokenIssuer) -> "ConfiguredIssuer":
        # Imported on demand: the cryptography takes long to load, and most routers use no tokens.
        from sluice.supervisor.auth.issuers import ConfiguredIssuer

        return ConfiguredIssuer(config, self._log_from_thread)

    def _start_library(self, config: LibraryConfig) -> list[tuple[str, str, str]]:
        try:
            self._library = Library(config, self._log_from_thread)
        except LibraryError as error:
            return [("router", "saslConfigName", str(error))]
        return []


def _look(files: Iterable[WatchedFile[object]]) -> None:
    for each in files:
        each.look()


async def _serve(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ours = socket.socket(fileno=descriptor)
    ours.setblocking(False)
    _, process = await loop.create_connection(lambda: AuthenticationServer(loop), sock=ours)
    telling = loop.create_task(process.watch_states())
    await process.ended
    telling.cancel()


def main(words: Sequence[str]) -> int:
    """Run the process: descriptor of the socket, process id of the supervisor, name of the process."""
    descriptor, parent, name = int(words[0]), int(words[1]), words[2]
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    adopt_process(parent, name, "authentication")
    raise_nice_value()  # logins during a connection burst must not delay established clients
    # The memory contains passwords: allow no core file, and no access by other processes of this user.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    forbid_memory_access()
    drop_capabilities()
    asyncio.run(_serve(descriptor))
    return 0


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(sys.argv[1:]))  # without waiting for threads that hang
