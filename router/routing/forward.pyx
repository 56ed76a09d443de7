"""Forwarders: which consumers of an address get a delivery (routing semantics, 8.2 to 8.4).

Consumers of all workers are alike: a score reads the gauges of a consumer's slot in shared memory, wherever it is.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t
from libc.string cimport memset

from router.amqp.codec cimport Slice
from router.amqp.counters cimport totals
from router.amqp.delivery cimport IN_MULTI
from router.routing.port cimport WorkerPort
from router.routing.table cimport CLOSEST, MULTICAST, UNAVAILABLE, Consumer, Exchange

cdef enum:
    # An unfinished stream occupies its link: others are preferred as if the queue were longer by this.
    BUSY_SCORE = 1 << 24
    # Targets of one record: a record must fit into a quarter of a ring.
    TARGETS_A_RECORD = 4096
    FALLBACK_PHASE = 22        # 'F' - '0': how Dispatch marks what it redirected


cdef inline uint32_t score(Consumer c) noexcept:
    """Deliveries queued for a consumer, and sent to it and unsettled; those on their way through a ring included."""
    cdef uint32_t outstanding
    if c.slot.generation != c.generation:
        return 0xFFFFFFFF
    outstanding = c.slot.undelivered + c.slot.unsettled
    if c.taken is not NULL:
        outstanding += c.sent - c.taken[0]
    if c.slot.busy:
        outstanding += BUSY_SCORE
    return outstanding


cdef inline int give(Address address, Consumer consumer, InDelivery* d, Content* c) except -1:
    if consumer.container:
        address.slot.egress_container += 1
        totals.egress_container += 1
    if consumer.link is not None:
        return consumer.link.offer(d, c, address.overflow)
    consumer.sent += 1
    consumer.port.add_target(consumer.slot_index, consumer.generation)
    return consumer.port.offer(d, c, address.overflow)


cdef int forward(Address address, InDelivery* d, Content* c) except -1:
    cdef int copies
    cdef int n = len(address.consumers)
    if n == 0:
        return 0
    if n == 1 and address.treatment <= CLOSEST:
        give(address, <Consumer>address.consumers[0], d, c)
        copies = 1
    elif address.treatment == MULTICAST:
        copies = forward_multicast(address, d, c, n)
    elif address.treatment == CLOSEST:
        copies = forward_closest(address, d, c, n)
    elif address.treatment == UNAVAILABLE:
        return 0
    else:
        copies = forward_balanced(address, d, c, n)
    address.slot.egress += copies
    totals.egress += copies
    return copies


cdef int forward_exchange(Address address, InDelivery* d, Content* c) except -1:
    """To an exchange: direct consumers as usual, next hops of matching bindings presettled, the alternate when there is
    nobody. Returns the number of copies.
    """
    cdef Address hop
    cdef int copies
    cdef list hops
    cdef bint settled = c.settled
    cdef Exchange exchange = address.exchange
    exchange.slot.ingress += 1
    copies = forward(address, d, c)
    c.settled = True
    # Ingress and trace begin anew at this router.
    memset(&c.sections.ingress, 0, sizeof(Slice))
    memset(&c.sections.trace, 0, sizeof(Slice))
    if c.sections.subject.data is not NULL:
        hops = exchange.hops(PyBytes_FromStringAndSize(<const char*>c.sections.subject.data, c.sections.subject.size))
        for hop in hops:
            copies += forward_hop(hop, hop.phase, d, c)
    if copies == 0 and exchange.alternate is not None:
        copies = forward_hop(exchange.alternate, exchange.alternate.phase, d, c)
        if copies:
            exchange.slot.redirected += 1
    if copies:
        exchange.slot.egress += 1
    c.settled = settled
    return copies


cdef int forward_hop(Address hop, int phase, InDelivery* d, Content* c) except -1:
    """To another address than the one that the message was sent to."""
    c.to.data = hop.to
    c.to.size = len(hop.to)
    c.phase = phase
    return forward(hop, d, c)


cdef int forward_fallback(Address address, InDelivery* d, Content* c) except -1:
    """To those who stand in for the consumers of an address."""
    cdef int copies = forward_hop(address.fallback, FALLBACK_PHASE, d, c)
    if copies:
        address.slot.redirected += 1
        totals.redirected += 1
    return copies


cdef int forward_balanced(Address address, InDelivery* d, Content* c, int n) except -1:
    """The lowest score, the earlier one when equal; an idle first choice turns the list. Capacity is a preference."""
    cdef Consumer consumer
    cdef Consumer best = None
    cdef uint32_t value, best_value = 0
    cdef bint eligible, best_eligible = False
    cdef int at = address.start
    for _ in range(n):
        consumer = <Consumer>address.consumers[at]
        at = at + 1 if at + 1 < n else 0
        value = score(consumer)
        eligible = value < consumer.capacity
        if best is None or (eligible and not best_eligible) or (eligible == best_eligible and value < best_value):
            best = consumer
            best_value = value
            best_eligible = eligible
            if value == 0:
                break
    if best_value == 0:
        address.start = address.start + 1 if address.start + 1 < n else 0
    give(address, best, d, c)
    return 1


cdef int forward_closest(Address address, InDelivery* d, Content* c, int n) except -1:
    """Strict round robin over the consumers of this router."""
    cdef Consumer consumer = <Consumer>address.consumers[address.start]
    address.start = address.start + 1 if address.start + 1 < n else 0
    give(address, consumer, d, c)
    return 1


cdef int forward_multicast(Address address, InDelivery* d, Content* c, int n) except -1:
    """One copy to each: other workers get one record for all their consumers."""
    cdef Consumer consumer
    cdef WorkerPort port
    cdef list ports = None
    d.flags |= IN_MULTI
    for consumer in address.consumers:
        if consumer.link is not None:
            consumer.link.offer(d, c, address.overflow)
            continue
        consumer.sent += 1
        port = consumer.port
        port.add_target(consumer.slot_index, consumer.generation)
        if port.target_count == 1:
            if ports is None:
                ports = []
            ports.append(port)
        elif port.target_count == TARGETS_A_RECORD:
            port.offer(d, c, address.overflow)
            ports.remove(port)
    if ports is not None:
        for port in ports:
            port.offer(d, c, address.overflow)
    return n
