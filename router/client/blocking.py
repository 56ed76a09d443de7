"""Blocking AMQP client: each call runs the connection until it is done.

    with connect("amqp://127.0.0.1:5672") as connection:
        sender = connection.sender("examples")
        receiver = connection.receiver("examples")
        sender.send(Message("hello"))
        delivery = receiver.receive(timeout=5)
        delivery.accept()

Only one thread may use a connection at a time. Heartbeats are sent while a call waits. A program that does other
things for long must call `poll` in between, or the peer closes the connection. A call that ends with TimeoutError has
no effect, except that a message which `send` has handed over may still arrive.
"""

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from sluice.router.client.attach import Terminus
from sluice.router.client.backoff import Backoff
from sluice.router.client.core import ClientCore, ConnectionStage, Options, target
from sluice.router.client.errors import LinkDetachedError, UnsettledError
from sluice.router.client.links import Delivery, LinkState, PendingSend, ReceiverState, SenderState
from sluice.router.client.message import Message
from sluice.router.client.outcome import Accepted, Outcome, Transactional, encode
from sluice.router.client.session import SessionState
from sluice.router.client.tls import failure
from sluice.router.client.transaction import CoordinatorState, check_discharged, read_declared, read_transactional
from sluice.router.client.transport import ClientSocket, open_socket
from sluice.router.client.url import Url

CLOSE_PATIENCE = 5.0  # seconds that `close` waits for the peer's close
CONNECT_PATIENCE = 10.0  # seconds for one attempt to connect, if others may follow or there is no time-out

T = TypeVar("T")


def connect(
    url: str | Sequence[str], *, timeout: float | None = None, reconnect: Backoff | None = None, **options: Any
) -> "SyncConnection":
    """Return an open connection to the first of these URLs that accepts it.

    options: fields of `Options`. reconnect: reconnect after a loss, in the order of the URLs. Raises
    ConnectionFailedError, TimeoutError.
    """
    connection = SyncConnection(*target(url, options), reconnect)
    try:
        connection.wait(lambda: connection.core.stage is ConnectionStage.OPEN, timeout)
    except BaseException:
        connection.abort()
        raise
    return connection


