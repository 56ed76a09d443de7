"""Journal of the supervisor: changes of the workers' tables, by epoch, and the workers' acknowledgements of them."""
from libc.stdint cimport int64_t


cdef class Journal:
    cdef readonly int64_t epoch        # of the last delta
    cdef list ops                      # since the last delta
    cdef dict acknowledged_epochs      # by live worker
    cdef object actions                # deque of (epoch, action)
    cdef int64_t settled_epoch         # epoch that all live workers have acknowledged; -1 if there are none
    cdef int64_t awaited               # the latest epoch that something waits for

    cpdef int64_t append(self, object op) except -1
    cdef int survey(self) except -1
