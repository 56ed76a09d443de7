"""Journal of the supervisor: changes of the workers' tables, by epoch, and the workers' acknowledgements of them.

No input or output here: changes leave as ops (control-protocol.md, "Deltas"), acknowledgements arrive as method calls.
Compiled, because each attach and each end of a link calls it several times.
"""
cimport cython

from collections import deque


@cython.final
cdef class Journal:
    """Ops since the last delta, epochs acknowledged by the live workers, and actions that wait for them.

    Owner: the core. Epochs only grow, so actions wait in order of arrival.
    """

    def __init__(self):
        self.epoch = 0
        self.ops = []
        self.acknowledged_epochs = {}
        self.actions = deque()
        self.settled_epoch = -1
        self.awaited = -1

    # Changes

    @property
    def next_epoch(self):
        """Epoch that will announce changes made now."""
        return self.epoch + 1

    @property
    def pending_epoch(self):
        """Epoch that contains, or will contain, all changes so far."""
        return self.epoch + 1 if self.ops else self.epoch

    cpdef int64_t append(self, object op) except -1:
        """Add an op to the next delta. Returns the epoch of that delta."""
        self.ops.append(op)
        return self.epoch + 1

    def take_delta(self):
        """Begin the next epoch; return it with its ops, or None if there are no ops."""
        if not self.ops:
            return None
        self.epoch += 1
        ops, self.ops = self.ops, []
        return self.epoch, ops

    # Acknowledgements

    cdef int survey(self) except -1:
        """Find the epoch that all live workers have acknowledged."""
        self.settled_epoch = min(self.acknowledged_epochs.values(), default=-1)
        return 0

    def join(self, worker, int64_t epoch):
        """Add a live worker that has all epochs up to `epoch`."""
        self.acknowledged_epochs[worker] = epoch
        self.survey()

    def leave(self, worker):
        """Remove a worker. No epoch waits for it any more."""
        self.acknowledged_epochs.pop(worker, None)
        self.survey()

    def has(self, worker):
        """Return whether a worker is live."""
        return worker in self.acknowledged_epochs

    def acknowledge(self, worker, int64_t epoch):
        """Record that a worker has applied all epochs up to `epoch`. Workers that are not live are ignored."""
        if worker in self.acknowledged_epochs:
            self.acknowledged_epochs[worker] = epoch
            self.survey()

    def acknowledged(self, worker):
        """Return the acknowledged epoch of a live worker, or -1 for any other."""
        return self.acknowledged_epochs.get(worker, -1)

    def late(self, int64_t epoch):
        """Return the live workers that have not acknowledged `epoch`."""
        return [worker for worker, own in self.acknowledged_epochs.items() if own < epoch]

    @property
    def settled(self):
        """Last epoch that all live workers have acknowledged; the epoch of the last delta if there are none."""
        return self.settled_epoch if self.acknowledged_epochs else self.epoch

    def await_all(self, int64_t epoch):
        """Request a wake when workers acknowledge this epoch, for a caller that polls `settled`."""
        self.awaited = max(self.awaited, epoch)

    def awaits(self, int64_t epoch):
        """Return whether anything waits for the acknowledgement of this epoch."""
        return self.awaited >= epoch

    def call_when_acknowledged(self, action, epoch=None):
        """Call `action`, from `run_actions`, when all live workers have `epoch`; None: all changes so far."""
        cdef int64_t due = self.pending_epoch if epoch is None else epoch
        self.await_all(due)
        self.actions.append((due, action))

    def run_actions(self):
        """Call the actions whose epoch is settled. They may make further changes."""
        while self.actions and self.actions[0][0] <= self.settled:
            self.actions.popleft()[1]()
