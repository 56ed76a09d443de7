"""Other ends of routed links on another worker."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.id_map cimport IdMap
from sluice.router.delivery.delivery cimport InDelivery, OutDelivery
from sluice.router.amqp.frames cimport Flow, Transfer
from sluice.router.amqp.meter cimport Meter
from sluice.router.routed.pending_flow cimport PendingFlow
from sluice.router.routed.routed_link cimport OtherEnd
from sluice.router.ring.port cimport WorkerPort
from sluice.router.ring.records cimport LinkHead, LinkRecord

cdef enum:
    # Octets of a routed link that may be with the other worker before it reports that some have left.
    LINK_WINDOW = 262144

# Other end of a routed link, on another worker. Owner: the link.
cdef class RemoteEnd(OtherEnd):
    cdef WorkerPort port
    cdef uint32_t slot                     # slot of the other link
    cdef uint32_t generation               # generation of that slot
    cdef uint64_t own                      # slot << 32 | generation of our link, by which attaches are answered
    # Towards the other link.
    cdef uint64_t next_key
    cdef IdMap sent                        # key -> OutDelivery*
    cdef uint64_t outstanding              # octets posted that have not left the other worker
    cdef list later                        # events (what, body), to be sent after queued records
    cdef PendingFlow pending_flow          # to be sent after queued records
    cdef uint64_t held_key                 # `next_key` when the pending flow arrived
    # From the other link.
    cdef InDelivery* current               # incomplete delivery, or NULL
    cdef Meter* meter                      # counts octets stored here
    cdef uint64_t received_octets
    cdef uint64_t reported                 # octets reported as having left
    cdef list parts                        # octets of an event that comes in several records
    cdef bint due                          # listed in the port for the end of this wake
    cdef bint leaving                      # our link has ended; its complete deliveries are still being posted
    cdef bint over                         # cut: nothing more is sent
    cdef int put(self, OutDelivery* o, const Transfer* t, bint first) except -1
    cdef int pump_to_worker(self) except -1
    cdef int post(self, LinkHead* head, const Slice* tag, const Slice* state, const uint8_t* data,
                  size_t size) except -1
    cdef int post_event(self, int what, bytes body) except -1
    cdef int post_flow(self, const Flow* f) except -1
    cdef int report_window(self) except -1
    cdef void want_turn(self) noexcept
    cdef int check_keys(self, const LinkHead* head) except -1
    cdef int on_transfer(self, const LinkRecord* r) except -1
    cdef int on_outcome(self, const LinkRecord* r) except -1
    cdef int on_returned(self, const LinkHead* head) except -1
    cdef int on_update(self, const LinkRecord* r) except -1
    cdef int on_flow(self, const LinkRecord* r) except -1
    cdef int on_window(self, const LinkHead* head) except -1
    cdef int on_event_record(self, const LinkRecord* r) except -1
    cdef int finish(self, InDelivery* d) except -1
    cdef int give_up(self, OutDelivery* o) except -1
    cdef int abort_queued(self) except -1
    cdef int abort_and_end(self) except -1
    cdef int leave(self) except -1
    cdef int left(self) except -1
    cdef int drop_sent(self) except -1
