"""Routing of the deliveries of a link from another router, by the address in each message.

inter-router.md 10.4.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from sluice.router.amqp.codec cimport Slice, open_variable
from sluice.router.amqp.frames cimport Transfer
from sluice.router.delivery.delivery cimport IN_DISCARD, IN_TRACKED
from sluice.router.links.producer_link cimport ROUTED, WANTS_MORE
from sluice.router.message.sections cimport SCAN_MORE, SCAN_OK, ScanResult, Sections, scan
from sluice.router.amqp.spec cimport D_RELEASED
from sluice.router.table.network cimport Network
from sluice.router.delivery.plan cimport NO_PLAN, LeadingSections, Plan, use_scanned_prefix
from sluice.router.delivery.planner cimport is_ready
from sluice.router.delivery.cached_prefix cimport CachedPrefix, find_prefix
from sluice.router.table.address_cache cimport RECENT_TEXT, AddressCache
from sluice.router.table.table cimport NOWHERE_UNKNOWN, NotFoundReason, Table
from sluice.router.delivery.producer_handler cimport (
    MOST_TO, ProducerHandler, check_sections, plan_for, use_cached_prefix,
)


cdef class RouterHandler(ProducerHandler):
    """Handler of a link from another router: each message names its address, in an annotation or its properties
    (inter-router.md 10.4)."""

    def __cinit__(self, Table table not None, conn=0, *, streaming=False, checks=False):
        """conn: number of the link's connection. streaming: the peer uses the link for streams, which are forwarded as
        they arrive. checks: the peer is a Sluice router and slows down producers of settled messages
        (Content.checkpoint)."""
        self.checks = checks
        self.table = table
        self.honour = True
        self.conn = conn
        self.streaming = streaming

    cdef bint streams(self, ProducerLink link, const Content* c) noexcept:
        cdef Sections s
        if not self.streaming or c.data is NULL:
            return ProducerHandler.streams(self, link, c)
        memset(&s, 0, sizeof(Sections))
        return scan(c.data, c.size, False, True, &s) == SCAN_OK

    cdef const Plan* plan(self, ProducerLink link, const Transfer* t) noexcept:
        cdef LeadingSections said
        cdef uint64_t version = self.table.recent.version
        cdef void* prefix
        cdef Plan* plan
        prefix = find_prefix(<void*>self.cached_prefixes, t.payload.data, t.payload.size)
        if prefix is NULL:
            return NULL
        use_scanned_prefix(&(<CachedPrefix>prefix).last, &said)
        plan = &(<CachedPrefix>prefix).plan
        if not is_ready(plan, version, &said, <void*>(<CachedPrefix>prefix).address, self.conn):
            if (<CachedPrefix>prefix).version != version or (<CachedPrefix>prefix).address is None \
                    or said.sections.settled or not plan_for(
                        self, plan, (<CachedPrefix>prefix).address, self.conn, link.number, &said,
                        &said.sections.to_override, said.sections.phase):
                return NULL
        return NULL if plan.verdict == NO_PLAN else plan

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        cdef int result
        cdef Slice text
        cdef ForwardingAddress address
        cdef Network network = self.table.network
        cdef ScanResult scanned = SCAN_OK
        cdef void* beginning = use_cached_prefix(self, c)
        if beginning is NULL:
            # Most messages have their address in an annotation. Properties are read only without it.
            scanned = scan(c.data, c.size, False, True, &c.sections)
            if c.sections.to_override.data is NULL and (scanned == SCAN_OK or scanned == SCAN_MORE):
                scanned = scan(c.data, c.size, True, True, &c.sections)
            elif scanned == SCAN_OK:
                self.cache_prefix(c)
        if scanned != SCAN_OK or c.sections.hops > network.hop_limit or c.sections.end > MOST_TO:
            result = check_sections(link, d, c, scanned, network.hop_limit)
            if result == WANTS_MORE or d.flags & IN_DISCARD:
                return result
        c.honour = True
        c.came_by = self.conn
        c.checkpoint = c.sections.settled
        if c.checkpoint and not c.settled:
            d.flags |= IN_TRACKED
        c.unbounded = c.settled and not self.checks
        text = c.sections.to
        if c.sections.to_override.data is not NULL:
            c.to = c.sections.to_override
            open_variable(c.to.data, c.to.data + c.to.size, &text)
            c.phase = c.sections.phase
        if text.data is NULL:
            return self.refuse_unaddressed(link, d)
        if beginning is not NULL and (<CachedPrefix>beginning).address is not None \
                and (<CachedPrefix>beginning).version == self.table.recent.version:
            address = (<CachedPrefix>beginning).address
        else:
            address = self.lookup(&text, c.phase)
            if beginning is not NULL:
                (<CachedPrefix>beginning).address = address
                (<CachedPrefix>beginning).version = self.table.recent.version
        if address is None:
            link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        if address.exchange is not None and not c.sections.has_properties:
            result = self.scan_subject(link, d, c)
            if result == WANTS_MORE or d.flags & IN_DISCARD:
                return result
        return self.deliver(link, d, c, address, False)

    cdef int scan_subject(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        """Scan the message with its properties: an exchange routes by the subject."""
        return check_sections(link, d, c, scan(c.data, c.size, True, True, &c.sections), self.table.network.hop_limit)

    cdef ForwardingAddress lookup(self, const Slice* text, int phase):
        cdef NotFoundReason why = NOWHERE_UNKNOWN
        cdef AddressCache recent = self.table.recent
        cdef uint32_t place = 0
        cdef void* found = NULL
        cdef ForwardingAddress address
        if recent.get(text, phase, &place, &found):
            return <ForwardingAddress>found
        raw = PyBytes_FromStringAndSize(<const char*>text.data, text.size)
        address = self.table.find(raw, None, phase, &why)
        if text.size <= RECENT_TEXT:
            recent.put(place, raw, phase, address)
        return address
