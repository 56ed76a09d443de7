"""A port to another worker, or to this one: the two rings between us, and what crosses by them."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.scheduler cimport Scheduler
from router.interworker.region cimport Region
from router.interworker.outbox cimport Outbox
from router.interworker.port_in cimport PortIn
from router.interworker.port_out cimport PortOut
from router.interworker.port_work cimport PortWork
from router.interworker.ring cimport Ring
from router.linkroute.routed_link cimport OtherEnd

cdef enum:
    # Records taken from one ring before the loop looks at sockets again; consumers of a multicast record that are as
    # much work as a record.
    RECORDS_A_TURN = 512
    TARGETS_AS_A_RECORD = 4

# What one wake of the worker does with ports, by way of its loop. Owner: the worker.
cdef class WorkerPort:
    cdef readonly int peer
    cdef readonly int worker
    cdef readonly bint alive
    cdef readonly bint closed              # a malformed record came: nothing is read until the peer is replaced
    cdef public object on_closed           # called with the port and the error when that happens, or None
    cdef readonly uint32_t generation      # of the peer's process, while it is alive
    cdef Region region
    cdef readonly Outbox outbox            # what goes to the peer
    cdef Ring inbound                      # what comes from it
    cdef readonly PortOut outgoing         # deliveries for the peer's consumers
    cdef PortIn incoming                   # deliveries of the peer's producers
    cdef Scheduler scheduler
    cdef uint64_t bit                      # the peer's, in …
    cdef PortWork work
    cdef public dict routed                # slot index -> RoutedLink of this worker
    cdef dict leaving                      # slot << 32 | generation -> OtherEnd whose link is gone, but not all it sent
    cdef list due                          # OtherEnds that have something to say at the end of this wake
    cdef list waiting                      # Connections paused until there is room
    cdef int release_waiting(self) except -1
    cdef bint stuck(self) noexcept
    cdef bint unread(self) noexcept
    cdef int answer_bell(self) except -1
    cdef int receive(self) except -1
    cdef int take_records(self, int* taken) except -1
    cdef int on_record(self, const uint8_t* p, uint32_t size) except -1
    cdef int on_link_record(self, const uint8_t* p, uint32_t size) except -1
    cdef int refuse_length(self, uint32_t size) except -1
    cdef int close_ring(self, object error) except -1
    cdef bint record_failed(self, object fault) except *
    cdef bint link_record_failed(self, const uint8_t* p, object fault) except *
    cdef int flush(self) except -1
    cdef int end_failed(self, OtherEnd end, object fault) except -1
