"""Taps: copies of the messages of some addresses for another address (docs/user/tap.md, decision 0087)."""
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.clock cimport Clock
from sluice.router.amqp.meter cimport Meter
from sluice.router.delivery.delivery cimport InDelivery, OutDelivery
from sluice.router.message.annotation_filter cimport AnnotationFilter
from sluice.router.message.content cimport Content
from sluice.router.ring.layout cimport AddressSlot
from sluice.router.ring.region cimport Region
from sluice.router.table.table cimport AddressTap

cdef enum:
    # Cost units of a copy, charged to the producer's connection; in addition those in `Tap.copied`.
    TAP_UNITS = 5
    OCTETS_A_UNIT = 1024       # octets of a copy for one cost unit
    # Bounds of a tap on copies that no delivery waits for, in each worker: its consumers have as many under way, and
    # the process holds as much memory, without any producer being slowed. A message may exceed the first one by the
    # number of its consumers.
    TAP_COPIES = 4096
    TAP_OCTETS = 8388608
    TAP_ARRIVING = 8388608     # bound on stored octets of those whose messages still arrive
    TAP_MISSED_ADDRESSES = 64  # addresses whose missed messages have a count of their own until `take_missed`
    TAP_MISSED_NAME = 1024     # octets of the longest of these addresses, encoded
    # Bits of `key` of a copy, see Tap.
    KEY_ROOM = 1
    KEY_UNFINISHED = 2

# Room of an unsettled delivery that no delivery waits for. Owner: the delivery, by its `key`.
cdef struct CopyRoom:
    PyObject* source           # address that the message was sent to, an encoded string (a reference)
    uint64_t octets            # of the message
    uint64_t copies
    CopyRoom* next             # next free one

# Copy of a message that still arrives, as far as its tap knows it; see arriving_copy.pxd.
cdef class UnfinishedCopy:
    cdef bint is_forwarded                 # its consumers get the message as it arrives
    # Process the end of the tap's delivery, which the tap has freed. kind: its outcome.
    cdef int copy_ended(self, uint8_t kind) except -1
    # End the copy: its tap ends. lost: as of AddressTap.end.
    cdef int cut(self, bint lost) except -1
    cdef void forget_leg(self) noexcept
    cdef uint64_t forwarded_at             # ns: time at which they got the first octets
    # End the copy if it has held others up for STALL_MS, or has not grown for so long while others are under way.
    # waiting_since: time (ns) since which a copy waits that may be behind this one; 0: none. Return the time (ms) of
    # the next check; 0: none.
    cdef uint64_t check_stall(self, uint64_t waiting_since) except? 1

# Tap of the configuration. It is the upstream node of its copies, which are deliveries of their own, and the downstream
# node of the legs by which deliveries of required taps wait for their copies. `key` of a delivery to the consumers of
# copies: address of its leg; or, if no delivery waits for it, that of its CopyRoom with the bit KEY_ROOM; or, while its
# message arrives, that of its UnfinishedCopy with the bit KEY_UNFINISHED. Owner: the table.
cdef class Tap(AddressTap):
    # Of unsettled deliveries that no delivery waits for: octets, each message once, and copies.
    cdef uint64_t octets
    cdef uint64_t copies
    cdef uint64_t copied                   # cost units of the octets of all copies
    cdef Meter* meter                      # counts their octets that wait here, and what their copies take
    cdef list unfinished                   # UnfinishedCopy
    cdef Meter* arriving                   # counts stored octets of those of them that no delivery waits for
    cdef bint watched                      # listed in Scheduler.starved, or to be listed again
    cdef Clock clock                       # of the worker; None: the tap was never watched
    # Of the other workers, whose copies may wait for the same consumers: copies that have ended, as last seen, and the
    # time (ns) since which none has ended although some are under way, as far as is known; 0: none are.
    cdef Region region
    cdef uint32_t number                   # of the counter slots
    cdef int worker
    cdef uint64_t ended_elsewhere
    cdef uint64_t waiting_elsewhere
    # Counters. `ingress` counts messages that the tap selects; `egress` copies that were accepted, `redirected` those
    # that were rejected, `from_container` those that were released or modified. Messages without a copy: `transit`
    # counts those that no consumer could get, `to_container` those that found too many copies unsettled,
    # `ingress_container` those that are too long, `egress_container` those that stalled while others waited.
    cdef AddressSlot* counts
    # Missed messages since `take_missed`, by the encoded address; b"": those of further addresses.
    cdef dict missed
    cdef object on_missed                  # called with the tap when `missed` is no longer empty; None: nobody asks
    # Make the copy of a message, as far as the bounds permit. Nothing waits for it. source: address that the message
    # was sent to, as an encoded string. producer: number of its link. now: ns.
    cdef int copy(self, bytes source, const Content* c, uint64_t producer, uint64_t now) except -1
    # Make the copy of a message and a leg of its delivery, which waits for the copy. meter: counts octets of the copy
    # that have to wait.
    cdef int require(self, InDelivery* d, bytes source, const Content* c, uint64_t producer, uint64_t now,
                     Meter* meter) except -1
    cdef int send(self, InDelivery* d, bytes source, const Content* c, uint64_t producer, Meter* meter) except -1
    # Forward the copy d, whose octets are set in `copy`; return the number of consumers and next hops that get it.
    cdef int forward_copy(self, InDelivery* d, Content* copy, uint64_t producer) except -1
    cdef void count_ended(self, uint8_t kind, uint32_t n) noexcept
    # Return the time (ns) since which a complete copy waits that was made after the incomplete ones; 0: none does.
    cdef uint64_t waiting_here(self) noexcept
    # Return `waiting_elsewhere`, brought up to date.
    cdef uint64_t waiting_at_others(self) noexcept
    cdef int ended(self, uint64_t key, uint8_t kind) except -1
    cdef bint has_room(self, uint64_t octets) noexcept
    # Free the room with this `room_key`, and count its message by address if no consumer has taken it. kind: outcome.
    cdef int free_room(self, uint64_t key, uint8_t kind) except -1
    # Count a message without a copy, or whose copy came back, by its address.
    cdef int count_missed(self, bytes source) except -1
    cdef int finish_leg(self, OutDelivery* leg, bint accepted) except -1

# Compose the octets of a copy as far as its message is here; return them, borrowed until the next call. source: address
# that the message was sent to, as an encoded string. f: filter for the octets that follow. units: the cost units of the
# work are added to these.
cdef uint8_t* compose_copy(bytes source, const Content* c, AnnotationFilter* f, size_t* size,
                           uint64_t* units) except NULL
# Return the buffer of these octets, with room for `size`.
cdef uint8_t* scratch_room(size_t size) except NULL
# Free the buffer of these octets after a long message.
cdef void shrink_scratch() noexcept

# Return the key of a delivery that nothing waits for: its octets and copies count for its tap.
cdef uint64_t room_key(bytes source, uint64_t octets, uint64_t copies) except 0
# Drop the room with this key.
cdef void drop_room(uint64_t key) noexcept


# Return True if one of these taps is required, and copies messages of this tenant.
cdef bint is_required(tuple taps, str tenant) noexcept
