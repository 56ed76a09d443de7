"""Epochs acknowledged by the workers, and items that wait for them. Does no input or output."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Epochs(Generic[T]):
    """Acknowledgements of the live workers. `T` is the type of waiting items. Owner: supervisor.

    Epochs only grow, so items wait in order of arrival.
    """

    __slots__ = ("_acknowledged", "_actions", "_all", "_awaited", "_each", "_settled")

    def __init__(self) -> None:
        self._acknowledged: dict[int, int] = {}  # epoch by live worker
        self._all: deque[tuple[int, T]] = deque()
        self._each: dict[int, deque[tuple[int, T]]] = {}
        self._actions: deque[tuple[int, Callable[[], object]]] = deque()
        self._settled: int | None = None  # cached value; None: not computed
        self._awaited = -1  # the latest epoch with a waiting item

    def join(self, worker: int, epoch: int) -> None:
        """Add a live worker that has all epochs up to `epoch`."""
        self._acknowledged[worker] = epoch
        self._each[worker] = deque()
        self._settled = None

    def leave(self, worker: int) -> None:
        """Remove a worker. Items for it alone are dropped, and no other item waits for it."""
        self._acknowledged.pop(worker, None)
        self._each.pop(worker, None)
        self._settled = None

    def has(self, worker: int) -> bool:
        """Return whether a worker is live."""
        return worker in self._acknowledged

    def acknowledge(self, worker: int, epoch: int) -> None:
        """Record that a worker has applied all epochs up to `epoch`. Workers that are not live are ignored."""
        if worker in self._acknowledged:
            self._acknowledged[worker] = epoch
            self._settled = None

    def acknowledged(self, worker: int) -> int:
        """Return the acknowledged epoch of a live worker, or -1 for any other."""
        return self._acknowledged.get(worker, -1)

    def late(self, epoch: int) -> list[int]:
        """Return the live workers that have not acknowledged `epoch`."""
        return [worker for worker, own in self._acknowledged.items() if own < epoch]

    def settled(self, current: int) -> int:
        """Return the last epoch that all live workers have; `current` if there are no live workers."""
        if self._settled is None:
            self._settled = min(self._acknowledged.values(), default=-1)
        return self._settled if self._acknowledged else current

    def await_all(self, epoch: int) -> None:
        """Request a wake when workers acknowledge this epoch, for a caller that polls `settled`."""
        self._awaited = max(self._awaited, epoch)

    def awaits(self, epoch: int) -> bool:
        """Return whether anything waits for the acknowledgement of this epoch."""
        return self._awaited >= epoch

    def hold_for_all(self, epoch: int, item: T) -> None:
        """Hold `item` until all live workers have `epoch`."""
        self.await_all(epoch)
        self._all.append((epoch, item))

    def hold_for_worker(self, worker: int, epoch: int, item: T) -> None:
        """Hold `item` until one live worker has `epoch`. The item is dropped if that worker ends."""
        waiting = self._each.get(worker)
        if waiting is not None:
            self.await_all(epoch)
            waiting.append((epoch, item))

    def call_when_acknowledged(self, epoch: int, action: Callable[[], object]) -> None:
        """Call `action`, from `run_actions`, when all live workers have `epoch`."""
        self.await_all(epoch)
        self._actions.append((epoch, action))

    def released(self, current: int) -> Iterator[T]:
        """Remove and yield the items whose epoch has been acknowledged."""
        settled = self.settled(current)
        waiting = self._all
        while waiting and waiting[0][0] <= settled:
            yield waiting.popleft()[1]
        for worker, waiting in self._each.items():
            if waiting:
                own = self._acknowledged[worker]
                while waiting and waiting[0][0] <= own:
                    yield waiting.popleft()[1]

    def run_actions(self, current: int) -> None:
        """Call the actions whose epoch is settled. They may make further changes."""
        while self._actions and self._actions[0][0] <= self.settled(current):
            self._actions.popleft()[1]()
