"""Choice of the bearer among several interior routers, and the move to another one (docs/internals/edge.md).

The bearer is the best ready interior router: it knows the consumers of this edge router and receives the messages of
its producers. When the bearer is lost, the next best one takes over at once. When a better one becomes ready, anycast
traffic moves first, without a pause; then multicast traffic is released by the old bearer and taken over by the new
one. No I/O here.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from sluice.supervisor.edge.attachment import Attachment
from sluice.supervisor.edge.messages import Precedence
from sluice.supervisor.edge.uplink_proxies import UplinkUse
from sluice.supervisor.journal.journal import Journal

_LAST_NUMBER: Final = 0x7FFFFFFF
# Time limit in seconds for the old bearer to release all consumers; until then, multicast messages do not go up.
PATIENCE: Final = 5.0


class Bearer:
    """Present bearer, and the state of a move to a better one. Owner: the uplink."""

    def __init__(self, journal: Journal, changed: Callable[[Attachment], None]) -> None:
        """changed(attachment): called when an interior router becomes the bearer."""
        self._journal = journal
        self._changed = changed
        self._number = 0
        self._moves = 0
        self.now: Attachment | None = None  # the bearer
        self._next: Attachment | None = None  # better interior router that prepares to become the bearer
        self._before: Attachment | None = None  # old bearer that still releases its consumers
        self._drained = False  # no worker sends to the old bearer
        self._since = 0.0  # monotonic time at which the old bearer began to release its consumers
        self._ready: tuple[Attachment, ...] = ()  # ready interior routers, best first

    def lost(self, attachment: Attachment, others: list[Attachment]) -> None:
        """Forget a lost interior router and choose again among the others."""
        self._ready = tuple(each for each in self._ready if each is not attachment)
        if attachment is self.now:
            self.now = self._next = self._before = None
        elif attachment is self._next:
            self._next = None
        elif attachment is self._before:
            self._arrive()
        self.step(others)

    @property
    def deadline(self) -> float:
        """Monotonic time at which a move ends even if the old bearer has not released its consumers."""
        return math.inf if self._before is None else self._since + PATIENCE

    def step(self, attachments: list[Attachment]) -> None:
        """Advance the choice and the move. attachments: all interior routers."""
        ready = [each for each in attachments if each is self.now or each in self._ready or each.ready]
        self._ready = tuple(sorted(ready, key=lambda each: each.place))
        if self.now is None and attachments:
            self._begin(self._ready or tuple(attachments))
        elif self._before is not None:
            if (self._drained and self._agreed(self._before)) or time.monotonic() >= self.deadline:
                self._arrive()
        elif self._next is not None:
            if self._agreed(self._next):
                self._move(self._next)
        elif self._ready and self.now is not None and self._ready[0].place < self.now.place:
            self._next = self._ready[0]
        for attachment in attachments:
            self._tell(attachment)

    def _begin(self, among: tuple[Attachment, ...]) -> None:
        """Choose a bearer where there is none."""
        best = min(among, key=lambda each: each.place)
        if best not in self._ready:
            self._ready = tuple(sorted((*self._ready, best), key=lambda each: each.place))
        self.now = best
        self._changed(best)
        best.send(UplinkUse.ALL)

    def _move(self, target: Attachment) -> None:
        """Move anycast traffic to the new bearer. Multicast messages do not go up until the old bearer has released
        its consumers."""
        before, self.now, self._next = self.now, target, None
        assert before is not None
        self._before = before
        self._since = time.monotonic()
        self._changed(target)
        target.send(UplinkUse.ANYCAST)
        before.send(UplinkUse.NOTHING)
        self._drained = False
        self._moves += 1
        move = self._moves
        self._journal.call_when_acknowledged(lambda: self._has_drained(move))

    def _has_drained(self, move: int) -> None:
        """Note that all workers send to the new bearer."""
        if move == self._moves and self._before is not None:
            self._drained = True
            self._tell(self._before)

    def _arrive(self) -> None:
        """End the move: the old bearer has released its consumers, or PATIENCE has passed."""
        self._before = None
        if self.now is not None:
            self.now.send(UplinkUse.ALL)

    # Precedences

    def _agreed(self, attachment: Attachment) -> bool:
        """Return whether an interior router has confirmed the precedence that it should have."""
        said, taken = attachment.said, attachment.taken
        if said is None or taken is None or taken.number != said.number:
            return False
        return (said.routers, said.complete) == self._wanted(attachment)

    def _tell(self, attachment: Attachment) -> None:
        if not attachment.shares or not attachment.can_be_told or attachment not in self._ready:
            return
        routers, complete = self._wanted(attachment)
        said = attachment.said
        if said is None or (said.routers, said.complete) != (routers, complete):
            self._number = self._number % _LAST_NUMBER + 1
            attachment.say(Precedence(self._number, routers, complete))

    def _wanted(self, attachment: Attachment) -> tuple[tuple[str, ...], bool]:
        """Return order and completeness of the precedence that an interior router should have."""
        order = [each.container for each in self._ready]
        present = self.now if self._before is None else self._before
        if present is None or (self._before is not None and self._drained and attachment is self._before):
            return tuple(order), True
        if attachment in (self._next, self.now) and (self._next or self._before) and attachment is not present:
            return tuple(order), False
        # Until the old bearer has released its consumers, it comes first for all but the new bearer.
        order.remove(present.container)
        if self._before is not None or self._next is not None:
            ahead = self._next or self.now
            assert ahead is not None
            order.remove(ahead.container)
        return (present.container, *order), True
