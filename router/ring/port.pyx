"""Ports: the pair of rings between two workers, or from this worker to itself, and the records in them.

Between two workers, everything happens that happens between links of one worker, by records (records.pxd). `outgoing`
is the downstream of copies for the peer's consumers, `incoming` the upstream of deliveries from its producers. A
record that finds no room waits in the outbox, a delivery in a queue. While either holds something, the connections
that feed the port are paused. So both are bounded by what one read of each connection brings.
"""
from sluice.router.amqp.connection cimport Connection
from sluice.router.ring.link_table cimport LinkTable
from sluice.router.ring.outbox cimport Outbox, mark_port_dirty
from sluice.router.ring.port_work cimport PortWork, bit_of
from sluice.router.ring.records cimport (
    DeliveryHead, R_CONTINUE, R_LINK, R_LINK_EVENT, R_RETURNED, R_SETTLED, R_TRANSFER, R_UPDATE, DeliveryRecord,
    LinkHead,
    LinkRecord, decode_delivery, decode_link,
)
from sluice.router.ring.ring cimport (
    octets_to_wrap, record_octets, ring_empty, ring_give_back, ring_open, ring_peek, ring_release, ring_release_octets,
    ring_unpublished,
)
from sluice.router.ring.wakeup cimport producer_is_waiting
from sluice.router.routed.link_records cimport record_begin
from sluice.router.routed.routed_link cimport EVENT_ATTACH, EVENT_LOST, RoutedLink
from sluice.router.links.pause cimport PAUSE_RING

from sluice.router.amqp.errors import FatalFault
from sluice.router.ring.errors import MalformedRecordError


