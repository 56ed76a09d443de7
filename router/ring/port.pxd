"""Ports: the pair of rings between two workers, or from this worker to itself, and the records in them."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.scheduler cimport Scheduler
from sluice.router.ring.region cimport Region
from sluice.router.ring.outbox cimport Outbox
from sluice.router.ring.port_in cimport PortIn
from sluice.router.ring.port_out cimport PortOut
from sluice.router.ring.port_work cimport PortWork
from sluice.router.ring.ring cimport Ring
from sluice.router.routed.routed_link cimport OtherEnd

cdef enum:
    # Most records taken from one ring before the loop looks at sockets again. A multicast record counts as one more
    # record for each TARGETS_AS_A_RECORD consumers.
    RECORDS_A_TURN = 512
    TARGETS_AS_A_RECORD = 4

# Port to one other worker, driven by the loop. Owner: the worker.
cdef class WorkerPort:
    cdef readonly int peer                 # number of the other worker
    cdef readonly int worker               # number of this worker
    cdef readonly bint alive
    cdef readonly bint closed              # after a malformed record: nothing is read until the peer is replaced
    cdef public object on_closed           # called with port and error when `closed` is set, or None
    cdef readonly uint32_t generation      # generation of the peer's process, while that is alive
    cdef Region region
    cdef readonly Outbox outbox            # records to the peer
    cdef Ring inbound                      # records from the peer
    cdef readonly PortOut outgoing         # deliveries to the peer's consumers
    cdef PortIn incoming                   # deliveries from the peer's producers
    cdef Scheduler scheduler
    cdef uint64_t bit                      # bit of the peer in `work`
    cdef PortWork work
    cdef public dict routed                # slot index -> RoutedLink of this worker
    # slot << 32 | generation -> OtherEnd whose link has ended, but which still posts frames that the link received.
    cdef dict leaving
    cdef list due                          # OtherEnds that have something to post at the end of this wake
    cdef list waiting                      # Connections that are paused until there is room
    cdef int release_waiting(self) except -1
    cdef bint stuck(self) noexcept
    cdef bint unread(self) noexcept
    cdef int service_doorbell(self) except -1
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
