"""Access of tests to the compiled engine: counts of live objects, fault injection, and invariants of links and ports.
"""
import gc

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from sluice.router.amqp.block cimport blocks
from sluice.router.amqp.buffer cimport buffer_used, buffers_drop
from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.scheduler cimport Scheduler
from sluice.router.amqp.frames cimport Transfer
from sluice.router.amqp.id_map cimport IdMap, map_free, map_get, map_put, map_take, map_take_known
from sluice.router.delivery.delivery cimport (
    IN_COMPLETE, IN_CREDITED, IN_PRESETTLED, OUT_ABORT, OUT_CHECK, OUT_DROPPABLE, OUT_QUEUED, OUT_REPORT, OUT_RESTING,
    OUT_SETTLED, OUT_STARTED, DeliveryNode, InDelivery, OutDelivery, live_in, live_out, pools_drop,
)
from sluice.router.delivery.plan cimport EACH_CONSUMER, Leg, Plan
from sluice.router.links.granting_link cimport producers_made
from sluice.router.links.producer_link cimport DeliveryHandler, ProducerLink, use_fast_path
from sluice.router.table.choice cimport Choice
from sluice.router.table.consumer cimport Consumer
from sluice.router.table.forward cimport use_spread as set_spread
from sluice.router.table.table cimport ForwardingAddress, Table
from sluice.router.links.settlement cimport use_runs
from sluice.router.message.content cimport Content, chunks_drop, linearised_octets, stored_octets
from sluice.router.links.consumer_link cimport ConsumerLink
from sluice.router.routed.routed_link cimport RoutedLink
from sluice.router.amqp.object_table cimport ObjectTable, number_get
from sluice.router.amqp.session cimport Session
from sluice.router.ring.link_table cimport LinkTable
from sluice.router.ring.port cimport WorkerPort
from sluice.router.ring.port_out cimport PortOut


def live_objects():
    """Return the numbers of incoming deliveries, outgoing deliveries and octets of stored messages in this process."""
    return live_in(), live_out(), stored_octets()


def linearised():
    """Return the octets of messages that were copied to make their sections contiguous."""
    return linearised_octets()


def held(ProducerLink link not None):
    """Return the octets held of a link's incoming messages, as its meters count them."""
    return link.octets_held()


def release_unrouted(ProducerLink link not None):
    """Release the incomplete message of a link, as a link from another router does at the memory bound."""
    link.release_unrouted()


def cached_block_octets():
    """Return the octets of the large blocks that are cached for the next frames."""
    return blocks.octets


def drop_pools():
    """Free all cached memory, so that further needs are allocated."""
    buffers_drop()
    while not (pools_drop() and chunks_drop()):
        pass


cdef class TestMap:
    """IdMap for property tests; maps keys to non-zero integers."""
    cdef IdMap map

    def __dealloc__(self):
        map_free(&self.map)

    def put(self, uint64_t key, size_t value):
        """Insert a value. Return False if the key is in use."""
        return bool(map_put(&self.map, key, <void*>value))

    def get(self, uint64_t key):
        return <size_t>map_get(&self.map, key)

    def take(self, uint64_t key):
        return <size_t>map_take(&self.map, key)

    def take_known(self, uint64_t first, uint32_t n):
        map_take_known(&self.map, first, n)

    def slots(self):
        return self.map.size


cdef class ObjectTableView(ObjectTable):
    """ObjectTable for property tests, as a mapping."""

    def __getitem__(self, number):
        return number_get(self, number)

    def __setitem__(self, number, what):
        self.put(number, what)

    def __delitem__(self, number):
        self.remove(number)

    def content(self):
        """Return the objects and the length of the list."""
        return self.values(), len(self.near)

    def free(self):
        """Return the lowest free number."""
        return self.lowest_free()


def consumers_by_address(Table table not None):
    """Return the consumers of each address as plain values: (worker, slot, generation)."""
    cdef ForwardingAddress address
    cdef Consumer consumer
    return {
        address.key: [(consumer.worker, consumer.slot_index, consumer.generation) for consumer in address.consumers]
        for address in table.addresses.values()
    }


