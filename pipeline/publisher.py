"""Publisher: sends encoded messages, many in flight, until each is settled, and reconnects when the router returns.

    with Publisher(options) as publisher:
        publisher.send(messages)        returns when they are queued and there is room for more
        publisher.finish()              returns when all are settled

A wait without any progress ends with PublishError, a rejection with PermanentPublishError. Messages in flight on a lost
connection are sent again: their receiver may see them twice, with the same message-id.
"""

import time
from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from sluice.pipeline.bulk import BulkSenderState
from sluice.pipeline.bulk_sender import BulkSender, MessageBatch
from sluice.pipeline.errors import PermanentPublishError, PublishError
from sluice.pipeline.ordered_queue import OrderedLink, OrderedQueue
from sluice.pipeline.redelivery import prepare_redelivery
from sluice.router.amqp.errors import AmqpError
from sluice.router.client import outcome
from sluice.router.client.attach import Terminus
from sluice.router.client.backoff import Backoff
from sluice.router.client.blocking import SyncConnection, connect
from sluice.router.client.errors import ClientError
from sluice.router.client.message import decode as decode_message
from sluice.router.client.session import SessionState

#: Seconds between attempts to connect.
PAUSE: Final = 0.2
#: Delays before released messages are sent again, while no message is accepted.
RESEND: Final = Backoff(first=0.2, most=5.0, spread=0.0)
#: Most seconds to wait for a connection.
CONNECT_PATIENCE: Final = 15.0
#: Conditions of a permanent refusal. Trying again would be useless.
REFUSED: Final = frozenset(
    {"amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed", "amqp:not-implemented", "amqp:invalid-field"}
)


@dataclass(frozen=True)
class PublisherOptions:
    """Options of a publisher. address:

    None if each message names its own (`to`). on_reject: fail, drop or deadletter.
    """

    url: str
    address: str | None
    settled: bool = False
    ordered: bool = False  # messages have keys and leave in the order of their keys; not with `settled`
    most: int = 10_000  # upper bound of messages in flight
    timeout: float = 60.0  # seconds without any progress
    on_reject: str = "fail"
    dead_letters: str | None = None
    transactions: bool = False  # all messages are in one transaction; not with `settled`
    transaction_rows: int = 0  # most messages of a transaction; 0: all
    duplicate_ids: bool = False  # the broker recognizes copies of the messages
    client: tuple[tuple[str, Any], ...] = ()  # keyword arguments for sluice.router.client.core.Options


