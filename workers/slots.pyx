"""Slots of this worker's links in shared memory: their owners and generations."""
from collections import deque

from libc.stdint cimport uint32_t, uint64_t

from router.amqp.endpoint cimport is_open
from router.stats.counters cimport totals, unblock
from router.interworker.layout cimport LinkSlot
from router.interworker.region cimport Region
from router.links.delivery_link cimport DeliveryLink
from router.stalls.stall cimport note_stall

from router.amqp.errors import RESOURCE_LIMIT, RemoteError

cdef enum:
    GENERATION_BITS = 20       # of a slot's own count, below the worker's generation
    NANOSECONDS = 1000000000   # of a second


cdef inline bint is_awaited(DeliveryLink link, uint64_t before) noexcept:
    """True if something waits for credit on a link: a producer, a consumer's link until its first credit, and later
    deliveries queued there from before that time (ns). A client that grants credit for each answer blocks nobody.
    """
    if link.incoming or not link.granted:
        return True
    return link.node.queue_first is not NULL and link.node.queue_first.since < before


cdef class Slot:
    """A claimed slot. Owner: the link's record."""
    cdef LinkSlot* slot
    cdef readonly uint32_t index
    cdef readonly uint32_t generation

    def set_round_trip(self, uint32_t us):
        """Of its connection, to another router."""
        self.slot.round_trip = us


cdef class SlotPool:
    """All slots of one worker. Owner: the worker."""
    cdef Region region
    cdef int worker
    cdef object free                       # deque of (when, index): freed slots, the oldest first
    cdef list owners                       # by slot: its Link, None while it is free
    cdef uint32_t fresh                    # slots from here on were never claimed
    cdef uint32_t base
    cdef uint32_t count

    def __cinit__(self, Region region not None, int worker, int generation):
        self.region = region
        self.worker = worker
        self.free = deque()
        self.owners = []
        self.base = <uint32_t>((generation & 0xFFF) << GENERATION_BITS)

    @property
    def full(self):
        """Whether all are taken."""
        return not self.free and self.fresh >= <uint32_t>self.region.links_per_worker

    def claim(self, DeliveryLink link not None, bint incoming, bint container, uint64_t now_ns):
        """Claim a slot for the link, which counts there from now on. Raises RemoteError when all are taken.

        container: its connection has role route-container. The link need not be in a session yet.
        """
        cdef Slot slot = Slot()
        cdef uint64_t kept = self.region.links_kept()
        cdef bint room = self.fresh < <uint32_t>self.region.links_per_worker
        # Whoever reads the counters of links gets the last ones, too, unless there is no other slot.
        if self.free and (not kept or not room or now_ns - <uint64_t>self.free[0][0] > kept):
            slot.index = (self.free.popleft() if kept else self.free.pop())[1]
        elif room:
            slot.index = self.fresh
            self.fresh += 1
            self.owners.append(None)
        else:
            raise RemoteError("link", RESOURCE_LIMIT, "this worker has no room for another link")
        self.count += 1
        if not self.count & ((1 << GENERATION_BITS) - 1):
            self.count += 1
        slot.generation = self.base | (self.count & ((1 << GENERATION_BITS) - 1))
        slot.slot = self.region.claim_link(self.worker, slot.index, slot.generation)
        slot.slot.direction = 1 if incoming else 2
        slot.slot.capacity = link.capacity
        link.slot = slot.slot
        link.slot_owner = self.region
        slot.slot.container = container
        slot.slot.blocked_since = now_ns
        self.owners[slot.index] = link
        totals.links += 1
        return slot

    def adopt(self, Slot slot not None, DeliveryLink link not None):
        """Another object owns the slot from now on."""
        link.slot = slot.slot
        link.slot_owner = self.region
        self.owners[slot.index] = link

    def release(self, Slot slot not None, uint64_t now_ns):
        """Release the slot of a link. Its counters stay until it is claimed again."""
        self.owners[slot.index] = None
        unblock(slot.slot)
        slot.slot.ended = slot.generation
        slot.slot.undelivered = slot.slot.unsettled = 0
        slot.slot.generation = 0
        self.free.append((now_ns, slot.index))
        totals.links -= 1

    def look(self, uint32_t start, uint32_t most, uint64_t now, uint64_t age):
        """Check the links of `most` slots from `start` for deliveries and lack of credit older than `age` (ns). Both
        are counted once; a link that nothing waits for any more is not blocked. Returns where to continue (0: that was
        all) and what to report: (link, seconds without credit,
        or 0 for its first stuck delivery).
        """
        cdef uint32_t end = min(start + most, <uint32_t>len(self.owners))
        cdef uint32_t i, known
        cdef DeliveryLink link
        cdef LinkSlot* slot
        found = []
        for i in range(start, end):
            link = self.owners[i]
            if link is None or not is_open(link):
                continue
            slot = link.slot
            known = slot.stuck
            if link.mark_stuck(now - age) and not known:
                found.append((link, 0))
            if not slot.blocked_since or now - slot.blocked_since <= age:
                continue
            if is_awaited(link, now - age) == (slot.blocked != 0):
                continue
            slot.blocked = not slot.blocked
            if slot.blocked:
                totals.blocked += 1
                found.append((link, (now - slot.blocked_since) // NANOSECONDS))
            else:
                totals.blocked -= 1
        return (end if end < <uint32_t>len(self.owners) else 0), found

    def check_stalls(self, uint32_t start, uint32_t most, uint64_t now):
        """Check the links of `most` slots from `start` for stalls. Returns where to continue, 0: that was all."""
        cdef uint32_t end = min(start + most, <uint32_t>len(self.owners))
        cdef uint32_t i
        cdef DeliveryLink link
        for i in range(start, end):
            link = self.owners[i]
            if link is not None:
                note_stall(link, now)
        return end if end < <uint32_t>len(self.owners) else 0

    @property
    def used(self):
        """Slots that are claimed now."""
        return len(self.owners) - len(self.free)
