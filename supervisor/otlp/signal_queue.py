"""Bounded queue between the thread that reads from the supervisor and the thread that exports one signal."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")


class SignalQueue(Generic[Item]):
    """Queue with a limit of the sum of its items' weights. Owner: a `SignalExport`."""

    def __init__(self, most: int, weight: Callable[[Item], int], *, newest: bool) -> None:
        """most: limit of the sum of all weights. newest: items without room replace the oldest ones."""
        self._most: Final = most
        self._weigh: Final = weight
        self._newest: Final = newest
        self._items: Final[deque[Item]] = deque()
        self._weight = 0
        self._closed = False
        self._changed: Final = threading.Condition()

    @property
    def closed(self) -> bool:
        """True if no items are added any more."""
        return self._closed

    def put(self, items: Iterable[Item]) -> list[Item]:
        """Add items. Returns those without room, and those that they replace."""
        dropped: list[Item] = []
        with self._changed:
            for item in items:
                weight = self._weigh(item)
                while self._newest and self._items and self._weight + weight > self._most:
                    dropped.append(self._pop())
                if self._closed or self._weight + weight > self._most:
                    dropped.append(item)
                else:
                    self._items.append(item)
                    self._weight += weight
            self._changed.notify()
        return dropped

    def take(self, most: int) -> list[Item]:
        """Return at most `most` items, and wait for the first one. Empty: the queue is closed and empty."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            return [self._pop() for _ in range(min(most, len(self._items)))]

    def _pop(self) -> Item:
        item = self._items.popleft()
        self._weight -= self._weigh(item)
        return item

    def close(self) -> None:
        """Accept no more items. Those that wait can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify()
