"""A routed link: one end of a pair that is end to end (brokers-and-edge.md, chapter 5)."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.amqp.delivery cimport InDelivery, OutDelivery, Party
from router.amqp.frames cimport Flow, Transfer
from router.amqp.message cimport Meter
from router.amqp.session cimport Link

cdef enum:
    # Deliveries of one routed link that may be in this router or unsettled beyond it; credit for more is given later.
    ROUTED_MOST = 10000
    # Octets of a delivery state, or of the properties of a flow, that pass to another worker.
    STATE_MOST = 16384
    TAG_MOST = 32

# What the ends of a pair tell each other besides frames of the hot path; in order with them.
cpdef enum Told:
    TOLD_ATTACH = 1            # the client's attach, for the container
    TOLD_ANSWER = 2            # the container's
    TOLD_DETACH = 3            # the peer's detach: one octet `closed`, its error
    TOLD_LOST = 4              # the link, or what it was on, is gone

# What the first transfer of a queued delivery says. Owner: the OutDelivery, as its `prefix`.
cdef struct RoutedHead:
    uint8_t options
    uint8_t tag_size
    uint8_t[TAG_MOST] tag
    uint32_t state_size
    # followed by the octets of the state

# Store a frame of a delivery to a party that cannot pass it on now. `m`: what meters its octets.
cdef int store_frame(OutDelivery* o, const Transfer* t, bint first, Meter* m) except -1
# An encoded value that a peer sends to another one is well formed, or this raises RemoteError.
cdef int check_value(const Slice* value) except -1
cdef int keep_head(OutDelivery* o, const Transfer* t) except -1
cdef void head_transfer(const OutDelivery* o, Transfer* t) noexcept

# The other end of a routed link, on another worker. Owner: the link.
cdef class FarEnd(Party):
    cdef RoutedLink link                   # ours
    # As RoutedLink.deliver.
    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1
    cdef int flow(self, const Flow* f) except -1
    cdef int tell(self, int what, bytes body) except -1
    # Our link is gone, or the other one: nothing is said any more.
    cdef int cut(self) except -1
    # The worker's port: a record for our link has come; this wake ends; the other worker is gone.
    cdef int on_record(self, const uint8_t* p, uint32_t size) except -1
    cdef int flush(self) except -1
    cdef int port_lost(self) except -1
    cdef bint through(self, object port) noexcept

# One link of a pair. Owner: its session. The other one is `near` (this worker) or behind `far` (another one); both are
# None when it is gone.
cdef class RoutedLink(Link):
    cdef RoutedLink near
    cdef FarEnd far
    cdef readonly bint answered            # our attach is written: frames may follow it
    cdef readonly bint survives            # its terminus outlives the loss of its connection
    cdef readonly bint far_survives        # the same of the other end
    cdef bint peer_gone                    # the peer's detach has come
    cdef bint other_gone                   # the other end is gone
    cdef bint detach_due                   # ours is to be written when the queue is empty
    cdef bint due_closed
    cdef bytes due_error
    cdef readonly uint32_t delivery_count  # of the sender, as far as it is known here
    cdef Flow held                         # the last flow from the other end …
    cdef bytes held_properties
    cdef bint flow_due                     # … is to be written
    # To the one on which the peer receives: a frame of a delivery d. `m` meters what is stored of it.
    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1
    cdef int pass_flow(self, const Flow* f) except -1
    cdef int hear(self, int what, bytes body) except -1
    cdef int end_by(self, object error) except -1
    cdef int tell(self, int what, bytes body) except -1
    cdef int far_detached(self, bint closed, bytes error) except -1
    cdef int far_lost(self) except -1
    cdef int write_detach(self, bint closed, bytes error) except -1
    cdef int part(self) except -1
    cdef int end(self) except -1
    cdef int lose_deliveries(self) except -1
    cdef int break_off(self) except -1
    cdef bint holds(self) noexcept
    cdef void note_credit(self, uint32_t credit) noexcept
    cdef int write_held(self, Flow* f) except -1
