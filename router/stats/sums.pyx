"""Sums over many slots of the shared memory, for pages and tables about all links or addresses.

The accessors of `layout` make a dictionary for each slot, which suits a single row. The functions here read the words
in a loop. Sums are added to arrays that the caller owns, so a long scan can be divided into several calls.
"""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.ring.atomics cimport ACQUIRE, RELAXED, load32, load64
from sluice.router.ring.link_counts cimport link_unsettled
from sluice.router.ring.layout cimport LinkSlot
from sluice.router.ring.region cimport Region

# Fields that `add_links` sums for a group of links, in this order.
LINK_SUMS = ("links", "without_credit", "blocked", "undelivered", "unsettled", "stuck")
# Fields that `add_traffic` sums for a group of links, in this order.
TRAFFIC_SUMS = ("deliveries", "octets")
# Counters of an address, in the order of its slot.
ADDRESS_SUMS = ("ingress", "egress", "transit", "to_container", "from_container", "redirected")

cdef enum:
    LINK_FIELDS = 6
    TRAFFIC_FIELDS = 2
    OUTGOING = 2      # LinkSlot.direction of a consumer's link
    STALL_CREDIT = 5  # StallReason.CREDIT
    ADDRESS_FIELDS = 6


cdef int check_open(Region region) except -1:
    if region.base is NULL:
        raise ValueError("memory region is closed")
    return 0


cdef int check_address(Region region, int address) except -1:
    check_open(region)
    if not 0 <= address < region.addresses:
        raise IndexError(f"address {address} of a region for {region.addresses}")
    return 0


def add_links(
    Region region not None, int worker, const uint32_t[::1] slots, const uint32_t[::1] groups,
    const uint32_t[::1] addresses, uint64_t[::1] sums, uint64_t[::1] undelivered
):
    """Add links of one worker to the sums of their groups and to the undelivered deliveries of their addresses.

    `slots`, `groups` and `addresses` have the slot, group and address id of each link. `sums` has LINK_SUMS for each
    group, `undelivered` one number for each address id. Free slots are skipped. Raises IndexError before anything is
    added.
    """
    cdef Py_ssize_t i, at
    cdef Py_ssize_t count = slots.shape[0]
    cdef uint32_t waiting
    cdef uint32_t used
    cdef LinkSlot* slot
    check_open(region)
    if not 0 <= worker < region.workers or groups.shape[0] != count or addresses.shape[0] != count:
        raise IndexError(f"worker {worker}, {count} slots, {groups.shape[0]} groups, {addresses.shape[0]} addresses")
    for i in range(count):
        if slots[i] >= <uint32_t>region.links_per_worker or addresses[i] >= undelivered.shape[0] \
                or (<uint64_t>groups[i] + 1) * LINK_FIELDS > <uint64_t>sums.shape[0]:
            raise IndexError(f"link {i}: slot {slots[i]}, group {groups[i]}, address {addresses[i]}")
    used = load32(&region.worker_slot(worker).links_used_high, ACQUIRE)
    for i in range(count):
        if slots[i] >= used:
            continue
        slot = region.link_slot(worker, slots[i])
        if load32(&slot.generation, ACQUIRE) == 0:
            continue
        waiting = load32(&slot.undelivered, RELAXED)
        at = <Py_ssize_t>groups[i] * LINK_FIELDS
        sums[at] += 1
        sums[at + 1] += <int>load32(<uint32_t*>&slot.credit, RELAXED) <= 0
        sums[at + 2] += load32(&slot.blocked, RELAXED)
        sums[at + 3] += waiting
        sums[at + 4] += link_unsettled(slot)
        sums[at + 5] += load32(&slot.stuck, RELAXED)
        undelivered[addresses[i]] += waiting


