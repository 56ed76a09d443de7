"""Records of routed links in the rings between two workers (remote_end.pyx)."""
from sluice.router.ring.records cimport R_LINK_FLOW

cdef enum:
    # Flags of LinkHead for flows.
    F_HAS_COUNT = 1
    F_HAS_CREDIT = 2
    F_HAS_AVAILABLE = 4
    F_DRAIN = 8
    F_ECHO = 16


cdef void flow_record(LinkHead* head, const Flow* f) noexcept nogil:
    record_begin(
        head, R_LINK_FLOW, (F_HAS_COUNT if f.has_delivery_count else 0) | (F_HAS_CREDIT if f.has_link_credit else 0)
        | (F_HAS_AVAILABLE if f.has_available else 0) | (F_DRAIN if f.drain else 0) | (F_ECHO if f.echo else 0),
        f.given_back)
    head.count = f.link_credit
    head.format = f.delivery_count
    head.available = f.available


cdef void record_flow(const LinkRecord* r, Flow* f) noexcept nogil:
    cdef const LinkHead* head = r.head
    memset(f, 0, sizeof(Flow))
    f.has_delivery_count = (head.flags & F_HAS_COUNT) != 0
    f.has_link_credit = (head.flags & F_HAS_CREDIT) != 0
    f.has_available = (head.flags & F_HAS_AVAILABLE) != 0
    f.drain = (head.flags & F_DRAIN) != 0
    f.echo = (head.flags & F_ECHO) != 0
    f.link_credit = head.count
    f.given_back = <uint32_t>head.key
    f.delivery_count = head.format
    f.available = head.available
    f.properties = r.state
