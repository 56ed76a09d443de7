"""Slots of this worker's links in shared memory, with their owners and generations."""
from collections import deque

from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.endpoint cimport is_open
from sluice.router.stats.counters cimport totals, unblock
from sluice.router.ring.layout cimport LinkSlot
from sluice.router.ring.region cimport Region
from sluice.router.links.delivery_link cimport DeliveryLink
from sluice.router.stalls.stall cimport update_stall

from sluice.router.amqp.errors import RESOURCE_LIMIT, RemoteError

cdef enum:
    GENERATION_BITS = 20       # bits of the slot's own count, below the worker's generation
    NANOSECONDS = 1000000000   # in a second


cdef inline bint waits_for_credit(DeliveryLink link, uint64_t before) noexcept:
    """True if a link without credit counts as blocked.

    Always true for a producer's link, and for a consumer that has never granted credit. Otherwise true if deliveries
    for the consumer have been queued since before `before` (ns): a client that grants credit for each answer is not
    blocked.
    """
    if link.incoming or not link.granted:
        return True
    return link.node.queue_first is not NULL and link.node.queue_first.since < before


cdef class Slot:
    """Claimed slot of a link. Owner: the link's record."""
    cdef LinkSlot* slot
    cdef readonly uint32_t index
    cdef readonly uint32_t generation

    def set_round_trip(self, uint32_t us):
        """Store the round-trip time in µs of the link's connection to another router."""
        self.slot.round_trip = us


cdef class SlotPool:
    """All link slots of one worker. Owner: the worker."""
    cdef Region region
    cdef int worker
    cdef object free                       # deque of (time of release, index): free slots, the oldest release first
    cdef list owners                       # Link by slot; None while the slot is free
    cdef uint32_t fresh                    # slots from this index on were never claimed
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
        """True if all slots are taken."""
        return not self.free and self.fresh >= <uint32_t>self.region.links_per_worker

    def claim(self, DeliveryLink link not None, bint incoming, bint container, uint64_t now_ns):
        """Claim a slot for the link, whose counters live there from now on. Raises RemoteError if all slots are taken.

        container: the link's connection has role route-container. The link need not be in a session yet.
        """
        cdef Slot slot = Slot()
        cdef uint64_t kept = self.region.links_kept()
        cdef bint room = self.fresh < <uint32_t>self.region.links_per_worker
        # Keep the slots of ended links for a while unless no other slot is free, so that readers of link counters get
        # the final values.
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
        """Transfer the slot to another link."""
        link.slot = slot.slot
        link.slot_owner = self.region
        self.owners[slot.index] = link

    def release(self, Slot slot not None, uint64_t now_ns):
        """Release the slot of a link. Its counters remain until the slot is claimed again."""
        self.owners[slot.index] = None
        unblock(slot.slot)
        slot.slot.ended = slot.generation
        slot.slot.undelivered = slot.slot.unsettled = 0
        slot.slot.generation = 0
        self.free.append((now_ns, slot.index))
        totals.links -= 1

    def look(self, uint32_t start, uint32_t most, uint64_t now, uint64_t age):
        """Check the links of `most` slots from `start` for deliveries and for lack of credit older than `age` (ns).

        Both are counted once. A link stops being blocked when nothing waits for it. Return the slot to continue at (0:
        all are checked), and what to report: (link, seconds without credit, or 0 for its first stuck delivery).
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
            if waits_for_credit(link, now - age) == (slot.blocked != 0):
                continue
            slot.blocked = not slot.blocked
            if slot.blocked:
                totals.blocked += 1
                found.append((link, (now - slot.blocked_since) // NANOSECONDS))
            else:
                totals.blocked -= 1
        return (end if end < <uint32_t>len(self.owners) else 0), found

    def check_stalls(self, uint32_t start, uint32_t most, uint64_t now):
        """Check the links of `most` slots from `start` for stalls. Return the slot to continue at; 0: all are checked.
        """
        cdef uint32_t end = min(start + most, <uint32_t>len(self.owners))
        cdef uint32_t i
        cdef DeliveryLink link
        for i in range(start, end):
            link = self.owners[i]
            if link is not None:
                update_stall(link, now)
        return end if end < <uint32_t>len(self.owners) else 0

    @property
    def used(self):
        """Number of claimed slots."""
        return len(self.owners) - len(self.free)