class TargetQueue:
    """Unsettled messages for one target. An outlet survives reconnects."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.messages: deque[MessageBatch] = deque()
        self.released: list[bytes] = []  # wait to be sent again
        self.link: PublisherLink | None = None

    @property
    def left(self) -> int:
        while self.messages and not self.messages[0].left:
            self.messages.popleft()
        return sum(each.left for each in self.messages) + len(self.released)

    def add(self, messages: MessageBatch) -> None:
        self.messages.append(messages)
        if self.link is not None and self.link.lifted and self.link.attached:
            self.link.give(messages)

    def make_link(self, session: SessionState, publisher: "Publisher", settled: bool) -> "PublisherLink":
        """Return a new link to the target. settled: it sends settled messages."""
        self.link = PublisherLink(session, publisher, self, settled)
        return self.link

    def send_released(self) -> None:
        if self.released:
            self.add(MessageBatch.of(self.released))
            self.released = []

    def lift(self) -> None:
        """Give the messages to a new link, those in flight before the reconnect first."""
        assert self.link is not None
        self.link.lifted = True
        for each in self.messages:
            self.link.give(each)


class PublisherLink(BulkSenderState):
    """Sender link of an outlet. It reports outcomes other than accepted to the publisher."""

    def __init__(self, session: SessionState, publisher: "Publisher", outlet: TargetQueue, settled: bool) -> None:
        super().__init__(
            session,
            settled=settled,
            most=0 if settled else publisher.first_most,
            transfer_state=publisher.transfer_state,
            source=Terminus(),
            target=Terminus(outlet.address),
        )
        self.publisher = publisher
        self.outlet = outlet
        self.lifted = False  # the waiting messages have been given to this link
        self.counted = 0  # accepted messages that `count` has reported

    @property
    def in_flight(self) -> int:
        return self.link.rows_in_flight if self.link is not None else 0

    def count(self, flushed: bool = False) -> int:
        """Return the number of messages accepted since the previous call.

        flushed: the kernel has all octets, so messages that were sent settled are complete.
        """
        if flushed and self.settled:
            self.link.settle_written()
        new = self.accepted - self.counted
        self.counted += new
        return new

    def on_outcome(self, sender: BulkSender, octets: bytes, state: bytes) -> None:
        if self.transfer_state and self.publisher.is_accepted(outcome.decode(state)):
            sender.learn_accepted(state)
            sender.most = self.publisher.options.most
            return
        again = self.publisher.on_unaccepted(self.outlet, octets, state)
        if again is not None:
            self.outlet.released.append(again)


Outlet = TargetQueue | OrderedQueue


class Publisher:
    """Sender of messages to one address, over one connection at a time."""

    def __init__(self, options: PublisherOptions) -> None:
        self.options = options
        self.accepted = 0
        self.rejected = 0
        self.resent = 0
        self.transfer_state = b""  # encoded delivery state of the messages; b"": none
        self._make_outlets()
        self._again_at = 0.0  # time at which released messages are sent again (monotonic)
        self._resends = 0  # times that released messages were sent again since a message was accepted
        self._connection: SyncConnection | None = None
        self._moved = time.monotonic()  # time of the last progress (monotonic): a message was accepted or rejected
        self._events = 0
        self._failure: str = ""
        self._why = ""  # reason for the last lost connection or the last release

    def _make_outlets(self) -> None:
        """Create empty queues of messages."""
        address = self.options.address
        self._main: Outlet = OrderedQueue(address) if self.options.ordered else TargetQueue(address)
        self._dead = TargetQueue(self.options.dead_letters)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            (self._connection.close if kind is None else self._connection.abort)()
            self._connection = None

    @property
    def first_most(self) -> int:
        """Most messages in flight of a new link, until one is accepted."""
        return self.options.most

    @property
    def left(self) -> int:
        return self._main.left + self._dead.left

    @property
    def _released(self) -> bool:
        """True if messages wait to be sent again."""
        return bool(self._main.released or self._dead.released)

    def send(self, messages: MessageBatch, keys: Sequence[Hashable] = ()) -> None:
        """Queue messages; wait while too many are left. keys: of the messages, with `ordered`. Raises PublishError."""
        self._queue(messages, keys)
        if self.left >= self.options.most:
            self._run(self.options.most // 2)

    def _queue(self, messages: MessageBatch, keys: Sequence[Hashable]) -> None:
        if isinstance(self._main, OrderedQueue):
            self._main.add_ordered(messages, keys)
        else:
            self._main.add(messages)

    def send_dead_letters(self, messages: MessageBatch) -> None:
        """Queue messages for the dead-letter address."""
        self._dead.add(messages)

    def finish(self) -> None:
        """Wait until all messages are settled. Raises PublishError."""
        self._run(0)

    # -- outcomes of messages ------------------------------------------------------------------------------------------

    def is_accepted(self, found: outcome.Outcome | None) -> bool:
        """True if a message with this outcome need not be sent again."""
        return isinstance(found, outcome.Accepted)

    def on_unaccepted(self, outlet: Outlet, octets: bytes, state: bytes) -> bytes | None:
        """Handle an outcome other than accepted. state: the outcome, encoded.

        Return the message as it is to be sent again later, or None: it is not sent again.
        """
        self._events += 1
        how = outcome.decode(state)
        if isinstance(how, outcome.Rejected):
            self._reject(outlet, octets, ": ".join(part for part in (how.condition, how.description) if part))
        elif isinstance(how, outcome.Modified) and how.undeliverable_here:
            # The message must not be sent to this link again (part 3, 3.4.5).
            self._reject(outlet, octets, "modified, undeliverable-here")
        else:  # released or modified: no receiver has the message
            self.resent += 1
            self._why = f"released by {outlet.address or 'the receivers'}"
            self._again_at = max(self._again_at, time.monotonic() + (RESEND.delay(self._resends) or 0.0))
            return prepare_redelivery(octets, state)
        return None

    def _reject(self, outlet: Outlet, octets: bytes, why: str) -> None:
        self._moved = time.monotonic()
        self.rejected += 1
        said = why or "no reason given"
        if outlet is self._dead:
            self._failure = f"dead letters to {outlet.address!r} are rejected: {said}"
        elif self.options.on_reject == "deadletter":
            self.send_dead_letters(MessageBatch.of([octets]))
        elif self.options.on_reject == "fail":
            self._failure = f"{describe_message(octets)} to {outlet.address or 'its address'!r} was rejected: {said}"

    # -- running -------------------------------------------------------------------------------------------------------

    def _run(self, low: int) -> None:
        """Run until at most `low` messages are left."""
        self._moved = time.monotonic()
        self._run_on(low)

    def _run_on(self, low: int) -> None:
        """Run as `_run`, within the time limit of an earlier wait."""
        while self.left > low:
            try:
                self._step()
            except (ClientError, TimeoutError, OSError) as error:
                self._lost(error)
            self._check_limits()

    def _check_limits(self) -> None:
        """Raise PublishError if a message was refused, or if there was no progress for too long."""
        if self._failure:
            raise PermanentPublishError(f"{self.options.url}: {self._failure}")
        if time.monotonic() - self._moved > self.options.timeout:
            raise PublishError(
                f"{self.options.url}: no message to {self._main.address or 'any address'!r} was settled within "
                f"{self.options.timeout:g} s; {self.left} messages are left "
                f"({self._why or self._why_waiting()})"
            )

    def _why_waiting(self) -> str:
        in_flight = any(each.link is not None and each.link.in_flight for each in (self._main, self._dead))
        return "no receiver settles messages in flight" if in_flight else "no receiver gives credit"

    def _patience(self) -> float:
        return max(self._moved + self.options.timeout - time.monotonic(), 0.001)

    def _step(self) -> None:
        """Send as far as credit allows, and wait for an event."""
        connection = self._connected()
        if self._released and time.monotonic() >= self._again_at:
            for outlet in (self._main, self._dead):
                outlet.send_released()
            self._resends += 1
        for outlet in (self._main, self._dead):
            if outlet.left and outlet.link is None:
                self._attach(connection, outlet)
        before = self._events
        timeout = self._patience()
        if self._released:
            timeout = min(timeout, max(self._again_at - time.monotonic(), 0.001))
        with suppress(TimeoutError):  # `_run` checks whether the wait was too long
            connection.wait(lambda: self._count(connection) or self._events != before, timeout)

    def _count(self, connection: SyncConnection) -> int:
        """Return the number of messages accepted since the previous call. Raises the error of a link that ended."""
        new = 0
        for outlet in (self._main, self._dead):
            if outlet.link is not None:
                outlet.link.check()
                new += outlet.link.count(connection.flushed)
        if new:
            self._add_accepted(new)
            self._note_progress()
        return new

    def _add_accepted(self, new: int) -> None:
        self.accepted += new

    def _note_progress(self) -> None:
        """Begin the time limit again, because messages were accepted."""
        self._moved = time.monotonic()
        self._resends = 0

    def _attach(self, connection: SyncConnection, outlet: Outlet) -> None:
        session = connection._first()
        link: PublisherLink | OrderedLink
        if isinstance(outlet, OrderedQueue):
            link = outlet.make_link(session, self)
        else:
            link = outlet.make_link(session, self, self.options.settled and outlet is self._main)
        session.add(link)

        def attached() -> bool:
            link.check()  # raises LinkDetachedError if the router refused it
            return link.attached

        try:
            connection.wait(attached, self._patience())
        except TimeoutError:
            raise TimeoutError(f"the router does not attach the link to {outlet.address or 'any address'!r}") from None
        outlet.lift()

    def _connected(self) -> SyncConnection:
        if self._connection is None:
            try:
                self._connection = connect(
                    self.options.url, timeout=min(self._patience(), CONNECT_PATIENCE), **dict(self.options.client)
                )
            except TimeoutError:
                raise TimeoutError("the router does not answer") from None
        return self._connection

    def _lost(self, error: Exception) -> None:
        """Drop the connection. Raises PublishError if a new connection would not help."""
        self._why = str(error) or type(error).__name__
        condition = getattr(error, "condition", "")
        if isinstance(error, ClientError) and condition in REFUSED:
            refused = (each for each in (self._main, self._dead) if each.link is not None and each.link.error is error)
            what = next((f"address {each.address!r}" for each in refused), "the connection")
            raise PermanentPublishError(f"{self.options.url}: the router refuses {what}: {error}") from error
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        for outlet in (self._main, self._dead):
            if outlet.link is not None:
                self._add_accepted(outlet.link.count())
                outlet.link = None
        time.sleep(min(PAUSE, self._patience()))


def describe_message(octets: bytes) -> str:
    """Return words for a message in an error: its message-id, if it has one."""
    try:
        name = decode_message(octets).message_id
    except AmqpError:
        name = None
    return "a message" if name is None else f"message {str(name)!r}"
