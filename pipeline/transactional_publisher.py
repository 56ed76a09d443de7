"""Publisher whose messages become visible together, in transactions of a broker (AMQP 1.0 part 4).

The messages of a transaction are kept until it is discharged. If one of them is released, if the broker does not
commit, or if the connection is lost, the transaction is rolled back, and all its messages are sent again in another.

If the answer to the discharge is lost, nobody knows whether the broker has committed, and the messages are sent again,
too. A broker that recognizes copies (`duplicate_ids`) then refuses to commit the second transaction, and its messages
are sent once more, without a transaction: the broker drops those that it has.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from sluice.pipeline.bulk_sender import MessageBatch
from sluice.pipeline.errors import PermanentPublishError
from sluice.pipeline.publisher import REFUSED, RESEND, Outlet, Publisher, PublisherOptions, describe_message
from sluice.router.client import outcome
from sluice.router.client.blocking import SyncConnection
from sluice.router.client.errors import ClientError, LinkDetachedError, TransactionError
from sluice.router.client.links import PendingSend
from sluice.router.client.transaction import (
    CoordinatorState,
    check_discharged,
    describe_container,
    read_declared,
    read_transactional,
)

#: Conditions with which a peer refuses the coordinator for good; precondition-failed: of a router without a link route.
NO_COORDINATOR: Final = REFUSED | {"amqp:precondition-failed"}
#: Seconds to wait for the answer to a rollback when the task fails.
ROLLBACK_PATIENCE: Final = 5.0
#: Part of the description of a rollback because of a copy (Artemis: "Duplicate message detected").
COPY: Final = "duplicate"

log = logging.getLogger(__name__)


def is_permanent(error: LinkDetachedError) -> bool:
    """Return True if the coordinator would be refused again.

    RabbitMQ refuses it by ending the session. A link route reports that as a lost link, and begins its text with the
    condition.
    """
    if error.condition != "qd:routed-link-lost":
        return error.condition in NO_COORDINATOR
    return any(f" {condition} " in f"{error.description} " for condition in NO_COORDINATOR)


@dataclass(frozen=True)
class KeptMessages:
    """Messages of the transaction, as they were queued. keys: of each message, or none."""

    messages: MessageBatch
    keys: Sequence[Hashable]
    dead: bool = False  # for the dead-letter address


class TransactionalPublisher(Publisher):
    """Publisher whose messages are in one transaction, or in one for each `transaction_rows` messages."""

    def __init__(self, options: PublisherOptions) -> None:
        super().__init__(options)
        self._kept: list[KeptMessages] = []
        self._rows = 0  # messages of the transaction
        self._coordinator: CoordinatorState | None = None
        self._txn_id = b""  # of the declared transaction; b"": there is none
        self._discharging = False  # the discharge may have reached the broker
        self._released_any = False  # a message was released: the transaction is to be rolled back
        self._changes: dict[bytes, deque[bytes | None]] = {}  # messages as they are to be sent again; None: not again
        self._done = 0  # messages accepted in this attempt at the transaction
        self._most_done = 0  # in any attempt: an attempt that gets no further is no progress
        self._plain = False  # send without a transaction, because the broker has copies of some messages

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        coordinator = self._coordinator
        if kind is not None and self._connection is not None and self._txn_id and coordinator and coordinator.ready:
            # Some brokers keep the transaction of a detached link until its connection ends, which may be a router's.
            try:
                sending = coordinator.discharge(self._txn_id, True)
                self._connection.wait(lambda: sending.done, ROLLBACK_PATIENCE)
            except (ClientError, TimeoutError, OSError) as fault:
                log.warning("%s: the rollback of a transaction was not confirmed: %s", self.options.url, fault)
        super().__exit__(kind, error, trace)

    # -- messages ------------------------------------------------------------------------------------------------------

    def send(self, messages: MessageBatch, keys: Sequence[Hashable] = ()) -> None:
        """Queue messages; wait while too many are left, and commit full transactions. Raises PublishError."""
        most = self.options.transaction_rows
        at = 0
        while at < messages.count:
            count = min(messages.count - at, most - self._rows) if most else messages.count
            whole = count == messages.count
            part = messages if whole else MessageBatch.of(messages[row] for row in range(at, at + count))
            some = keys if whole else keys[at : at + count]
            self._kept.append(KeptMessages(part, some))
            self._rows += count
            super().send(part, some)
            at += count
            if self._rows == most:
                self._commit()

    def send_dead_letters(self, messages: MessageBatch) -> None:
        """Queue messages for the dead-letter address, in the same transaction."""
        self._kept.append(KeptMessages(messages, (), dead=True))
        super().send_dead_letters(messages)

    def finish(self) -> None:
        """Wait until all messages are settled and their transaction is committed. Raises PublishError."""
        self._commit()

    # -- outcomes of messages ------------------------------------------------------------------------------------------

    @property
    def first_most(self) -> int:
        """See the base class. The first message of a transaction shows whether its receiver takes part."""
        return self.options.most if self._plain else 1

    def is_accepted(self, found: outcome.Outcome | None) -> bool:
        """See the base class. In a transaction, an outcome outside of it does not count."""
        if self._plain:
            return super().is_accepted(found)
        return (
            isinstance(found, outcome.Transactional)
            and found.txn_id == self._txn_id
            and isinstance(found.outcome, outcome.Accepted)
        )

    def on_unaccepted(self, outlet: Outlet, octets: bytes, state: bytes) -> bytes | None:
        """See the base class. In a transaction, no message is sent again by itself."""
        if self._plain:
            return super().on_unaccepted(outlet, octets, state)
        try:
            found = read_transactional(outcome.decode(state) or outcome.Released(), self._txn_id)
        except TransactionError as error:
            self._failure = f"{describe_message(octets)} to {outlet.address or 'its address'!r}: {error}"
            if outlet.link is not None:
                outlet.link.close()  # before it sends the next message
            return None
        again = super().on_unaccepted(outlet, octets, outcome.encode(found))
        self._released_any |= again is not None
        self._changes.setdefault(octets, deque()).append(again)
        return None

    def _add_accepted(self, new: int) -> None:
        super()._add_accepted(new)
        self._done += new

    def _note_progress(self) -> None:
        if self._plain or self._done > self._most_done:
            self._most_done = self._done
            super()._note_progress()

    # -- running -------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        if not self._plain:
            connection = self._connected()
            if (pause := self._again_at - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    connection.wait(lambda: False, min(pause, self._patience()))
                return
            if not self._txn_id:
                self._declare(connection)
        super()._step()
        if self._released_any:
            self._roll_back()

    def _count(self, connection: SyncConnection) -> int:
        if self._coordinator is not None:
            self._coordinator.check()
        return super()._count(connection)

    def _declare(self, connection: SyncConnection) -> None:
        """Declare a transaction. Raises ClientError, TimeoutError, PermanentPublishError."""
        if self._coordinator is None:
            self._coordinator = CoordinatorState(connection._first())
            connection._first().add(self._coordinator)
        found = self._request(connection, self._coordinator, self._coordinator.declare, "declare a transaction")
        self._txn_id = read_declared(found)
        self.transfer_state = outcome.encode(outcome.Transactional(self._txn_id))

    def _request(
        self, connection: SyncConnection, coordinator: CoordinatorState, send: Callable[[], PendingSend], what: str
    ) -> outcome.Outcome:
        """Send a request to the coordinator when there is credit, and return its outcome."""

        def ready() -> bool:
            coordinator.check()
            return coordinator.ready

        try:
            connection.wait(ready, self._patience())
            sending = send()
            connection.wait(lambda: sending.done, self._patience())
        except LinkDetachedError as error:
            refusal = coordinator.refusal(error)
            if is_permanent(error):
                raise PermanentPublishError(f"{self.options.url}: {refusal}") from error
            raise refusal from error
        except TimeoutError:
            raise TimeoutError(f"{describe_container(connection.core)} does not {what}") from None
        return sending.result()

    def _commit(self) -> None:
        """Discharge the transaction when all outcomes are known, and repeat it until it is committed."""
        self._moved = time.monotonic()
        while self._kept:
            self._run_on(0)
            if self._changes:
                self._roll_back()
                continue
            try:
                self._discharge()
            except (ClientError, TimeoutError, OSError) as error:
                self._lost(error)
            self._check_limits()

    def _discharge(self) -> None:
        """Commit the transaction. Raises ClientError, TimeoutError if it is unknown whether it was committed."""
        if self._txn_id and not self._plain:
            connection, coordinator, txn_id = self._connected(), self._coordinator, self._txn_id
            assert coordinator is not None
            self._discharging = True
            found = self._request(connection, coordinator, lambda: coordinator.discharge(txn_id, False), "discharge")
            self._discharging = False
            try:
                check_discharged(found)
            except TransactionError as error:
                self._note_rollback(error)
                return
        elif not self._plain and any(each.messages.count for each in self._kept):
            self._begin_again()  # the transaction was lost with its connection
            return
        self._close_links()
        self._make_outlets()
        self._kept = []
        self._rows = self._done = self._most_done = 0
        self._txn_id = self.transfer_state = b""
        self._plain = False

    def _note_rollback(self, error: TransactionError) -> None:
        """Send the messages again, because the broker has rolled back the transaction instead of committing it."""
        self._why = str(error)
        if self.options.duplicate_ids and COPY in error.description.lower():
            log.warning(
                "%s: the broker has some messages of the transaction already; they are sent without one: %s",
                self.options.url, error,
            )  # fmt: skip
            self._plain = True
        self._begin_again()

    def _roll_back(self) -> None:
        """Roll back the transaction, and send its messages in another one."""
        if self._coordinator is not None and self._txn_id and self._coordinator.ready:
            self._coordinator.discharge(self._txn_id, True)  # the next declare waits behind its answer
        self._begin_again()

    def _begin_again(self) -> None:
        """Queue all messages of the transaction again, for another transaction."""
        self._close_links()
        self._make_outlets()
        self._kept = [self._renew(each) for each in self._kept]
        self._rows = sum(each.messages.count for each in self._kept if not each.dead)
        self._changes = {}
        self._released_any = False
        self.accepted -= self._done
        self._done = 0
        self._txn_id = self.transfer_state = b""
        self._again_at = time.monotonic() + (RESEND.delay(self._resends) or 0.0)
        self._resends += 1
        for each in self._kept:
            if each.dead:
                self._dead.add(each.messages)
            else:
                self._queue(each.messages, each.keys)

    def _renew(self, kept: KeptMessages) -> KeptMessages:
        """Return messages that can be sent again: without those that were rejected, and with the changes of those that
        were modified."""
        messages = MessageBatch()
        keys: list[Hashable] = []
        for row in range(kept.messages.count):
            octets: bytes | None = kept.messages[row]
            assert octets is not None
            if waiting := self._changes.get(octets):
                octets = waiting.popleft()
            if octets is not None:
                messages.add(octets)
                keys += kept.keys[row : row + 1]
        return KeptMessages(messages, keys, kept.dead)

    def _close_links(self) -> None:
        for outlet in (self._main, self._dead):
            if outlet.link is not None:
                outlet.link.close()

    def _lost(self, error: Exception) -> None:
        if self._discharging and not self.options.duplicate_ids:
            log.warning(
                "%s: the answer to a discharge is lost (%s): if the broker has committed the transaction, its %d "
                "messages arrive twice", self.options.url, error, self._rows,
            )  # fmt: skip
        self._discharging = False
        super()._lost(error)
        self._coordinator = None
        if not self._plain:
            self._begin_again()