def port_counts(WorkerPort port not None):
    """Return (deliveries sent and unsettled, received and unsettled, octets in the backlog, meters kept)."""
    return (port.outgoing.sent.used, port.incoming.received.used, buffer_used(&port.outbox.backlog),
            len(port.outgoing.meters or ()))


def use_fast_paths(on):
    """Enable or disable the fast paths of deliveries; without them, all deliveries take the slow paths."""
    use_runs(on)
    use_fast_path(on)


cdef uint64_t differences = 0
cdef uint64_t checked_links = 0     # links of producers made when check_plans last searched for them


cdef bint same_choice(const Choice* a, const Choice* b) noexcept:
    """Return True if two choices choose the same consumer and change the same."""
    return (a.consumer is b.consumer and a.remote == b.remote and a.outstanding is b.outstanding
            and a.moves == b.moves
            and (not a.moves or (a.start == b.start and a.turn == b.turn and a.chance == b.chance)))


cdef bint same_plan(const Plan* a, const Plan* b) noexcept:
    """Return True if two plans for the same message are equal, apart from where composed annotations are kept."""
    cdef const Leg* x = &a.leg
    cdef const Leg* y = &b.leg
    if a.verdict == b.verdict == EACH_CONSUMER:
        return a.version == b.version and a.address is b.address and a.to.data is b.to.data
    return (
        a.verdict == b.verdict and a.version == b.version and a.at == b.at and a.priority == b.priority
        and a.address is b.address and a.entry == b.entry and same_choice(&a.choice, &b.choice)
        and a.to.data is b.to.data and a.to.size == b.to.size and a.phase == b.phase
        and a.overflow == b.overflow and a.honour == b.honour and a.came_by_router == b.came_by_router
        and x.link is y.link
        and x.edited == y.edited and x.routed == y.routed
        and (not x.edited or (x.edit.at == y.edit.at and x.edit.end == y.edit.end and x.edit.size == y.edit.size
                              and (x.edit.size == 0
                                   or memcmp(x.edit.octets, y.edit.octets, x.edit.size) == 0))))


cdef class CheckedPlansHandler(DeliveryHandler):
    """Handler that compares each plan of the original handler with a fresh one."""
    cdef DeliveryHandler own

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        return self.own.route(link, d, c)

    cdef bint streams(self, ProducerLink link, const Content* c) noexcept:
        return self.own.streams(link, c)

    cdef const Plan* plan(self, ProducerLink link, const Transfer* t) noexcept:
        global differences
        cdef const Plan* found = self.own.plan(link, t)
        cdef Plan kept
        if found is not NULL:
            kept = found[0]
            (<Plan*>found).version = 0     # forget it
            found = self.own.plan(link, t)
            differences += found is NULL or not same_plan(&kept, found)
        return found


def check_plans():
    """Compare each remembered plan of all present producers' links with a fresh one from now on."""
    global checked_links
    cdef ProducerLink link
    cdef CheckedPlansHandler handler
    if producers_made() == checked_links:
        return
    checked_links = producers_made()
    for each in gc.get_objects():
        if isinstance(each, ProducerLink):
            link = each
            if link.deliveries is not None and not isinstance(link.deliveries, CheckedPlansHandler):
                handler = CheckedPlansHandler()
                handler.own = link.deliveries
                link.deliveries = handler


def plan_differences():
    """Return the number of plans that differed from a fresh one since the last call."""
    global differences
    found = differences
    differences = 0
    return found


def use_spread(int least=0):
    """Set the least number of consumers from which multicast copies are spread over turns; 0: the default."""
    set_spread(least)


# -- faults -----------------------------------------------------------------------------------------------------------

class InjectedError(Exception):
    """Fault injected by a test."""


cdef class CountingHandler(DeliveryHandler):
    """Handler that counts a link's attempts to route a delivery, and forwards all calls to the original handler."""
    cdef DeliveryHandler own
    cdef readonly uint64_t routes
    cdef readonly uint64_t looks           # calls of `streams`

    def __cinit__(self, ProducerLink link not None):
        self.own = link.deliveries
        link.deliveries = self

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        self.routes += 1
        return self.own.route(link, d, c)

    cdef bint streams(self, ProducerLink link, const Content* c) noexcept:
        self.looks += 1
        return self.own.streams(link, c)

    cdef const Plan* plan(self, ProducerLink link, const Transfer* t) noexcept:
        return self.own.plan(link, t)