class SyncConnection:
    """Connection that `connect` returns."""

    def __init__(self, urls: Sequence[Url], options: Options, reconnect: Backoff | None) -> None:
        self.core = ClientCore(options)
        self.core.changed = self._flush
        self.urls = urls
        self.reconnect = reconnect
        self._socket: ClientSocket | None = None
        self._unsent: memoryview = memoryview(b"")
        self._attempt = 0
        self._next_at = 0.0  # time of the next attempt to connect
        self._session: SessionState | None = None
        self._flushing = False

    # -- use -----------------------------------------------------------------------------------------------------------

    @property
    def remote(self) -> dict[str, Any]:
        """The peer's open: container, hostname, properties, offered, desired."""
        return self.core.remote

    def session(self) -> "SyncSession":
        """Begin another session; links are otherwise made on the first one."""
        return SyncSession(self, self.core.session())

    def sender(self, address: str | None, *, timeout: float | None = None, **options: Any) -> "SyncSender":
        return SyncSession(self, self._first()).sender(address, timeout=timeout, **options)

    def receiver(self, address: str | None, *, timeout: float | None = None, **options: Any) -> "SyncReceiver":
        return SyncSession(self, self._first()).receiver(address, timeout=timeout, **options)

    def coordinator(self, *, timeout: float | None = None) -> "SyncCoordinator":
        return SyncSession(self, self._first()).coordinator(timeout=timeout)

    def poll(self, timeout: float = 0) -> None:
        """Run the connection for `timeout` seconds: send heartbeats, and read what arrives."""
        deadline = time.monotonic() + timeout
        while True:
            self.core.check()
            self._step(max(deadline - time.monotonic(), 0))
            if time.monotonic() >= deadline:
                return

    def close(
        self, condition: str | None = None, description: str | None = None, *, timeout: float = CLOSE_PATIENCE
    ) -> None:
        """Send queued messages and outcomes, close, and wait `timeout` seconds for the peer's close."""
        if self._socket is None:
            return self.abort()
        self.core.close(condition, description)
        deadline = time.monotonic() + timeout
        with contextlib.suppress(OSError):
            self._flush()
            while self._socket is not None and (left := deadline - time.monotonic()) > 0:
                self._step(left)
        return self.abort()

    def abort(self) -> None:
        """Close the socket without a close frame."""
        self.core.close()
        self._lost("closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _first(self) -> SessionState:
        if self._session is None:
            self._session = self.core.session()
        return self._session

    @property
    def _connected(self) -> bool:
        return self._socket is not None

    @property
    def flushed(self) -> bool:
        """True if all octets were sent."""
        return not self._unsent

    # -- running -------------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], T], timeout: float | None) -> T:
        """Run the connection until `condition()` is true, and return its value. Raises TimeoutError, any exception of
        the condition, and ConnectionFailedError if the connection is closed for good."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._flush()
        while not (value := condition()):
            self.core.check()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"nothing within {timeout} s")
            self._step(left)
        return value

    def _step(self, timeout: float | None) -> None:
        """Connect, or wait once for the socket."""
        if self._socket is None:
            return self._connect(timeout)
        self._flushing = True  # no flush within `tick`
        try:
            due = self.core.tick(time.monotonic())
        finally:
            self._flushing = False
        self._flush()
        if not self._connected:
            return None
        waits = [each for each in (timeout, due) if each is not None]
        poller = select.poll()
        poller.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        if self._socket.pending or poller.poll(int(min(waits) * 1000) + 1 if waits else None):
            self._read()
        return self._flush()

    def _read(self) -> None:
        assert self._socket is not None
        try:
            octets = self._socket.read()
        except OSError as error:
            self._lost(f"connection lost: {failure(error)}", error)
            return
        if octets is None:
            return
        if not octets:
            self._lost("the peer has closed the socket")
            return
        self._flushing = True  # no flush within `receive`
        try:
            self.core.receive(octets, time.monotonic())
        finally:
            self._flushing = False
        if self.core.stage is ConnectionStage.OPEN:
            self._attempt = 0

    def _flush(self) -> None:
        """Send as many octets as the socket takes."""
        if self._socket is None or self._flushing:
            return
        self._flushing = True
        try:
            while self._unsent or (octets := self.core.output(time.monotonic())):
                if not self._unsent:
                    self._unsent = memoryview(octets)
                sent = self._socket.write(self._unsent)
                if not sent:
                    return
                self._unsent = self._unsent[sent:]
        except OSError as error:
            self._lost(f"connection lost: {failure(error)}", error)
            return
        finally:
            self._flushing = False
        if self.core.closing and self.core.connection is not None:
            if self.core.stage is ConnectionStage.CLOSED:
                # After this side's close, the peer answers with the end of its stream.
                self._socket.end_output()
            else:
                self._lost("closed")

    def _lost(self, why: str, cause: OSError | None = None) -> None:
        """Close the socket, which is no longer usable, and plan the next attempt."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._unsent = memoryview(b"")
        self.core.lost(why, cause)
        if self.core.stage is not ConnectionStage.CLOSED:
            self._plan()

    def _plan(self) -> None:
        """Set the time of the next attempt to connect, or give up."""
        first_round = not self.core.remote and 0 < self._attempt < len(self.urls)
        delay = None if self.reconnect is None or self.core.refused else self.reconnect.delay(self._attempt)
        delay = 0.0 if first_round else delay
        if delay is None:
            self.core.give_up()
        else:
            self._next_at = time.monotonic() + delay

    def _connect(self, timeout: float | None) -> None:
        ahead = self._next_at - time.monotonic()
        if ahead > 0:
            time.sleep(ahead if timeout is None else min(ahead, timeout))
            return None
        url = self.urls[self._attempt % len(self.urls)]
        self._attempt += 1
        # Without another URL and without reconnection there is no further attempt to leave time for.
        last = self.reconnect is None and len(self.urls) == 1
        patience = CONNECT_PATIENCE if timeout is None else timeout if last else min(timeout, CONNECT_PATIENCE)
        try:
            self._socket = open_socket(url.host, url.port, max(patience, 0.001), *self.core.tls(url))
        except OSError as error:
            self.core.connection_attempt_failed(url, error)
            return self._plan()
        self.core.start(time.monotonic(), url.secure)
        return self._flush()


class SyncSession:
    """Session of a connection. Its links share its windows, and its end."""

    def __init__(self, connection: SyncConnection, state: SessionState) -> None:
        self.connection = connection
        self.state = state

    def sender(self, address: str | None, *, timeout: float | None = None, **options: Any) -> "SyncSender":
        """Return a sender that the peer has attached.

        address: None if each message names its own (`to`). options: of SenderState and LinkState. Raises
        LinkDetachedError if the peer refuses it.
        """
        options.setdefault("target", Terminus(address))
        options.setdefault("source", Terminus())
        sender = SyncSender(self.connection, self.state.sender(**options))
        sender.wait_attached(timeout)
        return sender

    def receiver(self, address: str | None, *, timeout: float | None = None, **options: Any) -> "SyncReceiver":
        """Return a receiver that the peer has attached. address: None with `source=Terminus(dynamic=True)`. options:
        of ReceiverState and LinkState."""
        options.setdefault("source", Terminus(address, dynamic=address is None))
        options.setdefault("target", Terminus())
        receiver = SyncReceiver(self.connection, self.state.receiver(**options))
        receiver.wait_attached(timeout)
        return receiver

    def coordinator(self, *, timeout: float | None = None) -> "SyncCoordinator":
        """Return a link to the peer's transaction coordinator, for transactions of links of this session.

        Raises TransactionError if the peer has no transactions.
        """
        state = CoordinatorState(self.state)
        self.state.add(state)
        coordinator = SyncCoordinator(self.connection, state)
        try:
            coordinator.wait_attached(timeout)
        except LinkDetachedError as error:
            raise state.refusal(error) from error
        return coordinator


class _SyncLink:
    state: LinkState

    def __init__(self, connection: SyncConnection) -> None:
        self.connection = connection

    @property
    def address(self) -> str | None:
        """Address of the peer's terminus."""
        return self.state.address

    def wait_attached(self, timeout: float | None) -> None:
        try:
            self._until(lambda: self.state.attached, timeout)
        except BaseException:
            self.state.close()
            raise

    def _until(self, condition: Callable[[], T], timeout: float | None) -> T:
        def checked() -> T:
            value = condition()
            if not value:
                self.state.check()
            return value

        return self.connection.wait(checked, timeout)

    def close(self) -> None:
        """Detach the link."""
        self.state.close()


class SyncSender(_SyncLink):
    """Sender that `SyncSession.sender` returns."""

    def __init__(self, connection: SyncConnection, state: SenderState) -> None:
        super().__init__(connection)
        self.state: SenderState = state

    def send(
        self,
        message: Message | bytes,
        *,
        settled: bool | None = None,
        tag: bytes | None = None,
        transaction: "SyncTransaction | None" = None,
        timeout: float | None = None,
    ) -> Outcome | None:
        """Wait for credit, send, and wait for the outcome. None: the message was settled, and is written.

        message: bytes are sent unchanged. transaction: the message gets the outcome when it is committed. Raises
        UnsettledError if the outcome will never be known, TransactionError if the receiver has accepted the message
        outside of the transaction.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        sending = self.start_send(message, settled=settled, tag=tag, transaction=transaction, timeout=timeout)
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        if sending.sent.settled:
            self.connection.wait(lambda: self.state.written(sending) and self.connection.flushed, left)
            return None
        self.connection.wait(lambda: sending.done, left)
        return sending.result() if transaction is None else read_transactional(sending.result(), transaction.txn_id)

    def start_send(
        self,
        message: Message | bytes,
        *,
        settled: bool | None = None,
        tag: bytes | None = None,
        transaction: "SyncTransaction | None" = None,
        timeout: float | None = None,
    ) -> PendingSend:
        """Wait for credit and send, without waiting for the outcome.

        A program that also receives the message needs this, since its receiver decides the outcome. `wait` of the
        connection runs until the returned object is `done`.
        """
        self._until(lambda: self.state.ready, timeout)
        state = b"" if transaction is None else encode(Transactional(transaction.txn_id))
        return self.state.send(message, settled, tag, state=state)

    def send_all(
        self, messages: Sequence[Message | bytes], *, timeout: float | None = None
    ) -> list[Outcome | UnsettledError]:
        """Send many messages without waiting for each outcome. Return the outcomes in order, with an UnsettledError
        for each message whose outcome will never be known."""
        deadline = None if timeout is None else time.monotonic() + timeout
        sendings = []
        for message in messages:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            self._until(lambda: self.state.ready, left)
            sendings.append(self.state.send(message, False))
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        self.connection.wait(lambda: all(each.done for each in sendings), left)
        return [each.error or each.result() for each in sendings]


class SyncReceiver(_SyncLink):
    """Receiver that `SyncSession.receiver` returns."""

    def __init__(self, connection: SyncConnection, state: ReceiverState) -> None:
        super().__init__(connection)
        self.state: ReceiverState = state

    def receive(self, timeout: float | None = None) -> Delivery:
        """Return the next delivery. Raises TimeoutError."""
        return self._until(self.state.take, timeout)  # type: ignore[return-value]

    def flow(self, credit: int) -> None:
        """Set the credit of a receiver with window 0."""
        self.state.flow(credit)

    def drain(self, timeout: float | None = None) -> None:
        """Wait until the sender has used or given back its credit. Deliveries sent by then are ready for `receive`.
        Credit is granted again by the next `receive`, or by `flow`."""
        self.state.drain()
        self._until(lambda: self.state.drained, timeout)

    def __iter__(self) -> Iterator[Delivery]:
        while True:
            yield self.receive()


class SyncCoordinator(_SyncLink):
    """Link to a transaction coordinator, which `SyncSession.coordinator` returns."""

    def __init__(self, connection: SyncConnection, state: CoordinatorState) -> None:
        super().__init__(connection)
        self.state: CoordinatorState = state

    def declare(self, timeout: float | None = None) -> "SyncTransaction":
        """Begin a transaction. Raises TransactionError."""
        return SyncTransaction(self, read_declared(self.request(self.state.declare, timeout)))

    def request(self, send: Callable[[], PendingSend], timeout: float | None) -> Outcome:
        """Wait for credit, send a request, and return its outcome. Raises UnsettledError if the link was lost before
        the outcome was known."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._until(lambda: self.state.ready, timeout)
        sending = send()
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        self.connection.wait(lambda: sending.done, left)
        if sending.error is not None and self.state.error is not None:  # the coordinator has detached: say why
            raise UnsettledError(True, self.state.error.condition, self.state.error.description) from self.state.error
        return sending.result()


class SyncTransaction:
    """Transaction that `SyncCoordinator.declare` returns. As a context manager, it commits at the end of the block,
    and rolls back if the block is left by an exception."""

    def __init__(self, coordinator: SyncCoordinator, txn_id: bytes) -> None:
        self.coordinator = coordinator
        self.txn_id = txn_id
        self._over = False

    def accept(self, delivery: Delivery) -> None:
        """Accept a received delivery when the transaction is committed."""
        delivery.settle(Transactional(self.txn_id, Accepted()))

    def commit(self, timeout: float | None = None) -> None:
        """Make the work of the transaction effective.

        Raises TransactionError if it was rolled back instead, and UnsettledError if the answer was lost: then it is
        unknown whether the transaction was committed.
        """
        self._discharge(False, timeout)

    def rollback(self, timeout: float | None = None) -> None:
        """Undo the work of the transaction. Raises TransactionError."""
        self._discharge(True, timeout)

    def _discharge(self, fail: bool, timeout: float | None) -> None:
        self._over = True
        state = self.coordinator.state
        check_discharged(self.coordinator.request(lambda: state.discharge(self.txn_id, fail), timeout), fail)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over:
            return
        if kind is None:
            self.commit()
        elif self.coordinator.state.attached:
            self.rollback()
