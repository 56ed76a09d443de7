"""AMQP client for asyncio.

    async with await aconnect("amqp://127.0.0.1:5672") as connection:
        sender = await connection.sender("examples")
        receiver = await connection.receiver("examples")
        await sender.send(Message("hello"))
        delivery = await receiver.receive(timeout=5)
        delivery.accept()

Calls of several tasks may wait at the same time. A cancelled call has no effect, except that a message which `send`
has handed over may still arrive.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from sluice.router.client.attach import Terminus
from sluice.router.client.backoff import Backoff
from sluice.router.client.core import ClientCore, ConnectionStage, Options, target
from sluice.router.client.input_buffer import InputBuffer
from sluice.router.client.links import Delivery, LinkState, ReceiverState, SenderState
from sluice.router.client.message import Message
from sluice.router.client.outcome import Outcome
from sluice.router.client.session import SessionState
from sluice.router.client.tls import failure
from sluice.router.client.url import Url

CLOSE_PATIENCE = 5.0  # seconds that `close` waits for the peer's close
CONNECT_PATIENCE = 10.0  # seconds for one attempt to connect

T = TypeVar("T")


async def aconnect(
    url: str | Sequence[str], *, timeout: float | None = None, reconnect: Backoff | None = None, **options: Any
) -> "AsyncConnection":
    """Return an open connection, as `connect` does."""
    connection = AsyncConnection(*target(url, options), reconnect)
    try:
        await connection.wait(lambda: connection.core.stage is ConnectionStage.OPEN, timeout)
    except BaseException:
        await connection.abort()
        raise
    return connection


class _Protocol(asyncio.BufferedProtocol):
    """Protocol of one transport. Owner: the connection's task."""

    def __init__(self, connection: "AsyncConnection", secure: bool) -> None:
        self.connection = connection
        self.secure = secure
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self._input = InputBuffer()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connection.began(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._input.room

    def buffer_updated(self, count: int) -> None:
        connection = self.connection
        if not self._input.pass_on(count, connection.feed) and connection.gather:
            assert self.transport is not None
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(connection.gather, self.read_on)
        connection.received()

    def read_again(self) -> None:
        """Take octets that the engine has left until a computation was done."""
        self._input.pass_on(0, self.connection.feed)

    def read_on(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.connection.progress()

    def connection_lost(self, error: Exception | None) -> None:
        cause = error if isinstance(error, OSError) else None
        what = error if cause is None else failure(cause)
        self.connection.lost(f"connection lost: {what}" if error else "the peer has closed the socket", cause)
        if not self.ended.done():
            self.ended.set_result(None)


class AsyncConnection:
    """Connection that `aconnect` returns."""

    def __init__(self, urls: Sequence[Url], options: Options, reconnect: Backoff | None) -> None:
        self.core = ClientCore(options)
        self.core.changed = self._soon
        self.core.later = self._compute
        self.urls = urls
        self.reconnect = reconnect
        #: Seconds after a read that leaves nothing to be read, until the next one, for users that take many messages
        #: together.
        self.gather = 0.0
        #: For users that take many messages together: False if no call of `wait` looks for the messages of the last
        #: read. Other changes wake these calls in any case.
        self.awaited: Callable[[], bool] = lambda: True
        self._session: SessionState | None = None
        self._protocol: _Protocol | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._planned = False  # a call of `progress` is scheduled
        self._task = asyncio.get_running_loop().create_task(self._run())

    # -- use -----------------------------------------------------------------------------------------------------------

    @property
    def remote(self) -> dict[str, Any]:
        """The peer's open: container, hostname, properties, offered, desired."""
        return self.core.remote

    def session(self, window: int | None = None) -> "AsyncSession":
        """Begin a session of its own. Without this call all links share one session. window: see SessionState."""
        return AsyncSession(self, self.core.session(window))

    async def sender(self, address: str | None, *, timeout: float | None = None, **options: Any) -> "AsyncSender":
        return await AsyncSession(self, self._first()).sender(address, timeout=timeout, **options)

    async def receiver(self, address: str | None, *, timeout: float | None = None, **options: Any) -> "AsyncReceiver":
        return await AsyncSession(self, self._first()).receiver(address, timeout=timeout, **options)

    async def close(self, condition: str | None = None, description: str | None = None) -> None:
        """Send queued messages and outcomes, close, and wait for the peer's close for CLOSE_PATIENCE."""
        self.core.close(condition, description)
        self.progress()
        if self._protocol is not None:
            await asyncio.wait([self._protocol.ended], timeout=CLOSE_PATIENCE)
        await self.abort()

    async def abort(self) -> None:
        """Close the socket without a close frame."""
        self.core.close()
        if self._protocol is not None and self._protocol.transport is not None:
            self._protocol.transport.abort()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.lost("closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _first(self) -> SessionState:
        if self._session is None:
            self._session = self.core.session()
        return self._session

    # -- running -------------------------------------------------------------------------------------------------------

    async def wait(self, condition: Callable[[], T], timeout: float | None) -> T:
        """Wait until `condition()` is true, and return its value. Raises TimeoutError, any exception of the condition,
        and ConnectionFailedError if the connection is closed for good."""

        self._soon()
        async with asyncio.timeout(timeout):
            # The condition is called here and not in `progress`: what it takes must not get lost when this task is
            # cancelled.
            while not (value := condition()):
                self.core.check()
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(future)
                await future
        return value

    def progress(self) -> None:
        """Send output, and wake all waiting calls to check their conditions."""
        self._planned = False
        self._flush()
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def _soon(self) -> None:
        """Schedule `progress` after the current task has paused, so that many outcomes are sent together."""
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self.progress)

    def _flush(self) -> None:
        protocol = self._write()
        if protocol is None or protocol.transport is None:
            return
        if self.core.closing and self.core.connection is not None:
            protocol.transport.close()
            return
        if self._timer is not None:
            self._timer.cancel()
        due = self.core.tick(time.monotonic())
        self._timer = None if due is None else asyncio.get_running_loop().call_later(due, self.progress)

    def _write(self) -> _Protocol | None:
        """Write output as far as the transport takes it. Return the transport's protocol, if there is one."""
        protocol = self._protocol
        if protocol is not None and protocol.transport is not None:
            while protocol.writable and (octets := self.core.output(time.monotonic())):
                protocol.transport.write(octets)
        return protocol

    @property
    def flushed(self) -> bool:
        """True if the transport has room for more."""
        return self._protocol is not None and self._protocol.writable

    def began(self, protocol: _Protocol) -> None:
        self._protocol = protocol
        self.core.start(time.monotonic(), protocol.secure)
        self.progress()

    def feed(self, octets: memoryview) -> int:
        return self.core.feed(octets, time.monotonic())

    def received(self) -> None:
        """Handle the end of a read. Timers stay as they are while nobody awaits it: `progress` moves them when due."""
        if self.awaited():
            self.progress()
        else:
            self._write()

    def _compute(self, work: Callable[[], bytes]) -> None:
        """Run a computation in another thread: the server determines how long SCRAM takes, and other tasks must run."""
        protocol = self._protocol

        def computed(future: asyncio.Future[bytes]) -> None:
            if protocol is not None and self._protocol is protocol and not future.cancelled():
                self.core.answer_sasl(future.result(), time.monotonic())
                protocol.read_again()
                self.progress()

        asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(computed)

    def lost(self, why: str, cause: OSError | None = None) -> None:
        self._protocol = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.core.lost(why, cause)
        self.progress()

    async def _run(self) -> None:
        """Connect, and reconnect after a loss."""
        attempt = 0
        while self.core.stage is not ConnectionStage.CLOSED:
            url = self.urls[attempt % len(self.urls)]
            attempt += 1
            try:
                context, name = self.core.tls(url)
                async with asyncio.timeout(CONNECT_PATIENCE):
                    _, protocol = await asyncio.get_running_loop().create_connection(
                        partial(_Protocol, self, url.secure),
                        url.host,
                        url.port,
                        ssl=context,
                        server_hostname=None if context is None else name,
                    )
            except OSError as error:  # includes TimeoutError
                self.core.connection_attempt_failed(url, error)
            else:
                await protocol.ended
                if self.core.was_open:
                    attempt = 0
            if 0 < attempt < len(self.urls) and not self.core.remote:
                continue
            delay = self.reconnect.delay(attempt) if self.reconnect is not None else None
            if delay is None or self.core.refused:
                self.core.give_up()
                self.progress()
                return
            await asyncio.sleep(delay)


class AsyncSession:
    """Session for asyncio, otherwise as `Session`."""

    def __init__(self, connection: AsyncConnection, state: SessionState) -> None:
        self.connection = connection
        self.state = state

    async def sender(self, address: str | None, *, timeout: float | None = None, **options: Any) -> "AsyncSender":
        options.setdefault("target", Terminus(address))
        options.setdefault("source", Terminus())
        sender = AsyncSender(self.connection, self.state.sender(**options))
        await sender.wait_attached(timeout)
        return sender

    async def receiver(self, address: str | None, *, timeout: float | None = None, **options: Any) -> "AsyncReceiver":
        options.setdefault("source", Terminus(address, dynamic=address is None))
        options.setdefault("target", Terminus())
        receiver = AsyncReceiver(self.connection, self.state.receiver(**options))
        await receiver.wait_attached(timeout)
        return receiver


class _AsyncLink:
    state: LinkState

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection

    @property
    def address(self) -> str | None:
        """Address of the peer's terminus."""
        return self.state.address

    async def wait_attached(self, timeout: float | None) -> None:
        try:
            await self._until(lambda: self.state.attached, timeout)
        except BaseException:
            self.state.close()
            raise

    async def _until(self, condition: Callable[[], T], timeout: float | None) -> T:
        def checked() -> T:
            value = condition()
            if not value:
                self.state.check()
            return value

        return await self.connection.wait(checked, timeout)

    async def close(self) -> None:
        """Detach the link."""
        self.state.close()


class AsyncSender(_AsyncLink):
    """Sender for asyncio, otherwise as `Sender`."""

    def __init__(self, connection: AsyncConnection, state: SenderState) -> None:
        super().__init__(connection)
        self.state: SenderState = state

    async def send(
        self,
        message: Message | bytes,
        *,
        settled: bool | None = None,
        tag: bytes | None = None,
        timeout: float | None = None,
    ) -> Outcome | None:
        """Wait for credit, send, and wait for the outcome. None: the message was settled, and the transport has it."""
        async with asyncio.timeout(timeout):
            # Of several tasks that see the same credit, the first to run takes it.
            sending = await self._until(
                lambda: self.state.send(message, settled, tag) if self.state.ready else None, None
            )
            assert sending is not None
            if sending.sent.settled:
                await self.connection.wait(lambda: self.state.written(sending) and self.connection.flushed, None)
                return None
            await self.connection.wait(lambda: sending.done, None)
        return sending.result()


class AsyncReceiver(_AsyncLink):
    """Receiver for asyncio, otherwise as `Receiver`."""

    def __init__(self, connection: AsyncConnection, state: ReceiverState) -> None:
        super().__init__(connection)
        self.state: ReceiverState = state

    async def receive(self, timeout: float | None = None) -> Delivery:
        """Return the next delivery. Raises TimeoutError."""
        delivery = await self._until(self.state.take, timeout)
        assert delivery is not None
        return delivery

    def flow(self, credit: int) -> None:
        """Set the credit of a receiver with window 0."""
        self.state.flow(credit)

    async def drain(self, timeout: float | None = None) -> None:
        """Drain, and wait until the sender has used or given back its credit."""
        self.state.drain()
        await self._until(lambda: self.state.drained, timeout)

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        return await self.receive()