def add_traffic(
    Region region not None, int worker, const uint32_t[::1] slots, const uint32_t[::1] generations,
    const uint32_t[::1] groups, uint64_t[::1] sums, uint64_t[::1] stalls
):
    """Add links of one worker to the traffic of their groups, and count the links that stall by reason.

    `slots`, `generations` and `groups` have the slot, its generation and the group of each link. `sums` has
    TRAFFIC_SUMS for each group, `stalls` one number for each StallReason (0: no link stalls). Ended links whose
    counters are still there add to the traffic only; links whose slot has another generation add nothing. Raises
    IndexError before anything is added.
    """
    cdef Py_ssize_t i, at
    cdef Py_ssize_t count = slots.shape[0]
    cdef uint32_t used, present, reason
    cdef uint64_t blocked
    cdef LinkSlot* slot
    check_open(region)
    if not 0 <= worker < region.workers or groups.shape[0] != count or generations.shape[0] != count:
        given = f"{count} slots, {groups.shape[0]} groups, {generations.shape[0]} generations"
        raise IndexError(f"worker {worker}, {given}")
    for i in range(count):
        if slots[i] >= <uint32_t>region.links_per_worker \
                or (<uint64_t>groups[i] + 1) * TRAFFIC_FIELDS > <uint64_t>sums.shape[0]:
            raise IndexError(f"link {i}: slot {slots[i]}, group {groups[i]}")
    used = load32(&region.worker_slot(worker).links_used_high, ACQUIRE)
    for i in range(count):
        if slots[i] >= used or generations[i] == 0:
            continue
        slot = region.link_slot(worker, slots[i])
        present = load32(&slot.generation, ACQUIRE)
        if present != generations[i] and (present or load32(&slot.ended, RELAXED) != generations[i]):
            continue
        at = <Py_ssize_t>groups[i] * TRAFFIC_FIELDS
        sums[at] += load64(&slot.deliveries, RELAXED)
        sums[at + 1] += load64(&slot.octets, RELAXED)
        if not present:
            continue
        # As `find_stall` of supervisor/management/stalls.py decides for a single link.
        reason = load32(&slot.stall, RELAXED)
        blocked = load64(&slot.blocked_since, RELAXED)
        if (not reason or reason >= stalls.shape[0]) and blocked and slot.direction == OUTGOING:
            reason = STALL_CREDIT
        if reason and reason < stalls.shape[0] and (reason != STALL_CREDIT or blocked):
            stalls[reason] += 1


def traffic_of(Region region not None, int worker, uint32_t slot, uint32_t generation):
    """Return the deliveries and octets of a link, present or ended, by its slot in one generation.

    Returns None if the link had no traffic, or its counters are not there any more. Raises IndexError.
    """
    cdef LinkSlot* found
    cdef uint64_t deliveries, octets
    cdef uint32_t present
    check_open(region)
    if not 0 <= worker < region.workers or slot >= <uint32_t>region.links_per_worker:
        raise IndexError(f"worker {worker}, slot {slot}")
    if generation == 0 or slot >= load32(&region.worker_slot(worker).links_used_high, ACQUIRE):
        return None
    found = region.link_slot(worker, slot)
    present = load32(&found.generation, ACQUIRE)
    if present != generation and (present or load32(&found.ended, RELAXED) != generation):
        return None
    deliveries, octets = load64(&found.deliveries, RELAXED), load64(&found.octets, RELAXED)
    return (deliveries, octets) if deliveries or octets else None


cdef class AddressCounters:
    """Counters of addresses, summed over the workers. Counters of removed addresses stay in the totals.

    Owner: supervisor. Read only ids that were in use: reading a slot for the first time allocates its memory page.
    """
    cdef Region region
    cdef uint64_t gone[ADDRESS_FIELDS]

    def __cinit__(self, Region region not None):
        self.region = region

    def reset(self, int address):
        """Add the counters of an address to those of removed addresses and clear them, before its id is used again.

        Raises IndexError.
        """
        cdef int field
        check_address(self.region, address)
        for worker in range(self.region.workers):
            for field in range(ADDRESS_FIELDS):
                self.gone[field] += count(self.region, worker, address, field)
        self.region.reset_address(address)

    def removed_totals(self):
        """Return the summed counters of all addresses that were reset: a list in the order of ADDRESS_SUMS."""
        return [self.gone[field] for field in range(ADDRESS_FIELDS)]

    def of(self, int address):
        """Return the counters of one address: a list in the order of ADDRESS_SUMS. Raises IndexError."""
        cdef int field
        check_address(self.region, address)
        return [
            sum([count(self.region, worker, address, field) for worker in range(self.region.workers)])
            for field in range(ADDRESS_FIELDS)
        ]

    def add(self, int start, int stop, uint64_t[::1] sums, uint64_t[::1] traffic):
        """Add the counters of addresses with the ids `start` to `stop - 1` to `sums`, in the order of ADDRESS_SUMS.

        `traffic` receives the number of incoming and outgoing deliveries of each address, by id. Raises IndexError.
        """
        cdef int address, worker, field
        cdef uint64_t value
        check_open(self.region)
        if not 0 <= start <= stop <= self.region.addresses or stop > traffic.shape[0] \
                or sums.shape[0] != ADDRESS_FIELDS:
            raise IndexError(f"addresses {start} to {stop}, {traffic.shape[0]} in the array, {sums.shape[0]} sums")
        for address in range(start, stop):
            traffic[address] = 0
        for worker in range(self.region.workers):
            for address in range(start, stop):
                for field in range(ADDRESS_FIELDS):
                    value = count(self.region, worker, address, field)
                    sums[field] += value
                    if field < ADDRESS_FIELDS - 1:
                        traffic[address] += value


cdef inline uint64_t count(Region region, int worker, int address, int field) noexcept:
    """Return one counter of an address. The counters are consecutive words from the start of the slot."""
    return load64(<uint64_t*>region.address_slot(worker, address) + field, RELAXED)
