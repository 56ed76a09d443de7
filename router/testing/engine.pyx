"""What tests need of the engine that only compiled code can reach: counts of what is alive, faults, and the
invariants of links and ports."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.block cimport blocks
from router.amqp.buffer cimport buffers_drop
from router.amqp.codec cimport Slice
from router.amqp.scheduler cimport Scheduler
from router.amqp.frames cimport Transfer
from router.amqp.id_map cimport IdMap, map_free, map_get, map_put, map_take, map_take_known
from router.delivery.delivery cimport (
    IN_COMPLETE, IN_CREDITED, IN_PRESETTLED, OUT_ABORT, OUT_CHECK, OUT_DROPPABLE, OUT_QUEUED, OUT_REPORT, OUT_RESTS,
    OUT_SETTLED, OUT_STARTED, DeliveryNode, InDelivery, OutDelivery, live_in, live_out, pools_drop,
)
from router.links.producer_link cimport DeliveryHandler, ProducerLink
from router.forwarding.forward cimport use_spread as set_spread
from router.forwarding.producer_handler cimport use_short_way
from router.links.settlement cimport use_runs
from router.message.content cimport Content, chunks_drop, linearised_octets, stored_octets
from router.links.consumer_link cimport ConsumerLink, use_short_copies
from router.linkroute.routed_link cimport RoutedLink
from router.amqp.session cimport Session
from router.interworker.link_table cimport LinkTable
from router.interworker.port cimport WorkerPort
from router.interworker.port_in cimport use_short_records
from router.interworker.port_out cimport PortOut


def alive():
    """(incoming deliveries, outgoing deliveries, octets of stored messages) of this process."""
    return live_in(), live_out(), stored_octets()


def linearised():
    """Octets of messages that were copied so that their sections are contiguous."""
    return linearised_octets()


def held(ProducerLink link not None):
    """Octets of messages that came by a link, as its meters count them."""
    return link.octets_held()


def give_up_unrouted(ProducerLink link not None):
    """Release the unfinished message of a link, as at the bound of memory on a link of another router."""
    link.give_up_unrouted()


def kept_blocks():
    """Octets of the large blocks that are kept for the next frame."""
    return blocks.octets


def drop_pools():
    """Nothing is kept for later: what is needed next is allocated."""
    buffers_drop()
    while not (pools_drop() and chunks_drop()):
        pass


cdef class TestMap:
    """IdMap for property tests: keys to non-zero integers."""
    cdef IdMap map

    def __dealloc__(self):
        map_free(&self.map)

    def put(self, uint64_t key, size_t value):
        """False: the key is in use."""
        return bool(map_put(&self.map, key, <void*>value))

    def get(self, uint64_t key):
        return <size_t>map_get(&self.map, key)

    def take(self, uint64_t key):
        return <size_t>map_take(&self.map, key)

    def take_known(self, uint64_t first, uint32_t n):
        map_take_known(&self.map, first, n)

    def slots(self):
        return self.map.size


def use_short_ways(on):
    """Whether deliveries take the short ways where they can, or the general ways only."""
    use_runs(on)
    use_short_way(on)
    use_short_copies(on)
    use_short_records(on)


def use_spread(int least=0):
    """From so many consumers on multicast copies are spread over turns; 0: the usual number."""
    set_spread(least)


# -- faults -----------------------------------------------------------------------------------------------------------

class InjectedError(Exception):
    """The fault of a test."""


cdef class CountingHandler(DeliveryHandler):
    """Handler that counts how often a link tries to route a delivery, and passes all calls on to the link's own."""
    cdef DeliveryHandler own
    cdef readonly uint64_t routes
    cdef readonly uint64_t looks           # for streams

    def __cinit__(self, ProducerLink link not None):
        self.own = link.deliveries
        link.deliveries = self

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        self.routes += 1
        return self.own.route(link, d, c)

    cdef bint streams(self, ProducerLink link, const Content* c) noexcept:
        self.looks += 1
        return self.own.streams(link, c)

    cdef bint passes(self, ProducerLink link, const Transfer* t) except -1:
        return self.own.passes(link, t)


cdef class FaultyIn(ProducerLink):
    """A link that raises once while `fails`: when its consumers say something; `run_fails`: of a run of deliveries."""
    cdef public bint fails
    cdef public bint run_fails

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        if self.fails:
            self.fails = False
            raise InjectedError("outcome")
        return ProducerLink.outcome(self, d, kind, state, settled)

    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1:
        if self.run_fails:
            self.run_fails = False
            raise InjectedError("settled")
        return False if self.fails else ProducerLink.settled(self, run, n, kind, state)

    cdef int returned(self, InDelivery* d) except -1:
        if self.fails:
            self.fails = False
            raise InjectedError("returned")
        return ProducerLink.returned(self, d)