cdef class WorkerPort:
    """Port to one other worker, or to this one. Owner: the worker's table."""

    def __cinit__(self, Region region not None, int worker, int peer, int peer_eventfd, LinkTable links not None,
                  Scheduler scheduler not None, PortWork work not None):
        """peer: number of the other worker, or of this one. work: of all ports of this worker."""
        self.region = region
        self.worker = worker
        self.peer = peer
        self.scheduler = scheduler
        self.bit = bit_of(peer)
        self.work = work
        self.outbox = Outbox(work, region, worker, peer, peer_eventfd)
        self.outgoing = PortOut(self.outbox)
        self.incoming = PortIn(self.outbox, peer, links, scheduler)
        if peer == worker:
            self.outgoing.meters = self.incoming.meters = {}
        self.waiting = []
        self.routed = {}
        self.leaving = {}
        self.due = []

    # -- start and end ------------------------------------------------------------------------------------------------

    def up(self, generation):
        """Open the port: the peer is live, in this generation, with empty rings in both directions."""
        self.generation = generation
        self.outbox.open(self.region.ring(self.worker, self.peer), self.region.ring_octets)
        ring_open(&self.inbound, self.region.ring(self.peer, self.worker), self.region.ring_octets)
        self.alive = True
        self.closed = False
        self.work.rung |= self.bit         # the peer may have set its doorbell before

    def down(self):
        """End the port's deliveries: the peer has exited.

        Its records are processed first, unless the port was closed.
        """
        if not self.alive:
            return
        while self.receive():
            pass
        self.alive = False
        self.outbox.close()
        self.outgoing.lost()
        self.incoming.lost()
        self.due.clear()
        for link in list(self.routed.values()):
            end = (<RoutedLink>link).remote_end
            if end is not None and (<OtherEnd>end).through(self):
                (<OtherEnd>end).port_lost()
        for end in list(self.leaving.values()):
            (<OtherEnd>end).port_lost()
        self.release_waiting()
        self.work.dirty &= ~self.bit
        self.work.rung &= ~self.bit
        self.work.stuck &= ~self.bit

    # -- connections that wait for room -------------------------------------------------------------------------------

    def throttle(self, Connection connection not None):
        """Pause a connection that was read in this wake if the ring has no room. Called at the end of the wake."""
        if self.alive and self.stuck() and not connection.paused & PAUSE_RING:
            connection.pause(PAUSE_RING)
            self.waiting.append(connection)

    cdef bint stuck(self) noexcept:
        return self.outgoing.stuck()

    cdef bint unread(self) noexcept:
        """True if records of the peer wait to be read."""
        return not self.closed and not ring_empty(&self.inbound)

    cdef int release_waiting(self) except -1:
        cdef Connection connection
        if self.waiting:
            for connection in self.waiting:
                connection.resume(PAUSE_RING)
            self.waiting.clear()
        return 0

    # -- from the peer ------------------------------------------------------------------------------------------------

    cdef int service_doorbell(self) except -1:
        """Service the peer's doorbell: there are records in its ring, or room in ours."""
        if not self.alive:
            return 0
        if self.receive() >= RECORDS_A_TURN:
            self.work.rung |= self.bit
        if self.outbox.waits or self.waiting or self.outgoing.waiting():
            mark_port_dirty(self.outbox)
        return 0

    cdef int receive(self) except -1:
        """Process records from the peer's ring, at most RECORDS_A_TURN; return how many."""
        cdef int taken = 0
        if not self.alive or self.closed:
            return 0
        while True:
            try:
                self.take_records(&taken)
                break
            except MalformedRecordError as error:
                self.outgoing.progress = self.incoming.progress = 0
                self.close_ring(error)
                break
            except Exception as fault:
                if not self.record_failed(fault):
                    self.outgoing.progress = self.incoming.progress = 0
                    ring_release(&self.inbound)
                    taken += 1
        if taken:
            ring_give_back(&self.inbound)
            if producer_is_waiting(self.inbound.header):
                self.outbox.notify_peer()
        return taken

    cdef int take_records(self, int* taken) except -1:
        cdef uint32_t size = 0
        cdef uint64_t octets
        cdef uint8_t* p
        while taken[0] < RECORDS_A_TURN:
            p = ring_peek(&self.inbound, &size)
            if p is NULL:
                break
            # The record must be in front of the ring's end, and published by the peer as a whole.
            octets = record_octets(size)
            if octets > octets_to_wrap(&self.inbound, self.inbound.position) \
                    or octets > self.inbound.seen - self.inbound.position:
                return self.refuse_length(size)
            if p[0] == R_TRANSFER:
                self.incoming.on_transfer(p, size)
                taken[0] += (<const DeliveryHead*>p).count // TARGETS_AS_A_RECORD
            else:
                self.on_record(p, size)
            self.outgoing.progress = self.incoming.progress = 0
            ring_release_octets(&self.inbound, octets)
            taken[0] += 1
            if ring_unpublished(&self.inbound) > self.inbound.size // 4:
                ring_give_back(&self.inbound)
        return 0

    cdef int refuse_length(self, uint32_t size) except -1:
        """Raise MalformedRecordError. A method of its own keeps the stack frame of take_records small."""
        raise MalformedRecordError(f"a record of {size} octets has an impossible length")

    cdef int close_ring(self, object error) except -1:
        """Stop reading the peer's ring: its process is in an unknown state.

        The supervisor ends that process. Then `down` ends the deliveries of this port, as for any worker that is lost.
        """
        self.closed = True
        if self.on_closed is not None:
            self.on_closed(self, error)
        return 0

    cdef int on_record(self, const uint8_t* p, uint32_t size) except -1:
        """Process a record other than TRANSFER. Raises MalformedRecordError."""
        cdef DeliveryRecord r
        cdef uint8_t code = p[0]
        if code >= R_LINK:
            return self.on_link_record(p, size)
        if not decode_delivery(p, size, &r):
            raise MalformedRecordError(f"a record of type {code}, {size} octets, is malformed")
        if code == R_SETTLED or code == R_RETURNED:
            return self.outgoing.on_settled(&r)
        if code == R_CONTINUE:
            return self.incoming.on_continue(&r)
        if code == R_UPDATE:
            return self.incoming.on_update(&r)
        return self.outgoing.on_window(&r)

    cdef int on_link_record(self, const uint8_t* p, uint32_t size) except -1:
        """Process a record for one end of a routed link, if that link still exists. Raises MalformedRecordError."""
        cdef const LinkHead* head = <const LinkHead*>p
        cdef LinkRecord r
        cdef RoutedLink link
        cdef LinkHead answer
        cdef OtherEnd end
        if not decode_link(p, size, &r):
            raise MalformedRecordError(f"a record of a routed link, type {p[0]}, {size} octets, is malformed")
        link = self.routed.get(head.slot)
        if link is not None and link.slot.generation == head.generation and link.remote_end is not None:
            end = link.remote_end                 # the link may end, and release it
            return end.on_record(&r)
        end = self.leaving.get(<uint64_t>head.slot << 32 | head.generation)
        if end is not None:
            return end.on_record(&r)
        if head.type == R_LINK_EVENT and head.kind == EVENT_ATTACH:
            # The link ended before the other end was known: answer that it is lost.
            record_begin(&answer, R_LINK_EVENT, 0, 0)
            answer.kind = EVENT_LOST
            answer.slot = <uint32_t>(head.key >> 32)
            answer.generation = <uint32_t>head.key
            return self.outbox.post(<uint8_t*>&answer, sizeof(LinkHead), NULL, 0)
        return 0

    cdef bint record_failed(self, object fault) except *:
        """Error net around each record: end the link or connection that the record is about, and nothing else.

        True: the record is to be processed again from `progress` on, since it is about others as well. Raises
        FatalFault if no link or connection is found, or if something would be left behind.
        """
        cdef uint32_t size = 0
        cdef uint8_t* p = ring_peek(&self.inbound, &size)
        cdef uint8_t code = p[0]
        try:
            if code == R_TRANSFER:
                return self.incoming.transfer_failed(p, fault)
            if code == R_SETTLED or code == R_RETURNED:
                return self.outgoing.settled_failed(p, fault)
            if code == R_CONTINUE or code == R_UPDATE:
                return self.incoming.content_failed(p, fault)
            if code >= R_LINK:
                return self.link_record_failed(p, fault)
            raise fault
        except Exception as error:
            raise FatalFault(
                f"a record (type {code}) of worker {self.peer} could not be taken: {type(error).__name__}: {error}"
            ) from fault

    cdef bint link_record_failed(self, const uint8_t* p, object fault) except *:
        """End the pair of routed links that a record is about."""
        cdef const LinkHead* head = <const LinkHead*>p
        cdef RoutedLink link = self.routed.get(head.slot)
        if link is None or link.slot.generation != head.generation:
            raise fault
        link.end_by(fault)
        return False

    # -- end of a wake ------------------------------------------------------------------------------------------------

    cdef int flush(self) except -1:
        """Write everything that is to go to the peer in this wake; signal the peer if it sleeps."""
        cdef list due
        cdef OtherEnd end
        self.work.dirty &= ~self.bit
        if not self.alive:
            return 0
        self.incoming.flush()
        if self.due:
            due = self.due
            self.due = []
            for end in due:
                try:
                    end.flush()
                except Exception as fault:
                    self.end_failed(end, fault)
        if self.outgoing.waiting():
            self.outgoing.pump()
        if self.waiting and not self.stuck():
            self.release_waiting()
        if ring_unpublished(&self.outbox.ring):
            self.outbox.announce()
        if self.incoming.unreported() or self.due:
            mark_port_dirty(self.outbox)              # came up during the flush
        else:
            self.work.dirty &= ~self.bit
        if self.stuck():
            self.work.stuck |= self.bit
        else:
            self.work.stuck &= ~self.bit
        return 0

    cdef int end_failed(self, OtherEnd end, object fault) except -1:
        """Error net around an end of a routed link that is flushed at the end of a wake."""
        link = end.link                    # the link drops the reference to its end
        if link is None:
            raise fault
        return (<RoutedLink>link).end_by(fault)
