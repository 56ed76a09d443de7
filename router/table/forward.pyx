"""Forwarders: a copy of a delivery for each consumer that gets one (routing-semantics.md 8.2 to 8.4).

One consumer of a balanced or closest address gets the delivery (chooser.pxd); each consumer of a multicast address
gets a copy.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memset

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.items cimport item_at, items_in
from sluice.router.amqp.scheduler cimport charge, slice_used
from sluice.router.delivery.delivery cimport IN_MULTI
from sluice.router.table.choice cimport Choice
from sluice.router.table.consumer cimport Consumer
from sluice.router.table.chooser cimport choice_used, choose, count_choice, priority_at, returns_to_edge
from sluice.router.table.network cimport HERE, Network, Path, nearest_destination
from sluice.router.ring.port cimport WorkerPort
from sluice.router.ring.port_out cimport PortOut
from sluice.router.links.consumer_link cimport ConsumerLink, leaves_unchanged, offer_copy
from sluice.router.stats.counters cimport totals
from sluice.router.table.size_limits cimport consumers_for, exceeds_some, octets_to_consumer
from sluice.router.table.table cimport MULTICAST, Exchange

cdef enum:
    # Targets of one record: the worker that reads it handles them all in one slice.
    TARGETS_A_RECORD = 2048
    # From this many consumers on, multicast copies for consumers of this worker go through its ring to itself, like
    # those of other workers: one delivery for all of them may be the work of many slices.
    SPREAD_LEAST = 2048
    FALLBACK_PHASE = 22        # 'F' - '0': Dispatch's mark of a redirected message
    COPY_UNITS = 3             # cost units of one copy of a multicast delivery (router/amqp/scheduler.pxd)
    TARGETS_A_UNIT = 4         # targets named in a record for one cost unit


cdef Py_ssize_t spread_least = SPREAD_LEAST


cdef void use_spread(Py_ssize_t least) noexcept:
    global spread_least
    spread_least = least if least > 0 else SPREAD_LEAST


cdef inline int offer_to_consumer(Consumer consumer, InDelivery* d, Content* c, int overflow) except -1:
    """Make the copy for one consumer, of this or another worker."""
    if consumer.link is not None:
        return consumer.link.offer(d, c, overflow)
    consumer.port.outgoing.add_target(consumer.slot_index, consumer.generation)
    consumer.port.outgoing.offer(d, c, overflow)
    consumer.sent += 1
    return 0


cdef int forward(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    if exceeds_some(address, c):
        return forward_limited(address, d, c)
    return forward_all(address, d, c)


cdef int forward_limited(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Forward a delivery to the consumers that take a message of its length."""
    cdef list consumers = address.consumers
    cdef list fitting = consumers_for(address, octets_to_consumer(c))
    cdef int start = address.start
    if len(fitting) == len(consumers):
        return forward_all(address, d, c)
    address.consumers = fitting
    address.start = address.fitting_start
    try:
        return forward_all(address, d, c)
    finally:
        address.fitting_start = address.start
        address.consumers = consumers
        address.start = start


