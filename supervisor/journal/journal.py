"""Journal of the supervisor: changes of the workers' tables, by epoch, and the workers' acknowledgements of them.

No input or output here: changes leave as ops (control-protocol.md, "Deltas"), acknowledgements arrive as method calls.
"""

from collections import deque
from collections.abc import Callable

from sluice.router.control.ops import Op


class Journal:
    """Ops since the last delta, epochs acknowledged by the live workers, and actions that wait for them.

    Owner: the core. Epochs only grow, so actions wait in order of arrival.
    """

    __slots__ = ("_acknowledged", "_actions", "_awaited", "_ops", "_settled", "epoch")

    def __init__(self) -> None:
        self.epoch = 0  # epoch of the last delta
        self._ops: list[Op] = []
        self._acknowledged: dict[int, int] = {}  # epoch by live worker
        self._actions: deque[tuple[int, Callable[[], object]]] = deque()
        self._settled: int | None = None  # cached value; None: not computed
        self._awaited = -1  # the latest epoch that something waits for

    # Changes

    @property
    def next_epoch(self) -> int:
        """Epoch that will announce changes made now."""
        return self.epoch + 1

    @property
    def pending_epoch(self) -> int:
        """Epoch that contains, or will contain, all changes so far."""
        return self.epoch + 1 if self._ops else self.epoch

    def append(self, op: Op) -> int:
        """Add an op to the next delta. Returns the epoch of that delta."""
        self._ops.append(op)
        return self.epoch + 1

    def take_delta(self) -> tuple[int, list[Op]] | None:
        """Begin the next epoch; return it with its ops, or None if there are no ops."""
        if not self._ops:
            return None
        self.epoch += 1
        ops, self._ops = self._ops, []
        return self.epoch, ops

    # Acknowledgements

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

    @property
    def settled(self) -> int:
        """Last epoch that all live workers have acknowledged; the epoch of the last delta if there are none."""
        if self._settled is None:
            self._settled = min(self._acknowledged.values(), default=-1)
        return self._settled if self._acknowledged else self.epoch

    def await_all(self, epoch: int) -> None:
        """Request a wake when workers acknowledge this epoch, for a caller that polls `settled`."""
        self._awaited = max(self._awaited, epoch)

    def awaits(self, epoch: int) -> bool:
        """Return whether anything waits for the acknowledgement of this epoch."""
        return self._awaited >= epoch

    def call_when_acknowledged(self, action: Callable[[], object], epoch: int | None = None) -> None:
        """Call `action`, from `run_actions`, when all live workers have `epoch`; None: all changes so far."""
        if epoch is None:
            epoch = self.pending_epoch
        self.await_all(epoch)
        self._actions.append((epoch, action))

    def run_actions(self) -> None:
        """Call the actions whose epoch is settled. They may make further changes."""
        while self._actions and self._actions[0][0] <= self.settled:
            self._actions.popleft()[1]()
