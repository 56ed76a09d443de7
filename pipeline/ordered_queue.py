"""Unsettled messages of one target in the order of their keys, and the link that sends them.

One message of a key is on its way at a time; the next leaves when it is accepted or rejected. So a released message, or
one whose connection was lost, is sent again before its successors, and messages of a key arrive in order even if
several receivers share the address. Other keys do not wait for it.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from sluice.pipeline.bulk_sender import MessageBatch
from sluice.router.client.attach import Terminus
from sluice.router.client.links import PendingSend, SenderState
from sluice.router.client.sender import Sender, SentDelivery
from sluice.router.client.session import SessionState

if TYPE_CHECKING:
    from sluice.pipeline.publisher import Publisher


class OrderedQueue:
    """Waiting and sent messages by key. The first message of a key is on its way, ready, or released.

    A message without a key (None) is in no order. Owner: its publisher, which bounds the number of messages.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.left = 0  # messages that are not settled
        self.link: OrderedLink | None = None
        self.released: list[Hashable] = []  # keys whose first message waits to be sent again
        self._messages: dict[Hashable, deque[bytes]] = {}
        self._ready: deque[Hashable] = deque()  # keys whose first message may leave

    def add_ordered(self, messages: MessageBatch, keys: Sequence[Hashable]) -> None:
        """Queue messages. keys: of each message; None: no key."""
        for row, key in enumerate(keys):
            name = object() if key is None else key
            waiting = self._messages.get(name)
            if waiting is None:
                self._messages[name] = deque((messages[row],))
                self._ready.append(name)
            else:
                waiting.append(messages[row])
        self.left += len(keys)
        self.send_ready()

    def send_released(self) -> None:
        self._ready.extend(self.released)
        self.released = []
        self.send_ready()

    def lift(self) -> None:
        """Send by the new link, those in flight before the reconnect first."""
        assert self.link is not None
        self.link.lifted = True
        self.send_ready()

    def make_link(self, session: SessionState, publisher: "Publisher") -> "OrderedLink":
        """Return a new link to the target."""
        self.link = OrderedLink(session, publisher, self)
        return self.link

    def send_ready(self) -> None:
        """Send first messages of keys as far as credit and `most` of the link allow."""
        link = self.link
        if link is None or not link.lifted:
            return
        while self._ready and link.has_room:
            key = self._ready.popleft()
            link.send_message(key, self._messages[key][0])

    def settle(self, key: Hashable) -> None:
        """Remove the first message of a key, which was accepted or rejected."""
        waiting = self._messages[key]
        waiting.popleft()
        self.left -= 1
        if waiting:
            self._ready.append(key)
        else:
            del self._messages[key]
        self.send_ready()

    def first(self, key: Hashable) -> bytes:
        """Return the message of a key that is on its way."""
        return self._messages[key][0]

    def release(self, key: Hashable, octets: bytes) -> None:
        """Hold a key until `send_released`. octets: its first message as it is to be sent again."""
        self._messages[key][0] = octets
        self.released.append(key)

    def take_back(self, keys: Sequence[Hashable]) -> None:
        """Note that the link was lost before it reported outcomes for the first messages of these keys."""
        self._ready.extendleft(reversed(keys))


class OrderedLink(SenderState):
    """Sender link of an ordered queue. It has an object for each message on its way."""

    def __init__(self, session: SessionState, publisher: "Publisher", outlet: OrderedQueue) -> None:
        super().__init__(session, settled=False, source=Terminus(), target=Terminus(outlet.address))
        self.transfer_state = publisher.transfer_state
        self.most = publisher.first_most
        self.publisher = publisher
        self.outlet = outlet
        self.lifted = False  # the waiting messages may leave by this link
        self._new = 0  # accepted messages that `count` has not reported
        self._keys: dict[PendingSend, Hashable] = {}  # of messages on their way, in the order in which they left

    @property
    def in_flight(self) -> int:
        return len(self._keys)

    @property
    def has_room(self) -> bool:
        """True if another message may leave now."""
        return self.ready and self.in_flight < self.most

    def send_message(self, key: Hashable, octets: bytes) -> None:
        self._keys[self.send(octets, state=self.transfer_state)] = key

    def count(self, flushed: bool = False) -> int:
        """Return the number of messages accepted since the previous call. flushed: of no importance here."""
        new, self._new = self._new, 0
        return new

    def drop(self) -> None:
        super().drop()
        self.outlet.take_back(list(self._keys.values()))
        self._keys.clear()

    # -- events of the engine ------------------------------------------------------------------------------------------

    def on_credit(self, sender: Sender) -> None:
        self.outlet.send_ready()

    def on_outcome(self, sender: Sender, sent: SentDelivery, state: bytes, settled: bool) -> None:
        sending = sent.context
        super().on_outcome(sender, sent, state, settled)
        if not sending.done:
            return
        key = self._keys.pop(sending)
        if self.publisher.is_accepted(sending.outcome):
            self._new += 1
            self.most = self.publisher.options.most
            self.outlet.settle(key)
            return
        octets = self.publisher.on_unaccepted(self.outlet, self.outlet.first(key), state)
        if octets is None:
            self.outlet.settle(key)
        else:
            self.outlet.release(key, octets)