cdef class FaultyOut(ConsumerLink):
    """A link that raises once where `fails` says: "offer", "offered", "more" or "update"."""
    cdef public str fails

    cdef int fail(self, where) except -1:
        if self.fails == where:
            self.fails = None
            raise InjectedError(where)
        return 0

    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1:
        self.fail("offer")
        ConsumerLink.offer(self, d, c, overflow)
        return self.fail("offered")

    cdef int more(self, OutDelivery* o) except -1:
        self.fail("more")
        return ConsumerLink.more(self, o)

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        self.fail("update")
        return ConsumerLink.producer_update(self, o, kind, state, settled)


# -- links and ports --------------------------------------------------------------------------------------------------

def starve(Scheduler scheduler not None, link):
    """Let the next wake ask the link."""
    scheduler.starved.append(link)


def post(WorkerPort port not None, bytes octets not None):
    """Write a record, now or when there is room."""
    port.outbox.post(octets, len(octets), NULL, 0)


def linked_slots(LinkTable table not None):
    """Slots in which the table has a link, dead or alive."""
    return [slot for slot in range(table.places.size) if table.places.by_slot[slot].link is not NULL]


def set_delivery_ids(Session session not None, uint32_t sent, uint32_t received):
    """Set the delivery-ids that are due next on the session, of outgoing and of incoming deliveries."""
    session.next_delivery_id = sent
    session.expected_delivery_id = received


def hold_ring(WorkerPort port not None, bint held):
    """Let the port read nothing, or read again what came meanwhile."""
    port.closed = held
    port.work.rung |= port.bit


def streams(WorkerPort port not None):
    """How many messages the port is receiving as streams."""
    return len(port.incoming.inflows)


# -- invariants -------------------------------------------------------------------------------------------------------

cdef object incoming(DeliveryNode* party):
    """What is wrong with the deliveries that came from here when all is quiet, or None."""
    cdef InDelivery* d = party.in_first
    cdef OutDelivery* o
    cdef uint32_t n = 0, live
    while d is not NULL:
        n += 1
        if d.upstream is not party:
            return f"delivery {d.key} is in the list of another upstream"
        live = 0
        o = d.copies
        if o is not NULL and o.sibling_before is not NULL:
            return f"the first copy of delivery {d.key} has one before it"
        while o is not NULL:
            live += 1
            if o.source is not d:
                return f"a copy of delivery {d.key} does not know it"
            if o.sibling is not NULL and o.sibling.sibling_before is not o:
                return f"copies of delivery {d.key} are not linked both ways"
            o = o.sibling
        if live != d.live or d.pending > live:
            return f"delivery {d.key} has {live} copies, counts {d.live} and {d.pending} without an outcome"
        if d.flags & IN_COMPLETE and live == 0:
            return f"delivery {d.key} (flags {d.flags}, state {d.kind}) is complete, has no copies, and has not ended"
        d = d.next
    if n != party.in_count:
        return f"{n} deliveries in the list, {party.in_count} counted"
    return None


cdef object copies(DeliveryNode* party, uint32_t* queued, uint32_t* sent, uint32_t* open_streams):
    """Counts what is on its way to here; what is wrong with it, or None."""
    cdef OutDelivery* o = party.queue_first
    queued[0] = sent[0] = open_streams[0] = 0
    while o is not NULL:
        queued[0] += 1
        if o.downstream is not party or not o.flags & OUT_QUEUED:
            return "a queued copy is not marked so"
        if not o.message.complete and not o.flags & OUT_ABORT:
            open_streams[0] += 1
        if o.next is NULL and party.queue_last is not o:
            return "the queue's end is not its last copy"
        o = o.next
    o = party.sent_first
    while o is not NULL:
        sent[0] += 1
        if o.downstream is not party or o.flags & OUT_QUEUED:
            return "a sent copy is marked as queued"
        o = o.next
    return None


def check_incoming(ProducerLink link not None):
    """Raises AssertionError when something in a producer's link does not fit. To be called when all is quiet."""
    cdef Session session = link.session
    cdef InDelivery* d = link.node.in_first
    cdef uint32_t credited = 0
    while d is not NULL:
        credited += (d.flags & IN_CREDITED) != 0
        d = d.next
    d = link.node.in_first
    wrong = incoming(&link.node)
    if wrong is None and link.occupied != link.node.in_count - credited + link.withheld:
        wrong = f"{link.occupied} places occupied by {link.node.in_count} deliveries and {link.withheld} withheld"
    if wrong is None and link.slot.unsettled != link.node.in_count:
        wrong = f"{link.node.in_count} deliveries, the gauge says {link.slot.unsettled}"
    while wrong is None and d is not NULL:
        if not d.flags & IN_PRESETTLED and map_get(&session.received, d.key) != <void*>d:
            wrong = f"unsettled delivery {d.key} is not in its session's map"
        d = d.next
    assert wrong is None, f"incoming link {link.name}: {wrong}"