# routing-semantics.md F-7; inter-router-protocol.md 6.4.
cdef int forward_all(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Forward a delivery by the treatment of the address, whatever the length of the message."""
    cdef Choice choice
    if address.remotes is not None and address.version != address.network.version:
        address.make_paths()
    if address.treatment == MULTICAST:
        return forward_multicast(address, d, c)
    choose(address, c.came_by, c.producer, c.sections.priority, &c.sections.ingress, &choice)
    if choice.consumer is NULL:
        return 0
    choice_used(<void*>address, &choice)
    c.outstanding = choice.outstanding
    offer_to_consumer(<Consumer>choice.consumer, d, c, overflow_of(address, c))
    c.outstanding = NULL
    count_choice(address.slot, &choice)
    return 1


cdef int forward_exchange(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Forward to consumers of the exchange's own address as usual, and presettled to next hops of matching bindings.

    If none of them gets a copy, forward presettled to the alternate address. Returns the number of copies.
    """
    cdef ForwardingAddress hop
    cdef int copies
    cdef list hops
    cdef bint settled = c.settled
    cdef Exchange exchange = address.exchange
    exchange.slot.ingress += 1
    copies = forward(address, d, c)
    c.settled = True
    # Ingress and trace annotations start afresh at this router.
    memset(&c.sections.ingress, 0, sizeof(Slice))
    memset(&c.sections.trace, 0, sizeof(Slice))
    c.honour = False
    c.came_by = 0
    c.checkpoint = False
    if c.sections.subject.data is not NULL:
        hops = exchange.hops(PyBytes_FromStringAndSize(<const char*>c.sections.subject.data, c.sections.subject.size))
        for hop in hops:
            copies += forward_as(hop, hop.phase, d, c)
    if copies == 0 and exchange.alternate is not None:
        copies = forward_as(exchange.alternate, exchange.alternate.phase, d, c)
        if copies:
            exchange.slot.redirected += 1
    if copies:
        exchange.slot.egress += 1
    c.settled = settled
    return copies


cdef int forward_as(ForwardingAddress hop, int phase, InDelivery* d, Content* c) except -1:
    """Forward a delivery to another address than the one it was sent to."""
    c.to.data = hop.to
    c.to.size = len(hop.to)
    c.phase = phase
    return forward(hop, d, c)


cdef int forward_fallback(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    cdef int copies = forward_as(address.fallback, FALLBACK_PHASE, d, c)
    if copies:
        address.slot.redirected += 1
        totals.redirected += 1
    return copies


cdef int forward_multicast(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Make one copy for each consumer, and one for each next hop that leads to other routers with consumers.

    Each other worker gets one record for all its consumers. Returns the number of copies.
    """
    cdef int copies = -1
    # Not `except`: that would save the interpreter's state for each delivery.
    try:
        copies = offer_to_all(address, d, c)
    finally:
        if copies < 0:
            forget_targets(address, c)
    return copies


cdef int forget_targets(ForwardingAddress address, Content* c) except -1:
    """Drop the targets of a delivery whose copies could not all be made: the next delivery must not get them."""
    cdef Consumer consumer
    for consumer in [*address.consumers, *multicast_links(address, c), *uplink_of(address)]:
        if consumer.port is not None:
            consumer.port.outgoing.target_count = 0
    if address.spreads:
        address.network.own_port.outgoing.target_count = 0
    return 0


cdef PortOut spread_port(ForwardingAddress address):
    """Return the port to this worker, if copies for local consumers go through its ring; None: they get them directly.

    The ring is used for very many consumers, or when the current frame has made a slice's worth of copies for other
    addresses of its exchange. Once there are fewer consumers, the ring is used until it is empty, to keep the order.
    """
    cdef WorkerPort port = address.network.own_port
    cdef bint many
    if port is None or not port.alive:
        return None
    many = items_in(<void*>address.consumers) >= spread_least or slice_used(port.scheduler)
    if not many and not address.spreads:
        return None
    address.spreads = many or port.outgoing.waiting() or port.unread()
    return port.outgoing if address.spreads else None


cdef int offer_to_all(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Make the copies of a multicast delivery; see `forward_multicast`."""
    cdef Consumer consumer
    cdef PortOut port
    cdef list ports = None
    cdef PortOut own = spread_port(address)
    cdef void* consumers = <void*>address.consumers
    cdef void* at
    cdef Py_ssize_t i = 0
    cdef void* here = NULL                 # a ConsumerLink of this worker
    cdef int overflow = overflow_of(address, c)
    cdef bint unchanged = leaves_unchanged(c)
    cdef int copies = 0
    cdef int remote = 0
    d.flags |= IN_MULTI
    if address.served is not None and c.came_by == 0:
        # The copy for the uplink names the edge routers that have their copies from here: they drop it.
        c.served.data = address.served
        c.served.size = len(address.served)
    while i < items_in(consumers):
        at = item_at(consumers, i)         # borrowed: the list keeps it, and changes only between deliveries
        i += 1
        if returns_to_edge(at, c.came_by):
            continue
        copies += 1
        if (<Consumer>at).link is None:
            ports = add_target(address, <Consumer>at, (<Consumer>at).port.outgoing, d, c, ports)
        elif own is None:
            here = <void*>(<Consumer>at).link
            offer_copy(here, d, c, overflow, unchanged)
        else:
            ports = add_target(address, <Consumer>at, own, d, c, ports)
    if here is not NULL:
        charge((<ConsumerLink>here).session.connection.scheduler, COPY_UNITS * copies)
    elif own is not None:
        charge(address.network.own_port.scheduler, copies // TARGETS_A_UNIT)
    if c.anonymous and not uses_uplink(address, c):
        # No link asks the interior router for consumers of this address, so the interior router always gets a copy.
        for consumer in uplink_of(address):
            copies += 1
            ports = offer_far(address, consumer, d, c, overflow, ports)
    if address.remotes is not None:
        for consumer in multicast_links(address, c):
            remote += 1
            ports = offer_far(address, consumer, d, c, overflow, ports)
        address.slot.transit += remote
        totals.transit += remote
    if ports is not None:
        for port in ports:
            port.offer(d, c, overflow)
    if c.served.data is not NULL:
        c.served.data = NULL               # marks depend on the address: a binding or fallback has its own
        c.served.size = 0
    if not copies and not remote:
        d.flags &= ~IN_MULTI
    address.slot.egress += copies
    totals.egress += copies
    return copies + remote


cdef list offer_far(ForwardingAddress address, Consumer consumer, InDelivery* d, Content* c, int overflow, list ports):
    """Make a multicast copy for a consumer beyond this router; return the list of ports that have targets."""
    if consumer.link is None:
        return add_target(address, consumer, consumer.port.outgoing, d, c, ports)
    consumer.link.offer(d, c, overflow)
    return ports


cdef bint uses_uplink(ForwardingAddress address, const Content* c) except *:
    """True if a consumer that gets a copy is behind the uplink of this edge router."""
    cdef Consumer consumer
    for consumer in address.consumers:
        if consumer.edge != 0 and consumer.peer is None and not returns_to_edge(<void*>consumer, c.came_by):
            return True
    return False


cdef list uplink_of(ForwardingAddress address):
    """Return the uplink of an edge router as a list of consumers, for messages to any address."""
    cdef ForwardingAddress uplink = address.network.uplink
    return [] if uplink is None or uplink is address or address.confined else uplink.consumers


cdef list add_target(ForwardingAddress address, Consumer consumer, PortOut port, InDelivery* d, Content* c, list ports):
    """Add a consumer to the record for its worker; return the list of ports that have targets."""
    consumer.sent += 1
    port.add_target(consumer.slot_index, consumer.generation)
    if port.target_count == 1:
        if ports is None:
            ports = []
        ports.append(port)
    elif port.target_count == TARGETS_A_RECORD:
        port.offer(d, c, overflow_of(address, c))
        ports.remove(port)
    return ports


cdef list multicast_links(ForwardingAddress address, Content* c):
    """Return the data links by which a multicast message goes on to other routers (inter-router.md 11.3).

    Each router is to get the message once, whatever the topology. So it goes to those routers for which this router is
    on the path from the message's ingress router. The paths from there are a tree: every router has one predecessor.
    1.19 does not look at this. A message that came back to its ingress router, or whose ingress router is unknown,
    goes nowhere.
    """
    cdef Network network = address.network
    cdef Path way
    cdef void* link
    cdef list links = []
    cdef int origin = network.origin_of(&c.sections.ingress)
    cdef int priority = priority_at(address, c.sections.priority)
    if address.remotes is None or (c.sections.ingress.data is not NULL and origin <= HERE):
        return links
    for way in address.ways:
        if nearest_destination(<void*>way, origin) is NULL or way.goes_back(network, c):
            continue
        link = way.pick(priority, c.producer)
        if link is not NULL:
            links.append(<Consumer>link)
    return links
