"""Sender of a capture: a link for each address, the timing of the file, and the outcomes."""

import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from sluice.router.addressing.address import INTERIOR_MODE, MOBILE, classify, normalise
from sluice.router.addressing.settings import SERVICES
from sluice.router.capture.capture_file import CapturedMessage, CaptureError
from sluice.router.capture.original import zero_body
from sluice.router.client.backoff import Backoff
from sluice.router.client.blocking import SyncConnection, SyncSender
from sluice.router.client.errors import LinkDetachedError, UnsettledError
from sluice.router.client.links import PendingSend
from sluice.router.client.outcome import Accepted, Modified, Outcome, Rejected, Released

LINKS_MOST: Final = 200  # links at a time; the one that was used longest ago is closed
REFUSALS_MOST: Final = 1000  # addresses whose refusal is reported
RETRIES: Final = Backoff(attempts=10)  # after the connection is lost

ACCEPTED: Final = "accepted"
SETTLED: Final = "sent settled"
NO_CREDIT: Final = "without credit"
NO_OUTCOME: Final = "without outcome"
LOST: Final = "lost with the connection"
REFUSED: Final = "refused"
_NAMES: Final[dict[type[Outcome], str]] = {
    Accepted: ACCEPTED, Rejected: "rejected", Released: "released", Modified: "modified",
}  # fmt: skip
_NS_A_SECOND: Final = 1_000_000_000


class ReplayOptions(Struct, frozen=True):
    """Options of a replay.

    speed: factor, None without pauses. to: address for all messages. in_flight: most messages without an outcome. wait:
    longest wait in seconds for credit or an outcome, also for the outcomes that are missing after the last message.
    """

    speed: float | None
    to: str | None
    settled: bool
    fill: bool
    in_flight: int
    wait: float


def is_copied(address: str) -> bool:
    """Return True if a tap can copy messages to an address: it is neither a service nor the address of one router.

    A file that somebody else has made must not manage the router with the rights of whoever replays it.
    """
    cls, name = classify(normalise(address), "", INTERIOR_MODE)
    return cls == MOBILE and not name.startswith(SERVICES)