cdef object droppable(ConsumerLink link):
    """What is wrong with the link's list of copies that may be dropped, or None."""
    cdef OutDelivery* o = link.oldest
    cdef OutDelivery* before = NULL
    cdef uint32_t listed = 0, marked = 0
    while o is not NULL:
        listed += 1
        if o.older is not before or not o.flags & OUT_DROPPABLE:
            return "copies that may be dropped are not linked both ways, or not marked so"
        before = o
        o = o.newer
    if link.newest is not before:
        return "the newest copy that may be dropped is not the last one"
    o = link.node.queue_first
    while o is not NULL:
        presettled = o.flags & OUT_SETTLED and not o.flags & (OUT_STARTED | OUT_ABORT) \
            and (not o.flags & OUT_REPORT or o.flags & OUT_CHECK)
        if o.flags & OUT_DROPPABLE:
            marked += 1
            if not presettled:
                return f"a copy with flags {o.flags} may be dropped"
        elif presettled and o.message.complete:
            return "a whole presettled copy may not be dropped"
        o = o.next
    return None if listed == marked else f"{listed} copies may be dropped, {marked} of them are queued"


def check_outgoing(ConsumerLink link not None):
    """The same for a consumer's link."""
    cdef uint32_t queued = 0, sent = 0, open_streams = 0
    wrong = copies(&link.node, &queued, &sent, &open_streams)
    if wrong is None:
        wrong = droppable(link)
    if wrong is None:
        held = (queued, sent, open_streams)
        told = (link.slot.undelivered, link.slot.unsettled, link.slot.busy)
        if held != told:
            wrong = f"queued, unsettled, unfinished are {held}, the gauges say {told}"
    assert wrong is None, f"outgoing link {link.name}: {wrong}"


def check_routed(RoutedLink link not None):
    """The same for one end of a routed link."""
    cdef uint32_t queued = 0, sent = 0, open_streams = 0
    cdef InDelivery* d = link.node.in_first
    wrong = copies(&link.node, &queued, &sent, &open_streams)
    if wrong is None and not link.incoming and (queued, sent) != (link.slot.undelivered, link.slot.unsettled):
        wrong = f"queued, unsettled are {(queued, sent)}, the gauges say {(link.slot.undelivered, link.slot.unsettled)}"
    if wrong is None and link.incoming and link.node.in_count != link.slot.unsettled:
        wrong = f"{link.node.in_count} deliveries, the gauge says {link.slot.unsettled}"
    while wrong is None and d is not NULL:
        if not d.flags & IN_PRESETTLED and map_get(&link.session.received, d.key) != <void*>d:
            wrong = f"unsettled delivery {d.key} is not in its session's map"
        d = d.next
    if wrong is None and link.local_end is not None and link.local_end.local_end is not link:
        wrong = "the other end has another partner"
    assert wrong is None, f"routed link {link.name}: {wrong}"


cdef object resting(PortOut port):
    """What is wrong with the deliveries of a port that wait for octets or for their window, or with its counts."""
    cdef uint32_t unbegun = 0
    cdef uint64_t charged = 0
    cdef OutDelivery* o = port.node.queue_first
    while o is not NULL:
        unbegun += o.prefix is not NULL
        charged += o.charge
        if o.flags & OUT_RESTS:
            return "a copy that may go on is marked as resting"
        o = o.next
    if unbegun != port.unbegun:
        return f"{unbegun} copies are not begun, {port.unbegun} are counted"
    o = port.resting.queue_first
    while o is not NULL:
        charged += o.charge
        if o.downstream is not &port.node or not o.flags & OUT_RESTS or not o.flags & OUT_QUEUED:
            return "a copy that rests is not marked so"
        o = o.next
    if charged == port.node.own_octets:
        return None
    return f"{charged} octets of the router's own, {port.node.own_octets} counted"


def check_port(WorkerPort port not None):
    """The same for what crosses to or from another worker."""
    cdef uint32_t queued = 0, sent = 0, open_streams = 0
    cdef InDelivery* d = port.incoming.node.in_first
    cdef uint32_t n = 0
    wrong = incoming(&port.incoming.node) or copies(&port.outgoing.node, &queued, &sent, &open_streams)
    while wrong is None and d is not NULL:
        n += 1
        if map_get(&port.incoming.received, d.key) != <void*>d:
            wrong = f"delivery {d.key} is not in the map"
        d = d.next
    if wrong is None and n != port.incoming.received.used:
        wrong = f"{n} deliveries, {port.incoming.received.used} in the map"
    wrong = wrong or resting(port.outgoing)
    if wrong is None and queued > port.outgoing.sent.used:
        wrong = f"{queued} copies queued, {port.outgoing.sent.used} in the map"
    assert wrong is None, f"port of worker {port.worker} to {port.peer}: {wrong}"
