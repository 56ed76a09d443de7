"""Which of several interior routers has the consumers of an edge router, and gets the messages of its producers, and
how both move (docs/internals/edge.md). No I/O here.

That is the best one of those that are ready. When it is lost the next one takes over at once. When a better one comes,
what any consumer may get moves first, without a pause. Then what all consumers get is given up, and taken over.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final

from supervisor.addresses.table import Table
from supervisor.edge.attachment import Attachment
from supervisor.edge.messages import Precedence
from supervisor.edge.proxies import Use
from supervisor.processes.epochs import Epochs

_LAST_NUMBER: Final = 0x7FFFFFFF
PATIENCE: Final = 5.0  # seconds in which the one before gives up all consumers; meanwhile some messages go nowhere


class Bearer:
    """The interior router that has the consumers, and the move to another. Owner: the uplink."""

    def __init__(self, table: Table, epochs: Epochs[Any], changed: Callable[[Attachment], None]) -> None:
        """changed(attachment): it is the one from now on."""
        self._table = table
        self._epochs = epochs
        self._changed = changed
        self._number = 0
        self._moves = 0
        self.now: Attachment | None = None  # the one that has them
        self._next: Attachment | None = None  # a better one, which prepares to have them
        self._before: Attachment | None = None  # the one that had them, and is giving them up
        self._drained = False  # nothing goes by that one any more
        self._since = 0.0  # when it began to give them up
        self._ready: tuple[Attachment, ...] = ()  # in order

    def lost(self, attachment: Attachment, others: list[Attachment]) -> None:
        """An interior router is gone."""
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
        """When a move ends, whatever the one before says."""
        return math.inf if self._before is None else self._since + PATIENCE

    def step(self, attachments: list[Attachment]) -> None:
        """Go on. attachments: all."""
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
        """There was none, or it is lost."""
        best = min(among, key=lambda each: each.place)
        if best not in self._ready:
            self._ready = tuple(sorted((*self._ready, best), key=lambda each: each.place))
        self.now = best
        self._changed(best)
        best.send(Use.ALL)

    def _move(self, target: Attachment) -> None:
        """The better one has what any consumer may get: it gets such messages, too. The others go nowhere until all of
        its own have come."""
        before, self.now, self._next = self.now, target, None
        assert before is not None
        self._before = before
        self._since = time.monotonic()
        self._changed(target)
        target.send(Use.ANYCAST)
        before.send(Use.NOTHING)
        self._drained = False
        self._moves += 1
        move = self._moves
        self._epochs.call_when_all(self._table.pending_epoch, lambda: self._has_drained(move))

    def _has_drained(self, move: int) -> None:
        """All workers send by the better one."""
        if move == self._moves and self._before is not None:
            self._drained = True
            self._tell(self._before)

    def _arrive(self) -> None:
        """The one before has given up all consumers, or has been waited for."""
        self._before = None
        if self.now is not None:
            self.now.send(Use.ALL)

    # What they are told

    def _agreed(self, attachment: Attachment) -> bool:
        """Whether an interior router does as it is to."""
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
        """What an interior router is to know."""
        order = [each.container for each in self._ready]
        present = self.now if self._before is None else self._before
        if present is None or (self._before is not None and self._drained and attachment is self._before):
            return tuple(order), True
        if attachment in (self._next, self.now) and (self._next or self._before) and attachment is not present:
            return tuple(order), False
        # Until it has given them up, the one that has them is the first for all but the better one.
        order.remove(present.container)
        if self._before is not None or self._next is not None:
            ahead = self._next or self.now
            assert ahead is not None
            order.remove(ahead.container)
        return (present.container, *order), True
