"""Routing of the deliveries of a link without a target, by the address in each message.

routing-semantics.md 7.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_READ_CHAR
from libc.stdint cimport uint8_t

from sluice.router.amqp.codec cimport Slice, open_variable
from sluice.router.amqp.frames cimport Transfer
from sluice.router.delivery.delivery cimport IN_DISCARD
from sluice.router.delivery.entry cimport is_entry
from sluice.router.links.producer_link cimport ROUTED, WANTS_MORE
from sluice.router.message.sections cimport SCAN_OK, ScanResult, scan, scan_to
from sluice.router.amqp.spec cimport D_REJECTED, D_RELEASED, S_PROPERTIES
from sluice.router.message.annotations cimport composed_drop
from sluice.router.delivery.plan cimport NO_PLAN, LeadingSections, Plan, has_no_annotations
from sluice.router.delivery.planner cimport is_ready
from sluice.router.delivery.remembered_address cimport (
    REMEMBERED_ADDRESSES, REPLACE_ADDRESS_EVERY, RememberedAddress, find_address, remember_address,
)
from sluice.router.table.address_cache cimport RECENT_TEXT
from sluice.router.table.tap cimport is_required
from sluice.router.table.table cimport NOWHERE_CONFINED, NOWHERE_UNAVAILABLE, NOWHERE_UNKNOWN, Table

from sluice.router.delivery.producer_origin cimport ProducerOrigin
from sluice.router.delivery.producer_handler cimport (
    MOST_TO, ProducerHandler, check_sections, plan_for, rejection,
)

cdef enum:
    ANY_PHASE = -1


cdef bytes IS_UNAVAILABLE = rejection("amqp:not-found", "Deliveries cannot be sent to an unavailable address")
cdef bytes FORBIDDEN = rejection("amqp:unauthorized-access", "policy violation on target")


cdef inline bint is_mobile(ForwardingAddress address) noexcept:
    """Return True for a mobile address, which may have a tenant."""
    return PyUnicode_READ_CHAR(address.key, 0) == c"M"


cdef class AnonymousHandler(ProducerHandler):
    """Handler of a link without a target: each message names its address."""

    def __cinit__(self, Table table not None, ProducerOrigin origin not None):
        self.table = table
        self.use_origin(origin)
        self.anonymous = not self.edge

    cdef const Plan* plan(self, ProducerLink link, const Transfer* t) noexcept:
        cdef LeadingSections said
        cdef Slice user, text, to
        cdef void* remembered
        cdef void* address
        cdef Plan* plan
        cdef const uint8_t* properties
        if not has_no_annotations(t.payload.data, t.payload.size, &said):
            return NULL
        properties = t.payload.data + said.at
        if properties[2] != S_PROPERTIES \
                or not scan_to(properties + 3, t.payload.data + t.payload.size, &user, &text):
            return NULL
        remembered = find_address(<void*>self.addresses, &text)
        if remembered is NULL or (<RememberedAddress>remembered).key is not self.table.lookups_key:
            return NULL
        if self.rules is not None and (
                (not self.rules.proxies and not self.rules.allows_user(&user))
                or not self.allowed(&text, remembered) or self.rules.concerns_management(&text)):
            return NULL
        plan = &(<RememberedAddress>remembered).plan
        address = <void*>(<RememberedAddress>remembered).address
        if not is_ready(plan, self.table.recent.version, &said, address, self.edge):
            to.data = NULL
            to.size = 0
            if self.tenant is not None and is_mobile(<ForwardingAddress>address):
                to.data = (<ForwardingAddress>address).to
                to.size = PyBytes_GET_SIZE((<ForwardingAddress>address).to)
            if not plan_for(self, plan, <ForwardingAddress>address, self.edge, link.number, &said, &to,
                            (<ForwardingAddress>address).phase):
                return NULL
        return NULL if plan.verdict == NO_PLAN else plan

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        cdef int result
        cdef int phase = ANY_PHASE
        cdef Slice text
        cdef ForwardingAddress address
        cdef void* remembered
        cdef NotFoundReason why = NOWHERE_UNKNOWN
        cdef ScanResult scanned = scan(c.data, c.size, True, self.honour, &c.sections)
        if scanned != SCAN_OK or c.sections.hops > self.table.network.hop_limit or c.sections.end > MOST_TO:
            result = check_sections(link, d, c, scanned, self.table.network.hop_limit)
            if result == WANTS_MORE or d.flags & IN_DISCARD:
                return result
        if c.sections.served.data is not NULL and self.mark is not None and self.refuse_if_served(link, d, c):
            return ROUTED
        c.honour = self.honour
        c.came_by = self.edge
        if self.edge:
            self.mark_edge_arrival(d, c)
        c.anonymous = self.anonymous
        text = c.sections.to
        if c.sections.to_override.data is not NULL:
            c.to = c.sections.to_override
            open_variable(c.to.data, c.to.data + c.to.size, &text)
            phase = c.sections.phase
            c.phase = phase
        if text.data is NULL:
            return self.refuse_unaddressed(link, d)
        remembered = find_address(<void*>self.addresses, &text)
        if self.rules is not None:
            if not self.rules.proxies and self.forged(link, d, c):
                return ROUTED
            if not self.allowed(&text, remembered):
                link.refuse(d, D_REJECTED, FORBIDDEN, False)
                self.rules.deny_target(&text)
                return ROUTED
            if self.rules.concerns_management(&text):
                return self.deliver_limited(link, d, c, &text, phase)
        address = self.lookup(&text, phase, remembered, &why)
        if address is None:
            if why == NOWHERE_UNAVAILABLE:
                link.refuse(d, D_REJECTED, IS_UNAVAILABLE, True)
            elif self.table.network.uplink is not None and why != NOWHERE_CONFINED:
                return self.deliver_tapped_to_interior(link, d, c, &text) if self.table.taps and is_entry(self.entry) \
                    else self.deliver_to_interior(link, d, c, &text)
            else:
                link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        if self.tenant is not None and is_mobile(address):
            c.to.data = address.to
            c.to.size = len(address.to)
        if c.phase == 0:
            c.phase = address.phase
        return self.deliver(link, d, c, address, False)

    cdef int deliver_limited(
            self, ProducerLink link, InDelivery* d, Content* c, const Slice* text, int phase) except -1:
        """Deliver a message for a management node at which its sender has limited rights.

        The message leaves with an address that states these rights. The management agent of this router knows them
        from the connection.
        """
        cdef ForwardingAddress address
        cdef NotFoundReason why = NOWHERE_UNKNOWN
        raw = PyBytes_FromStringAndSize(<const char*>text.data, text.size)
        limited = self.table.limited_address(raw, self.rules.rights)
        if limited is None:
            link.refuse(d, D_REJECTED, FORBIDDEN, False)
            self.rules.deny_target(text)
            return ROUTED
        name, encoded = limited
        address = self.table.find(name, self.tenant, phase, &why)
        if name is not raw:
            c.to.data = <bytes>encoded
            c.to.size = len(<bytes>encoded)
        if address is None:
            if self.table.network.uplink is not None and why == NOWHERE_UNKNOWN:
                return self.deliver_uplink(link, d, c)
            link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        return self.deliver(link, d, c, address, False)

    cdef int deliver_tapped_to_interior(
            self, ProducerLink link, InDelivery* d, Content* c, const Slice* text) except -1:
        """Forward as `deliver_to_interior` does, with copies for taps whose patterns match the address."""
        cdef bint waits
        cdef tuple found = self.table.taps_elsewhere(
            PyBytes_FromStringAndSize(<const char*>text.data, text.size), self.tenant)
        if found is None:
            return self.deliver_to_interior(link, d, c, text)
        waits = not c.settled and is_required(<tuple>found[0], self.tenant)
        if waits:
            self.refuse_required(link, d, c, <tuple>found[0], None, False)
            if d.flags & IN_DISCARD:
                return ROUTED
        self.deliver_to_interior(link, d, c, text)
        if d.flags & IN_DISCARD:
            return ROUTED
        return self.copy_for_taps(link, d if waits else NULL, c, <tuple>found[0], <bytes>found[1])

    cdef int deliver_to_interior(self, ProducerLink link, InDelivery* d, Content* c, const Slice* text) except -1:
        """Forward a message for an address that this edge router does not know to the interior router.

        The interior router does not know this router's tenants, so the message gets its whole address.
        """
        cdef tuple whole = None
        if self.tenant is not None:
            raw = PyBytes_FromStringAndSize(<const char*>text.data, text.size)
            whole = self.table.whole_address(raw, self.tenant)
        if whole is None:
            return self.deliver_uplink(link, d, c)
        name = <bytes>whole[0]
        c.to.data = name
        c.to.size = len(name)
        c.phase = whole[1]
        return self.deliver_uplink(link, d, c)

    cdef bint allowed(self, const Slice* text, void* remembered) noexcept:
        """Return True if the rules allow the address. Unchanged rules are not asked twice about the same address."""
        if remembered is not NULL and (<RememberedAddress>remembered).targets is self.rules.targets:
            return True
        if not self.rules.allows_target(text):
            return False
        if remembered is not NULL:
            (<RememberedAddress>remembered).targets = self.rules.targets
        return True

    cdef ForwardingAddress lookup(self, const Slice* text, int phase, void* remembered, NotFoundReason* why):
        """Look up the address of a message; a remembered address is answered from its last look-up."""
        cdef ForwardingAddress address
        if remembered is not NULL and phase == ANY_PHASE \
                and (<RememberedAddress>remembered).key is self.table.lookups_key:
            return (<RememberedAddress>remembered).address
        raw = PyBytes_FromStringAndSize(<const char*>text.data, text.size)
        address = self.table.find(raw, self.tenant, phase, why)
        if address is not None and phase == ANY_PHASE and text.size <= RECENT_TEXT:
            self.remember(raw, address, remembered)
        return address

    cdef int remember(self, bytes text, ForwardingAddress address, void* remembered) except -1:
        """Remember the result of a look-up: always for a remembered text, else for one in REPLACE_ADDRESS_EVERY."""
        cdef RememberedAddress one
        if remembered is not NULL:
            one = <RememberedAddress>remembered
            composed_drop(&one.plan.composed)
            one.plan.version = 0
        else:
            self.further += 1
            if self.addresses is not None and len(self.addresses) == REMEMBERED_ADDRESSES \
                    and self.further % REPLACE_ADDRESS_EVERY:
                return 0
            one = RememberedAddress()
            one.text = text
            one.targets = None if self.rules is None else self.rules.targets
            self.addresses = remember_address(self.addresses, one)
        one.address = address
        one.key = self.table.lookups_key
        return 0
