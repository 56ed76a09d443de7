"""Records of routed links in the rings between two workers (remote_end.pyx)."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from sluice.router.amqp.frames cimport Flow, Transfer
from sluice.router.ring.records cimport R_LINK_TRANSFER, LinkHead, LinkRecord

cdef enum:
    # Flags of LinkHead for transfers, updates and outcomes.
    F_FIRST = 1
    F_SETTLED = 2
    F_MORE = 4
    F_ABORTED = 8


cdef inline void record_begin(LinkHead* head, uint8_t type, uint8_t flags, uint64_t key) noexcept nogil:
    """Initialise the head of a record."""
    memset(head, 0, sizeof(LinkHead))
    head.type = type
    head.flags = flags
    head.key = key


# Make the head of a record for this frame. `encode_link` writes it with tag and state.
cdef inline void transfer_record(LinkHead* head, const Transfer* t, uint64_t key, bint first, bint more) noexcept nogil:
    record_begin(head, R_LINK_TRANSFER, (F_SETTLED if t.settled else 0) | (F_ABORTED if t.aborted else 0)
                 | (F_MORE if more else 0) | (F_FIRST if first else 0), key)
    head.options = t.options
    head.format = t.message_format


# Make the frame of a decoded record. Slices point into the record.
cdef inline void record_transfer(const LinkRecord* r, Transfer* t) noexcept nogil:
    cdef const LinkHead* head = r.head
    memset(t, 0, sizeof(Transfer))
    t.options = head.options
    t.message_format = head.format
    t.settled = (head.flags & F_SETTLED) != 0
    t.more = (head.flags & F_MORE) != 0
    t.aborted = (head.flags & F_ABORTED) != 0
    t.tag = r.tag
    t.state = r.state
    t.payload = r.data


# Make the head of a record for a flow, except its properties; make the flow of a decoded record.
cdef void flow_record(LinkHead* head, const Flow* f) noexcept nogil
cdef void record_flow(const LinkRecord* r, Flow* f) noexcept nogil
