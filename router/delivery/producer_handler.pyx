"""Routing of the deliveries of an incoming link, by its target or by the address in each message.

routing-semantics.md 7 (finding the address), 8.5 to 8.8 and 11.4 (no consumer, fallback), 10 (the router itself) and
15 (exchanges).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_READ_CHAR
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from router.amqp.codec cimport Slice, open_list, open_variable, skip_value
from router.amqp.frames cimport Transfer
from router.stats.counters cimport totals
from router.delivery.delivery cimport IN_ACCEPT, IN_DISCARD, IN_TRACKED
from router.links.producer_link cimport COLLECT_MOST, ROUTED, WANTS_MORE
from router.message.sections cimport (
    SCAN_MALFORMED, SCAN_MORE, SCAN_OK, SCAN_TRUNCATED, ScanResult, Sections, scan, scan_description, scan_to,
    scan_user,
)
from router.amqp.spec cimport D_REJECTED, D_RELEASED, S_PROPERTIES
from router.forwarding.forward cimport forward, forward_exchange, forward_fallback
from router.forwarding.network cimport Network
from router.message.annotations cimport composed_drop
from router.delivery.plan cimport (
    ENTRY_CONTAINER, ENTRY_COUNTED, ENTRY_EDGE, LeadingSections, Plan, has_no_annotations, plan_holds,
    use_scanned_prefix,
)
from router.delivery.planner cimport make_plan
from router.delivery.remembered_address cimport (
    REMEMBERED_ADDRESSES, REPLACE_ADDRESS_EVERY, RememberedAddress, find_address, remember_address,
)
from router.delivery.cached_prefix cimport PREFIX_CACHE_EVERY, CachedPrefix, find_prefix, keep_prefix
from router.forwarding.address_cache cimport RECENT_TEXT, AddressCache
from router.forwarding.size_limits cimport consumers_for, exceeds_some, octets_to_consumer
from router.forwarding.table cimport NOWHERE_CONFINED, NOWHERE_UNAVAILABLE, NOWHERE_UNKNOWN
from router.policy.messages cimport MessageRules

from router.addressing import address as addresses
from router.amqp import codec
from router.amqp.errors import DECODE_ERROR, INVALID_FIELD, MESSAGE_SIZE_EXCEEDED

cdef enum:
    # Octets of the sections up to the message-annotations, and of the address in these. With all targets they must fit
    # into one record to another worker.
    MOST_SECTIONS = 131072
    MOST_TO = 65536
    ANY_PHASE = -1


cdef bytes rejection(condition, description):
    return codec.encode_described(D_REJECTED, [codec.encode_error(condition, description)])


cdef bytes NO_ADDRESS = rejection("amqp:precondition-failed", "Routing failure: no address present")
cdef bytes TOO_LARGE = rejection("amqp:resource-limit-exceeded", "message annotations are too large")
cdef bytes TOO_LONG = rejection("amqp:link:message-size-exceeded",
                                f"the message for the router itself has more than {COLLECT_MOST} octets")
cdef bytes SIZE_EXCEEDED = rejection(MESSAGE_SIZE_EXCEEDED, "The message is longer than its receivers accept")
cdef bytes IS_UNAVAILABLE = rejection("amqp:not-found", "Deliveries cannot be sent to an unavailable address")


cdef bytes FORBIDDEN = rejection("amqp:unauthorized-access", "policy violation on target")
cdef bytes FORGED = rejection("amqp:unauthorized-access", "user_id proxy violation")


cdef int check_sections(ProducerLink link, InDelivery* d, Content* c, ScanResult result, uint32_t most) except -1:
    """Refuse a delivery whose leading sections are malformed or too large, and leave any other untouched.

    Returns ROUTED, or WANTS_MORE if that cannot be told yet. most: routers in a trace, at most.
    """
    if result == SCAN_OK or (result == SCAN_MORE and c.whole):
        if c.sections.hops > most:
            link.refuse(d, D_RELEASED, None, True)
        elif c.sections.end > MOST_SECTIONS or c.sections.to_override.size > MOST_TO:
            link.refuse(d, D_REJECTED, TOO_LARGE, False)
        return ROUTED
    if (result == SCAN_MORE or result == SCAN_TRUNCATED) and not c.whole:
        return WANTS_MORE
    link.refuse(d, D_REJECTED, rejection(DECODE_ERROR if result in (SCAN_TRUNCATED, SCAN_MALFORMED) else INVALID_FIELD,
                                         scan_description(result)), False)
    return ROUTED


cdef class ProducerHandler(DeliveryHandler):
    """Base of the handlers that route an incoming link's deliveries; subclasses find the address."""
    def __dealloc__(self):
        composed_drop(&self.plain.composed)

    cdef bint streams(self, ProducerLink link, const Content* c) noexcept:
        """Return True for a stream from a router: it goes on as a stream once its leading sections are here."""
        cdef Sections s
        if not self.honour or c.data is NULL:
            return False
        memset(&s, 0, sizeof(Sections))
        return scan(c.data, c.size, False, True, &s) == SCAN_OK and s.stream

    cdef bint forged(self, ProducerLink link, InDelivery* d, const Content* c) except -1:
        """Refuse a message that names another user; return True if it did (security.md P-51)."""
        if self.rules.allows_user(&c.sections.user_id):
            return False
        link.refuse(d, D_REJECTED, FORGED, False)
        self.rules.deny_user()
        return True

    cdef int deliver_elsewhere(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address,
                               bint targeted) except -1:
        """Deliver a message of which no consumer of its address may get a copy: fallback, uplink, or refusal."""
        if self.exceeds_all(c, address):
            link.refuse(d, D_REJECTED, SIZE_EXCEEDED, True)
            return ROUTED
        if address.fallback is not None and not (targeted and (<TargetedHandler>self).from_fallback) \
                and forward_fallback(address, d, c):
            count_ingress(self, <void*>address)
            return ROUTED
        if c.anonymous and self.table.network.uplink is not None and not address.confined:
            # Only the interior router knows destinations elsewhere.
            return self.deliver_uplink(link, d, c)
        return self.no_destination(link, d, address, targeted)

    cdef bint exceeds_all(self, const Content* c, ForwardingAddress address) except *:
        """Return True if the address has consumers, and the message is too long for each of them.

        False as well if there may be other consumers beyond the uplink of this edge router.
        """
        if not exceeds_some(address, c) or (c.anonymous and self.table.network.uplink is not None
                                            and not address.confined):
            return False
        return not consumers_for(address, octets_to_consumer(c))

    cdef int deliver_uplink(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        """Forward to the uplink of this edge router (inter-router.md 14.2)."""
        cdef ForwardingAddress uplink = self.table.network.uplink
        if forward(uplink, d, c):
            count_ingress(self, <void*>uplink)
        else:
            link.refuse(d, D_RELEASED, None, True)
        return ROUTED

    cdef bint deliver_edge(self, InDelivery* d, Content* c) except -1:
        """At an edge router: forward to the other edge router that the message names.

        Returns False if that router is not connected, or takes no copy.
        """
        cdef ForwardingAddress beyond = self.edge_of(c)
        if beyond is None or not forward(beyond, d, c):
            return False
        count_ingress(self, <void*>beyond)
        return True

    cdef ForwardingAddress edge_of(self, const Content* c):
        """At an edge router: return the address of the other edge router that the message names, if connected."""
        cdef Slice text = c.sections.to
        if c.to.data is not NULL:
            open_variable(c.to.data, c.to.data + c.to.size, &text)
        if text.data is NULL:
            return None
        plain = PyBytes_FromStringAndSize(<const char*>text.data, text.size).decode("utf-8", "replace")
        return self.table.network.edges.get(addresses.edge_id(addresses.normalise(plain)))

    cdef bint refuse_if_served(self, ProducerLink link, InDelivery* d, const Content* c) except -1:
        """Return True, after refusing it, for a message that was copied to this edge router where it entered."""
        cdef const uint8_t* p
        cdef const uint8_t* stop = NULL
        cdef uint32_t count
        cdef size_t size = PyBytes_GET_SIZE(self.mark)
        p = open_list(c.sections.served.data, c.sections.served.data + c.sections.served.size, &count, &stop)
        while p is not NULL and p < stop:
            if <size_t>(stop - p) >= size and memcmp(p, PyBytes_AS_STRING(self.mark), size) == 0:
                link.refuse(d, D_RELEASED, None, True)
                return True
            p = skip_value(p, stop)
        return False

    cdef void mark_edge_arrival(self, InDelivery* d, Content* c) noexcept:
        """Set the flags of a message that arrived by an edge connection."""
        if not self.checks:
            c.unbounded = c.settled
            return
        # The router where the message entered chose which messages are tracked.
        c.checkpoint = c.sections.settled
        if c.checkpoint and not c.settled:
            d.flags |= IN_TRACKED

    cdef int no_destination(self, ProducerLink link, InDelivery* d, ForwardingAddress address, bint targeted) except -1:
        """Handle a message that nothing takes: release it, or withhold the producer's credit."""
        if targeted and not link.keeps_credit and not address.reachable(not (<TargetedHandler>self).from_fallback):
            link.unreachable(d)
            address.wait(link)
        else:
            link.refuse(d, D_RELEASED, None, True)
        return ROUTED

    cdef int deliver_exchange(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address) except -1:
        """Forward through an exchange: accept the message if any consumer gets it, else release or reject it."""
        d.flags |= IN_ACCEPT
        if forward_exchange(address, d, c) == 0:
            d.flags &= ~IN_ACCEPT
            self.count_undeliverable(address)
            if self.exceeds_all(c, address):
                link.refuse(d, D_REJECTED, SIZE_EXCEEDED, True)
            else:
                link.refuse(d, D_RELEASED, None, True)
        else:
            count_ingress(self, <void*>address)
        return ROUTED

    cdef void count_undeliverable(self, ForwardingAddress address) noexcept:
        """Count a delivery at its address, although nothing takes it."""
        if self.counted_before:
            return
        address.slot.ingress += 1
        if self.container:
            address.slot.ingress_container += 1

    cdef int deliver_local(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address) except -1:
        """Pass a message, whole, to the router itself."""
        if address.rejects:
            link.refuse(d, D_REJECTED, None, True)
            return ROUTED
        if (c.stored.size if c.stored is not NULL else c.size) > COLLECT_MOST:
            link.refuse(d, D_REJECTED, TOO_LONG, True)
            return ROUTED
        if not c.whole:
            if c.complete or link.collect(d):
                return WANTS_MORE
            link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        if not self.table.on_local(link, address.key, PyBytes_FromStringAndSize(<const char*>c.data, c.size)):
            link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        d.flags |= IN_ACCEPT
        address.slot.to_container += 1
        count_ingress(self, <void*>address)
        totals.to_container += 1
        return ROUTED


cdef inline void count_ingress(ProducerHandler handler, void* address) noexcept:
    """Count a client's delivery. address: borrowed; None: not counted at an address."""
    if handler.counted_before:
        return
    totals.ingress += 1
    if handler.edge:
        totals.ingress_edge += 1
    if address is not <void*>None:
        (<ForwardingAddress>address).slot.ingress += 1
    if handler.container:
        totals.ingress_container += 1
        if address is not <void*>None:
            (<ForwardingAddress>address).slot.ingress_container += 1


cdef inline int deliver(ProducerHandler handler, ProducerLink link, InDelivery* d, Content* c,
                        ForwardingAddress address,
                        bint targeted) except -1:
    """Deliver a message to its address. targeted: the link's target named the address; else the message did."""
    if address.uplink and handler.table.network.edges and handler.deliver_edge(d, c):
        return ROUTED
    if address.exchange is not None:
        return handler.deliver_exchange(link, d, c, address)
    if address.inproc:
        return handler.deliver_local(link, d, c, address)
    if forward(address, d, c) == 0:
        return handler.deliver_elsewhere(link, d, c, address, targeted)
    if targeted and (<TargetedHandler>handler).from_fallback:
        count_ingress(handler, <void*>None)
    else:
        count_ingress(handler, <void*>address)
    return ROUTED


cdef inline void* use_cached_prefix(ProducerHandler handler, Content* c) noexcept:
    """Take a message's sections from its cached prefix. Returns the CachedPrefix, borrowed; NULL: it is not cached."""
    cdef void* beginning = find_prefix(<void*>handler.cached_prefixes, c.data, c.size)
    if beginning is not NULL:
        c.sections = (<CachedPrefix>beginning).last.sections
    return beginning


cdef int cache_prefix(ProducerHandler handler, const Content* c) except -1:
    """Cache the prefix of one in PREFIX_CACHE_EVERY messages.

    Called for a message whose prefix is not cached, and in which a scan without properties found annotations.
    """
    if handler.others % PREFIX_CACHE_EVERY == 0:
        handler.cached_prefixes = keep_prefix(handler.cached_prefixes, c.data, c.size, &c.sections)
    handler.others += 1
    return 0


cdef bint names_allowed_user(MessageRules rules, const Slice* payload, size_t at) noexcept:
    """Return True if the message names no user, or one that it may name. False: it may not, or that cannot be told.

    at: offset of the properties, or of the section after them.
    """
    cdef const uint8_t* p = payload.data + at
    cdef Slice user
    return p[2] != S_PROPERTIES \
        or (scan_user(p + 3, payload.data + payload.size, &user) and rules.allows_user(&user))


cdef inline uint8_t entry_counters(bint edge, bint container) noexcept nogil:
    """Return the counters (Plan.entry) of messages that enter the network by a link."""
    return ENTRY_COUNTED | (ENTRY_EDGE if edge else 0) | (ENTRY_CONTAINER if container else 0)


cdef inline bint plan_for(ProducerHandler handler, Plan* plan, ForwardingAddress address, uint32_t came_by,
                          uint64_t producer, const LeadingSections* said, const Slice* to, int phase) noexcept:
    """Make a plan for the handler's messages; see `make_plan`."""
    plan.entry = handler.entry
    plan.honour = handler.honour
    return make_plan(plan, address, handler.table.recent.version, came_by, producer, said, to, phase)


cdef class TargetedHandler(ProducerHandler):
    """Handler of a link with a target: deliveries go to the address that was bound at attach."""

    def __cinit__(self, Table table not None, ForwardingAddress address not None, *, to=None, phase=0, honour=False,
                  tenant=None,
                  from_fallback=False, container=False, MessageRules rules=None, edge=0, mark=None, checks=False):
        """to: text for x-opt-qd.to. container: the producer is a route container. rules: of its connection.

        edge: number of its edge connection. mark: on an uplink, the mark of this router. checks: see RouterHandler.
        """
        self.table = table
        self.address = address
        self.to_owner = codec.encode_string(to) if to is not None else None
        if to is not None:
            self.to.data = self.to_owner
            self.to.size = len(self.to_owner)
        self.phase = phase
        self.honour = honour
        self.tenant = tenant
        self.from_fallback = from_fallback
        self.container = container
        self.rules = rules
        self.edge = edge
        self.mark = mark
        self.checks = checks
        self.entry = entry_counters(edge != 0, container)

    def rebind(self, ForwardingAddress address not None, ProducerLink link not None):
        """Bind the link to the same address in a new table."""
        self.address = address
        self.table.bind_producer(address, link, not self.from_fallback)

    cdef const Plan* plan(self, ProducerLink link, const Transfer* t) noexcept:
        cdef LeadingSections said
        cdef Plan* plan = &self.plain
        cdef uint64_t version = self.table.recent.version
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
        if not plan_holds(plan, version, &said) and not plan_for(
                self, plan, self.address, self.edge, link.number, &said, &self.to, self.phase):
            return NULL
        return NULL if plan.slow else plan

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        cdef int result
        cdef bint checked = self.rules is not None and not self.rules.proxies
        cdef bint properties = checked or self.address.exchange is not None
        cdef ScanResult scanned = SCAN_OK
        if properties or use_cached_prefix(self, c) is NULL:
            scanned = scan(c.data, c.size, properties, self.honour, &c.sections)
            if self.honour and not properties and scanned == SCAN_OK and c.sections.map.data is not NULL:
                cache_prefix(self, c)
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
        return deliver(self, link, d, c, self.address, True)


cdef inline bint is_mobile(ForwardingAddress address) noexcept:
    """Return True for a mobile address, which may have a tenant."""
    return PyUnicode_READ_CHAR(address.key, 0) == c"M"


cdef class AnonymousHandler(ProducerHandler):
    """Handler of a link without a target: each message names its address."""

    def __cinit__(self, Table table not None, *, honour=False, tenant=None, container=False, MessageRules rules=None,
                  edge=0, mark=None, checks=False):
        self.table = table
        self.honour = honour
        self.tenant = tenant
        self.container = container
        self.rules = rules
        self.edge = edge
        self.mark = mark
        self.checks = checks
        self.entry = entry_counters(edge != 0, container)

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
        if not plan_holds(plan, self.table.recent.version, &said):
            address = <void*>(<RememberedAddress>remembered).address
            to.data = NULL
            to.size = 0
            if self.tenant is not None and is_mobile(<ForwardingAddress>address):
                to.data = (<ForwardingAddress>address).to
                to.size = PyBytes_GET_SIZE((<ForwardingAddress>address).to)
            if not plan_for(self, plan, <ForwardingAddress>address, self.edge, link.number, &said, &to,
                            (<ForwardingAddress>address).phase):
                return NULL
        return NULL if plan.slow else plan

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
        c.anonymous = not self.edge
        text = c.sections.to
        if c.sections.to_override.data is not NULL:
            c.to = c.sections.to_override
            open_variable(c.to.data, c.to.data + c.to.size, &text)
            phase = c.sections.phase
            c.phase = phase
        if text.data is NULL:
            link.refuse(d, D_REJECTED, NO_ADDRESS, False)
            return ROUTED
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
                return self.deliver_to_interior(link, d, c, &text)
            else:
                link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        if self.tenant is not None and is_mobile(address):
            c.to.data = address.to
            c.to.size = len(address.to)
        if c.phase == 0:
            c.phase = address.phase
        return deliver(self, link, d, c, address, False)

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
        return deliver(self, link, d, c, address, False)

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


cdef class RouterHandler(ProducerHandler):
    """Handler of a link from another router: each message names its address, in an annotation or its properties
    (inter-router.md 10.4)."""

    def __cinit__(self, Table table not None, conn=0, *, streaming=False, checks=False):
        """conn: number of the link's connection. streaming: the peer uses the link for streams, which are forwarded as
        they arrive. checks: the peer is a Sluice router and slows down producers of settled messages
        (Content.checkpoint)."""
        self.checks = checks
        self.table = table
        self.honour = self.counted_before = True
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
        if not plan_holds(plan, version, &said):
            if (<CachedPrefix>prefix).version != version or (<CachedPrefix>prefix).address is None \
                    or said.sections.settled or not plan_for(
                        self, plan, (<CachedPrefix>prefix).address, self.conn, link.number, &said,
                        &said.sections.to_override, said.sections.phase):
                return NULL
        return NULL if plan.slow else plan

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
                cache_prefix(self, c)
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
            link.refuse(d, D_REJECTED, NO_ADDRESS, False)
            return ROUTED
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
        return deliver(self, link, d, c, address, False)

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
