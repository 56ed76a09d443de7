"""Routing of the deliveries of an incoming link, by its target or by the address in each message.

Finding the address: routing-semantics.md 7. No consumer, fallback: routing-semantics.md 8.5 to 8.8, 11.4. The router
itself and exchanges: routing-semantics.md 10, 15.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from sluice.router.amqp.codec cimport Slice, open_list, open_variable, skip_value
from sluice.router.stats.counters cimport totals
from sluice.router.amqp.frames cimport Transfer
from sluice.router.amqp.scheduler cimport charge
from sluice.router.amqp.states cimport state_kind
from sluice.router.delivery.delivery cimport IN_ACCEPT, IN_DISCARD, IN_FINAL, IN_MULTI, IN_TRACKED
from sluice.router.links.producer_link cimport COLLECT_MOST, ROUTED, WANTS_MORE
from sluice.router.message.sections cimport (
    SCAN_MALFORMED, SCAN_MORE, SCAN_OK, SCAN_TRUNCATED, ScanResult, Sections, scan, scan_description,
)
from sluice.router.amqp.spec cimport D_REJECTED, D_RELEASED, D_TRANSACTIONAL
from sluice.router.table.forward cimport forward, forward_exchange, forward_fallback
from sluice.router.message.annotations cimport composed_drop
from sluice.router.delivery.cached_prefix cimport PREFIX_CACHE_EVERY, keep_prefix
from sluice.router.delivery.entry cimport (
    ENTRY_CONTAINER, ENTRY_COUNTED, ENTRY_EDGE, count_entry, count_entry_by_fallback, is_entry,
)
from sluice.router.table.table cimport taps_reachable
from sluice.router.table.arriving_copy cimport ArrivingCopy, begin_arriving_copy
from sluice.router.table.tap cimport TAP_UNITS, Tap, is_required
from sluice.router.table.size_limits cimport consumers_for, exceeds_some, octets_to_consumer

from sluice.router.addressing import address as addresses
from sluice.router.amqp import codec
from sluice.router.amqp.errors import DECODE_ERROR, INVALID_FIELD, MESSAGE_SIZE_EXCEEDED


cdef bytes rejection(condition, description):
    return codec.encode_described(D_REJECTED, [codec.encode_error(condition, description)])


cdef bytes NO_ADDRESS = rejection("amqp:precondition-failed", "Routing failure: no address present")
cdef bytes TOO_LARGE = rejection("amqp:resource-limit-exceeded", "message annotations are too large")
cdef bytes TOO_LONG = rejection("amqp:link:message-size-exceeded",
                                f"the message for the router itself has more than {COLLECT_MOST} octets")
cdef bytes SIZE_EXCEEDED = rejection(MESSAGE_SIZE_EXCEEDED, "The message is longer than its receivers accept")
cdef bytes TAPPED_TRANSACTION = rejection(
    "amqp:not-implemented", "a required tap copies the address, and takes no message of a transaction")
cdef bytes TAPPED_EXCHANGE = rejection(
    "amqp:not-implemented", "a required tap copies the address, and its exchange waits for no outcome")
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


cdef inline int deliver_once(ProducerHandler self, ProducerLink link, InDelivery* d, Content* c,
                             ForwardingAddress address, bint targeted) except -1:
    """Deliver a message to its address, without copies for taps."""
    if address.exchange is not None:
        return self.deliver_exchange(link, d, c, address)
    if address.inproc:
        return self.deliver_local(link, d, c, address)
    if forward(address, d, c) == 0:
        return self.deliver_elsewhere(link, d, c, address, targeted)
    if targeted and self.from_fallback:
        count_entry_by_fallback(self.entry)
    else:
        count_entry(self.entry, address.slot)
    return ROUTED


cdef class ProducerHandler(DeliveryHandler):
    """Base of the handlers that route an incoming link's deliveries; subclasses find the address."""

    def __dealloc__(self):
        composed_drop(&self.plain.composed)

    cdef int use_origin(self, ProducerOrigin origin) except -1:
        """Take the facts about the link's connection."""
        self.honour = origin.honour
        self.tenant = origin.tenant
        self.rules = origin.rules
        self.edge = origin.edge
        self.mark = origin.mark
        self.checks = origin.checks
        self.entry = ENTRY_COUNTED | (ENTRY_EDGE if origin.edge else 0) | (ENTRY_CONTAINER if origin.container else 0)
        return 0

    cdef bint streams(self, ProducerLink link, const Content* c) noexcept:
        """Return True for a stream from a router: it goes on as a stream once its leading sections are here."""
        cdef Sections s
        if not self.honour or c.data is NULL:
            return False
        memset(&s, 0, sizeof(Sections))
        return scan(c.data, c.size, False, True, &s) == SCAN_OK and s.stream

    # routing-semantics.md 11.2.
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
        if address.fallback is not None and not (targeted and self.from_fallback) \
                and forward_fallback(address, d, c):
            count_entry(self.entry, address.slot)
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
            count_entry(self.entry, uplink.slot)
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
        count_entry(self.entry, beyond.slot)
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
        """Handle a message that nothing takes: release it, or withhold the producer's credit. inter-router.md 11.6."""
        if targeted and not link.keeps_credit and not address.reachable(not self.from_fallback):
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
            count_entry(self.entry, address.slot)
        return ROUTED

    cdef void count_undeliverable(self, ForwardingAddress address) noexcept:
        """Count a delivery at its address, although nothing takes it."""
        if not self.entry:
            return
        address.slot.ingress += 1
        if self.entry & ENTRY_CONTAINER:
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
        count_entry(self.entry, address.slot)
        totals.to_container += 1
        return ROUTED

    cdef int deliver(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address,
                     bint targeted) except -1:
        """Deliver a message to its address. targeted: the link's target named the address; else the message did."""
        if address.special:
            if address.uplink and self.table.network.edges and self.deliver_edge(d, c):
                return ROUTED
            if address.taps is not None and is_entry(self.entry) and not (targeted and self.from_fallback):
                return self.deliver_tapped(link, d, c, address, targeted)
        return deliver_once(self, link, d, c, address, targeted)

    cdef int deliver_tapped(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address,
                            bint targeted) except -1:
        """Deliver a message to an address with taps, and copy it unless it is refused."""
        if not c.settled and is_required(address.taps, self.tenant):
            return self.deliver_required(link, d, c, address, targeted)
        if deliver_once(self, link, d, c, address, targeted) == WANTS_MORE:
            return WANTS_MORE
        return ROUTED if d.flags & IN_DISCARD else self.copy_for_taps(link, NULL, c, address.taps, address.to)

    cdef int deliver_required(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address,
                              bint targeted) except -1:
        """Deliver a message whose outcome waits for its copies."""
        self.refuse_required(link, d, c, address.taps, address, targeted)
        if d.flags & IN_DISCARD:
            return ROUTED
        if deliver_once(self, link, d, c, address, targeted) == WANTS_MORE:
            return WANTS_MORE
        return ROUTED if d.flags & IN_DISCARD else self.copy_for_taps(link, d, c, address.taps, address.to)

    cdef int refuse_required(self, ProducerLink link, InDelivery* d, const Content* c, tuple taps,
                             ForwardingAddress address, bint targeted) except -1:
        if address is not None and address.exchange is not None:
            link.refuse(d, D_REJECTED, TAPPED_EXCHANGE, True)
        elif state_kind(&c.state) == D_TRANSACTIONAL:
            link.refuse(d, D_REJECTED, TAPPED_TRANSACTION, True)
        elif not taps_reachable(taps):
            if address is None:
                link.refuse(d, D_RELEASED, None, True)
            else:
                self.no_destination(link, d, address, targeted)
        return 0

    cdef int copy_for_taps(self, ProducerLink link, InDelivery* d, const Content* c, tuple taps, bytes to) except -1:
        """Make the copies of a message that was sent to address `to`. d: waits for those of required taps; or NULL."""
        cdef Tap tap
        cdef uint64_t copied
        cdef uint64_t now = link.session.connection.scheduler.now_ns
        if d is not NULL:
            # A consumer may have got its copy settled. That outcome waits like the others.
            d.flags = (d.flags | IN_MULTI) & ~IN_FINAL
        for tap in taps:
            if not tap.serves(self.tenant):
                continue
            copied = tap.copied
            if not c.complete:
                self.begin_copy(link, tap, d, c, to)
            elif tap.required and d is not NULL:
                tap.require(d, to, c, link.number, now, link.whole_meter())
            else:
                tap.copy(to, c, link.number, now)
            charge(link.session.connection.scheduler, TAP_UNITS + <uint32_t>(tap.copied - copied))
        return ROUTED

    cdef int copy_carried(self, ProducerLink link, const Transfer* t, const Plan* plan) except -1:
        cdef Content c
        memset(&c, 0, sizeof(Content))
        c.data = t.payload.data
        c.size = t.payload.size
        c.complete = c.whole = True
        c.format = t.message_format
        scan(c.data, c.size, False, self.honour, &c.sections)
        return self.copy_for_taps(
            link, NULL, &c, (<ForwardingAddress>plan.address).taps, (<ForwardingAddress>plan.address).to)

    cdef int begin_copy(self, ProducerLink link, Tap tap, InDelivery* d, const Content* c, bytes to) except -1:
        """Begin the copy of a message that still arrives."""
        cdef ArrivingCopy copy = begin_arriving_copy(tap, link, link.number, d if tap.required else NULL, to, c)
        if copy is not None:
            if self.arriving is None:
                self.arriving = []
            self.arriving.append(copy)
            link.tapped = True
        return 0

    cdef int copy_frame(self, ProducerLink link, const Transfer* t) except -1:
        cdef ArrivingCopy copy
        cdef uint64_t copied
        cdef list copies = self.arriving
        if not t.more:
            link.tapped = False
            self.arriving = None
        for copy in copies:
            copied = copy.tap.copied
            copy.append(t.payload.data, t.payload.size, not t.more)
            charge(link.session.connection.scheduler, TAP_UNITS + <uint32_t>(copy.tap.copied - copied))
        return 0

    cdef int abort_copies(self) except -1:
        cdef ArrivingCopy copy
        cdef list copies = self.arriving
        self.arriving = None
        for copy in copies:
            copy.abort()
        return 0

    cdef int cache_prefix(self, const Content* c) except -1:
        """Cache the prefix of one in PREFIX_CACHE_EVERY messages.

        Called for a message whose prefix is not cached, and in which a scan without properties found annotations.
        """
        if self.others % PREFIX_CACHE_EVERY == 0:
            self.cached_prefixes = keep_prefix(self.cached_prefixes, c.data, c.size, &c.sections)
        self.others += 1
        return 0

    cdef int refuse_unaddressed(self, ProducerLink link, InDelivery* d) except -1:
        """Reject a message without an address."""
        link.refuse(d, D_REJECTED, NO_ADDRESS, False)
        return ROUTED
