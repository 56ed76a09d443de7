"""Fairness of a worker: budgets of the work that its event loop does in a wake, and the order of writes.

Turns and slices of connections are in `router/amqp/scheduler.pyx`. docs/internals/engine.md, "A wake".
"""
from router.amqp.buffer cimport buffer_used
from router.amqp.connection cimport Connection


cdef list order_deliveries_first(list dirty):
    """Return `dirty` with connections that have deliveries to write before those with only outcomes and credit.

    Somebody waits for the deliveries. Outcomes and credit are collected in their sessions until they are written.
    """
    cdef list first = []
    cdef list others = []
    cdef Connection connection
    for connection in dirty:
        (first if buffer_used(&connection.out) else others).append(connection)
    return first + others if first else others


cdef class LoopScheduler(Scheduler):
    def __cinit__(self, Poller poller not None):
        self.poller = poller

    cdef void begin_time_budget(self) noexcept:
        if self.shared:
            self.budget_ends = self.poller.now() + INTERPRETER_BUDGET_NS

    cpdef bint has_time(self) noexcept:
        return not self.shared or self.poller.now() < self.budget_ends
