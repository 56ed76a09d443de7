"""Epochs acknowledged by the workers, and actions that wait for them. Does no input or output."""

from collections import deque
from collections.abc import Callable


class Epochs:
    """Acknowledgements of the live workers. Owner: supervisor.

    Epochs only grow, so actions wait in order of arrival.
    """

    __slots__ = ("_acknowledged", "_actions", "_awaited", "_settled")

    def __init__(self) -> None:
        self._acknowledged: dict[int, int] = {}  # epoch by live worker
        self._actions: deque[tuple[int, Callable[[], object]]] = deque()
        self._settled: int | None = None  # cached value; None: not computed
        self._awaited = -1  # the latest epoch that something waits for

    def join(self, worker: int, epoch: int) -> None:
        """Add a live worker that has all epochs up to `epoch`."""
        self._acknowledged[worker] = epoch
        self._settled = None

    def leave(self, worker: int) -> None:
        """Remove a worker. No epoch waits for it any more."""
        self._acknowledged.pop(worker, None)
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

    def call_when_acknowledged(self, epoch: int, action: Callable[[], object]) -> None:
        """Call `action`, from `run_actions`, when all live workers have `epoch`."""
        self.await_all(epoch)
        self._actions.append((epoch, action))

    def run_actions(self, current: int) -> None:
        """Call the actions whose epoch is settled. They may make further changes."""
        while self._actions and self._actions[0][0] <= self.settled(current):
            self._actions.popleft()[1]()
