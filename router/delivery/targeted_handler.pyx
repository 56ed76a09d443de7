"""Routing of the deliveries of a link with a target, to the address that was bound at attach."""
from libc.stdint cimport uint8_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.frames cimport Transfer
from sluice.router.delivery.delivery cimport IN_DISCARD
from sluice.router.links.producer_link cimport ROUTED, WANTS_MORE
from sluice.router.message.sections cimport SCAN_OK, ScanResult, scan, scan_user
from sluice.router.amqp.spec cimport S_PROPERTIES
from sluice.router.delivery.plan cimport NO_PLAN, LeadingSections, Plan, has_no_annotations, use_scanned_prefix
from sluice.router.delivery.planner cimport is_ready
from sluice.router.delivery.cached_prefix cimport CachedPrefix, find_prefix
from sluice.router.policy.messages cimport MessageRules
from sluice.router.links.producer_link cimport ProducerLink
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.message.content cimport Content
from sluice.router.table.table cimport Table
from sluice.router.delivery.producer_origin cimport ProducerOrigin
from sluice.router.delivery.producer_handler cimport (
    MOST_TO, ProducerHandler, check_sections, plan_for, use_cached_prefix,
)

from sluice.router.amqp import codec


cdef bint names_allowed_user(MessageRules rules, const Slice* payload, size_t at) noexcept:
    """Return True if the message names no user, or one that it may name. False: it may not, or that cannot be told.

    at: offset of the properties, or of the section after them.
    """
    cdef const uint8_t* p = payload.data + at
    cdef Slice user
    return p[2] != S_PROPERTIES \
        or (scan_user(p + 3, payload.data + payload.size, &user) and rules.allows_user(&user))


cdef class TargetedHandler(ProducerHandler):
    """Handler of a link with a target: deliveries go to the address that was bound at attach."""

    def __cinit__(self, Table table not None, ForwardingAddress address not None, ProducerOrigin origin not None, *,
                  to=None, phase=0, from_fallback=False):
        """to: text for x-opt-qd.to. from_fallback: the producer serves a fallback."""
        self.table = table
        self.use_origin(origin)
        self.address = address
        self.to_owner = codec.encode_string(to) if to is not None else None
        if to is not None:
            self.to.data = self.to_owner
            self.to.size = len(self.to_owner)
        self.phase = phase
        self.from_fallback = from_fallback

    def rebind(self, ForwardingAddress address not None, ProducerLink link not None):
        """Bind the link to the same address in a new table."""
        self.address = address
        self.table.bind_producer(address, link, not self.from_fallback)

    cdef const Plan* plan(self, ProducerLink link, const Transfer* t) noexcept:
        cdef LeadingSections said
        cdef Plan* plan = &self.plain
        cdef void* prefix
        cdef bint checked = self.rules is not None and not self.rules.proxies
        if self.from_fallback:
            return NULL
        if has_no_annotations(t.payload.data, t.payload.size, &said):
            if checked and not names_allowed_user(self.rules, &t.payload, said.at):
                return NULL
        else:
            prefix = NULL if checked else find_prefix(<void*>self.cached_prefixes, t.payload.data, t.payload.size)
            if prefix is NULL:
                return NULL
            use_scanned_prefix(&(<CachedPrefix>prefix).last, &said)
            plan = &(<CachedPrefix>prefix).plan
            if (said.sections.served.data is not NULL and self.mark is not None) \
                    or (self.checks and said.sections.settled):
                return NULL
        if not is_ready(plan, self.table.recent.version, &said, <void*>self.address, self.edge) and not plan_for(
                self, plan, self.address, self.edge, link.number, &said, &self.to, self.phase):
            return NULL
        return NULL if plan.verdict == NO_PLAN else plan

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        cdef int result
        cdef bint checked = self.rules is not None and not self.rules.proxies
        cdef bint properties = checked or self.address.exchange is not None
        cdef ScanResult scanned = SCAN_OK
        if properties or use_cached_prefix(self, c) is NULL:
            scanned = scan(c.data, c.size, properties, self.honour, &c.sections)
            if self.honour and not properties and scanned == SCAN_OK and c.sections.map.data is not NULL:
                self.cache_prefix(c)
        if scanned != SCAN_OK or c.sections.hops > self.table.network.hop_limit or c.sections.end > MOST_TO:
            result = check_sections(link, d, c, scanned, self.table.network.hop_limit)
            if result == WANTS_MORE or d.flags & IN_DISCARD:
                return result
        if checked and self.forged(link, d, c):
            return ROUTED
        if c.sections.served.data is not NULL and self.mark is not None and self.refuse_if_served(link, d, c):
            return ROUTED
        c.honour = self.honour
        c.came_by = self.edge
        if self.edge:
            self.mark_edge_arrival(d, c)
        c.to = self.to
        c.phase = self.phase
        return self.deliver(link, d, c, self.address, True)