cdef class FaultyProducerLink(ProducerLink):
    """Producer link that raises once.

    With `fails`, it raises at the outcome or the return of a delivery; with `run_fails`, at the settlement of a run.
    """
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


cdef class FaultyConsumerLink(ConsumerLink):
    """Consumer link that raises once at the place named by `fails`: "offer", "offered", "more" or "update"."""
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

def add_starved_link(Scheduler scheduler not None, link):
    """Add a link to the scheduler's starved links, which the next wake serves."""
    scheduler.starved.append(link)


def post(WorkerPort port not None, bytes octets not None):
    """Write a record to the ring, now or when there is room."""
    port.outbox.post(octets, len(octets), NULL, 0)


def linked_slots(LinkTable table not None):
    """Return the slots in which the table has a link, deallocated or not."""
    return [slot for slot in range(table.places.size) if table.places.by_slot[slot].link is not NULL]


def set_delivery_ids(Session session not None, uint32_t sent, uint32_t received):
    """Set the session's next delivery-ids of outgoing and of incoming deliveries."""
    session.next_delivery_id = sent
    session.expected_delivery_id = received


def hold_ring(WorkerPort port not None, bint held):
    """Stop a port from reading its ring, or let it continue."""
    port.closed = held
    port.work.rung |= port.bit


def streams(WorkerPort port not None):
    """Return the number of streamed messages that the port is receiving."""
    return len(port.incoming.inflows)


# -- invariants -------------------------------------------------------------------------------------------------------

cdef object incoming(DeliveryNode* party):
    """Return the violated invariant of a node's incoming deliveries as text, or None. Call it when nothing moves."""
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
    """Count the copies queued for and sent to a node. Return the violated invariant as text, or None."""
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
    """Check the invariants of a producer's link; raise AssertionError. Call it when nothing moves."""
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


cdef object list_droppable(ConsumerLink link):
    """Return the violated invariant of a link's list of droppable copies as text, or None."""
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
    """Check the invariants of a consumer's link; raise AssertionError. Call it when nothing moves."""
    cdef uint32_t queued = 0, sent = 0, open_streams = 0
    wrong = copies(&link.node, &queued, &sent, &open_streams)
    if wrong is None:
        wrong = list_droppable(link)
    if wrong is None:
        held = (queued, sent, open_streams)
        told = (link.slot.undelivered, link.slot.unsettled, link.slot.busy)
        if held != told:
            wrong = f"queued, unsettled, unfinished are {held}, the gauges say {told}"
    assert wrong is None, f"outgoing link {link.name}: {wrong}"


def check_routed(RoutedLink link not None):
    """Check the invariants of one end of a routed link; raise AssertionError. Call it when nothing moves."""
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
    """Return the violated invariant of a port's resting deliveries or of its counts as text, or None.

    Resting deliveries wait for more octets or for their window.
    """
    cdef uint32_t unstarted_count = 0
    cdef uint64_t charged = 0
    cdef OutDelivery* o = port.node.queue_first
    while o is not NULL:
        unstarted_count += o.prefix is not NULL
        charged += o.charge
        if o.flags & OUT_RESTING:
            return "a copy that may go on is marked as resting"
        o = o.next
    if unstarted_count != port.unstarted_count:
        return f"{unstarted_count} copies are not begun, {port.unstarted_count} are counted"
    o = port.resting.queue_first
    while o is not NULL:
        charged += o.charge
        if o.downstream is not &port.node or not o.flags & OUT_RESTING or not o.flags & OUT_QUEUED:
            return "a copy that rests is not marked so"
        o = o.next
    if charged == port.node.own_octets:
        return None
    return f"{charged} octets of the router's own, {port.node.own_octets} counted"


def check_port(WorkerPort port not None):
    """Check the invariants of a port; raise AssertionError. Call it when nothing moves."""
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
