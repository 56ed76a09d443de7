"""Acknowledged epochs of the workers, and what waits for them. No input or output here."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Epochs(Generic[T]):
    """Acknowledgements of the live workers. `T` is what waits for them. Owner: supervisor.

    Epochs only grow, so whatever waits is in order of arrival.
    """

    __slots__ = ("_acknowledged", "_actions", "_all", "_awaited", "_each", "_settled")

    def __init__(self) -> None:
        self._acknowledged: dict[int, int] = {}  # epoch by live worker
        self._all: deque[tuple[int, T]] = deque()
        self._each: dict[int, deque[tuple[int, T]]] = {}
        self._actions: deque[tuple[int, Callable[[], object]]] = deque()
        self._settled: int | None = None  # cached; None: to be computed
        self._awaited = -1  # the last epoch that anybody waits for

    def join(self, worker: int, epoch: int) -> None:
        """A worker is live from now on and has all epochs up to `epoch`."""
        self._acknowledged[worker] = epoch
        self._each[worker] = deque()
        self._settled = None

    def leave(self, worker: int) -> None:
        """A worker is gone: nothing waits for it any more, and items for it alone are dropped."""
        self._acknowledged.pop(worker, None)
        self._each.pop(worker, None)
        self._settled = None

    def has(self, worker: int) -> bool:
        """Whether a worker is live."""
        return worker in self._acknowledged

    def acknowledge(self, worker: int, epoch: int) -> None:
        """A worker has applied everything up to `epoch`; one that is not live is ignored."""
        if worker in self._acknowledged:
            self._acknowledged[worker] = epoch
            self._settled = None

    def acknowledged(self, worker: int) -> int:
        """The epoch of a live worker, -1 of any other."""
        return self._acknowledged.get(worker, -1)

    def late(self, epoch: int) -> list[int]:
        """The live workers that have not acknowledged `epoch`."""
        return [worker for worker, own in self._acknowledged.items() if own < epoch]

    def settled(self, current: int) -> int:
        """The last epoch that all live workers have; `current` when there is none to wait for."""
        if self._settled is None:
            self._settled = min(self._acknowledged.values(), default=-1)
        return self._settled if self._acknowledged else current

    def await_all(self, epoch: int) -> None:
        """Somebody looks whether `settled` has come to this epoch, and is woken when workers acknowledge it."""
        self._awaited = max(self._awaited, epoch)

    def awaits(self, epoch: int) -> bool:
        """Whether anybody waits for the acknowledgement of this epoch."""
        return self._awaited >= epoch

    def when_all(self, epoch: int, item: T) -> None:
        """Let `item` wait until all live workers have `epoch`."""
        self.await_all(epoch)
        self._all.append((epoch, item))

    def when_one(self, worker: int, epoch: int, item: T) -> None:
        """Let `item` wait until one live worker has `epoch`; dropped if that worker goes away."""
        waiting = self._each.get(worker)
        if waiting is not None:
            self.await_all(epoch)
            waiting.append((epoch, item))

    def call_when_all(self, epoch: int, action: Callable[[], object]) -> None:
        """Call `action`, from `run_actions`, when all live workers have `epoch`."""
        self.await_all(epoch)
        self._actions.append((epoch, action))

    def released(self, current: int) -> Iterator[T]:
        """Remove and yield the items that need not wait any more."""
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
        """Call the actions whose epoch is settled; they may make new changes."""
        while self._actions and self._actions[0][0] <= self.settled(current):
            self._actions.popleft()[1]()