class Replay:
    """Replay of one capture. Owner: the command.

    messages: read from the file. outcomes: number of messages by outcome. refusals: reasons by address. lateness:
    longest time in seconds by which a message was sent later than in the capture.
    """

    def __init__(self, client: SyncConnection, options: ReplayOptions) -> None:
        self.messages = 0
        self.outcomes: Counter[str] = Counter()
        self.refusals: dict[str, str] = {}
        self.reconnections = 0
        self.lateness = 0.0
        self._client = client
        client.reconnect = RETRIES
        self._options = options
        self._senders: OrderedDict[str, SyncSender] = OrderedDict()  # the last used one is the last
        self._stalled: set[str] = set()  # addresses of links that have had no credit for `wait`
        self._pending: deque[tuple[float, PendingSend]] = deque()  # with the time of their sending
        self._opened = client.remote  # open of the peer, another one after each reconnection

    def run(self, messages: Iterable[CapturedMessage]) -> None:
        """Send messages. Raises CaptureError for a message that cannot be sent, ConnectionFailedError."""
        began: tuple[float, int] | None = None  # time of the first message, here and in the file
        for message in messages:
            octets = self._octets(message)
            if began is None:
                began = (time.monotonic(), message.arrived)
            if self._options.speed is not None:
                due = began[0] + (message.arrived - began[1]) / _NS_A_SECOND / self._options.speed
                if due > time.monotonic():
                    self._client.poll(due - time.monotonic())
                self.lateness = max(self.lateness, time.monotonic() - due)
            self._send(message, octets)
            self._note_reconnection()
        self._note_reconnection()

    def finish(self) -> None:
        """Wait for the outcomes that are missing, and until settled messages are written.

        The wait for an outcome begins here, because the messages may have waited for others without credit.
        """
        end = time.monotonic() + self._options.wait
        while self._pending:
            self._collect_oldest(end)

        def written() -> bool:
            links = [sender.state.link for sender in self._senders.values()]
            return self._client.flushed and not any(link is not None and link.queued for link in links)

        with contextlib.suppress(TimeoutError):
            self._client.wait(written, self._options.wait)
        self._note_reconnection()

    def drop(self) -> None:
        """Count the messages without an outcome, when there is no more to wait for."""
        for _, sending in self._pending:
            self._count(sending)
        self._pending.clear()

    def _octets(self, message: CapturedMessage) -> bytes:
        where = f"message {self.messages + 1}"
        self.messages += 1
        if self._options.to is None:
            if not message.address:
                raise CaptureError(f"{where} has no address: name one with --to")
            if not is_copied(message.address):
                text = f"{where} has the address '{message.address}', of which no tap makes copies"
                raise CaptureError(f"{text}: the file is not from a capture; name another address with --to")
        if not message.omitted:
            return message.octets
        if not self._options.fill:
            raise CaptureError(f"{where} has no payload: --fill sends zeros in its place")
        return message.octets + zero_body(message.omitted)

    def _send(self, message: CapturedMessage, octets: bytes) -> None:
        address = self._options.to or message.address
        sender = self._sender(address)
        if sender is None:
            return
        settled = message.settled or self._options.settled
        try:
            sender.state.check()
            if not self._has_credit(address, sender):
                self.outcomes[NO_CREDIT] += 1
                return
            sending = sender.state.send(octets, settled, message_format=message.message_format)
        except LinkDetachedError as error:
            del self._senders[address]
            self._refuse(address, error)
            return
        except UnsettledError:
            self.outcomes[LOST] += 1
            return
        if settled:
            self.outcomes[SETTLED] += 1
            return
        self._pending.append((time.monotonic(), sending))
        while len(self._pending) >= self._options.in_flight or (self._pending and self._pending[0][1].done):
            self._collect_oldest()

    def _sender(self, address: str) -> SyncSender | None:
        """Return the link of an address, attached at its first message. None: the message was counted as failed."""
        sender = self._senders.get(address)
        if sender is not None:
            self._senders.move_to_end(address)
            return sender
        if address in self.refusals:
            self.outcomes[REFUSED] += 1
            return None
        if len(self._senders) >= LINKS_MOST:
            self._close_oldest()
        try:
            sender = self._senders[address] = self._client.sender(address, timeout=self._options.wait)
        except LinkDetachedError as error:
            self._refuse(address, error)
        except TimeoutError:
            self.outcomes[NO_CREDIT] += 1
        return sender

    def _refuse(self, address: str, error: LinkDetachedError) -> None:
        self.outcomes[REFUSED] += 1
        if len(self.refusals) < REFUSALS_MOST:
            self.refusals[address] = str(error)

    def _has_credit(self, address: str, sender: SyncSender) -> bool:
        """Wait for credit. An address that has had none for `wait` is not waited for until it has some."""
        state = sender.state
        if address in self._stalled:
            self._client.poll()  # reads credit that has arrived
            if not state.ready:
                state.check()
                return False
        try:
            self._client.wait(lambda: state.ready or state.error is not None, self._options.wait)
        except TimeoutError:
            self._stalled.add(address)
            return False
        self._stalled.discard(address)
        state.check()
        return True

    def _close_oldest(self) -> None:
        """Close the link that was used longest ago, after the outcomes of its messages."""
        address, sender = self._senders.popitem(last=False)
        self._stalled.discard(address)
        with contextlib.suppress(TimeoutError, LinkDetachedError):
            sender._until(lambda: not sender.state.waiting and not sender.state.link.queued, self._options.wait)
        sender.close()

    def _collect_oldest(self, end: float = 0.0) -> None:
        """Wait until the oldest message has an outcome, or has waited long enough, and count it.

        end: earliest time (monotonic) at which it has.
        """
        at, sending = self._pending[0]
        left = max(at + self._options.wait, end) - time.monotonic()
        with contextlib.suppress(TimeoutError):
            self._client.wait(lambda: sending.done, max(left, 0))
        self._pending.popleft()
        self._count(sending)

    def _count(self, sending: PendingSend) -> None:
        if sending.error is not None:
            self.outcomes[LOST] += 1
        elif sending.outcome is None:
            self.outcomes[NO_OUTCOME] += 1
        else:
            self.outcomes[_NAMES.get(type(sending.outcome), "other outcome")] += 1

    def _note_reconnection(self) -> None:
        if self._client.remote is not self._opened:
            self._opened = self._client.remote
            self.reconnections += 1
