"""Plan of a delivery: the consumer that gets a message, its link or ring, and the edit of the message.

`make_plan` (planner.pxd) makes a plan and has no effect: no counter, credit or list changes. `carry_whole` (carry.pxd)
executes it. A plan is remembered for messages with identical leading sections. A plan holds for one version of the
table (`Table.recent`). The version changes before anything in the table changes, and when a link of this worker ends.
So the borrowed pointers of a plan are valid as long as the plan holds.
"""
from libc.stdint cimport uint8_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.spec cimport (
    S_HEADER, S_PROPERTIES, T_FALSE, T_LIST0, T_LIST8, T_NULL, T_SMALLULONG, T_TRUE, T_UBYTE,
)
from sluice.router.links.consumer_link cimport AnnotationsEdit
from sluice.router.ring.layout cimport AddressSlot
from sluice.router.message.annotations cimport ComposedAnnotations
from sluice.router.message.scanned_prefix cimport ScannedPrefix
from sluice.router.message.sections cimport NO_PRIORITY, Sections
from sluice.router.table.choice cimport Choice

cdef enum:
    HIGHEST_PRIORITY = 9

# Leg of a delivery: the way of its only copy. All pointers are borrowed, and valid while the plan holds.
cdef struct Leg:
    void* link                 # ConsumerLink of this worker; NULL: the copy goes into the ring to another worker
    bint edited                # `edit` changes the message; always False for a copy into a ring
    bint routed                # the link is a RouterOut: neither streams nor tracked deliveries take this leg
    AnnotationsEdit edit

cdef enum PlanVerdict:
    NO_PLAN = 0                # messages take the slow path
    ONE_LEG = 1                # `carry_whole` makes the copy for one consumer
    EACH_CONSUMER = 2          # `forward_all` makes a copy for each consumer of a multicast address
    TAPPED_LEG = 3             # as ONE_LEG, but taps copy the message afterwards
    SAMPLED_LEG = 5            # as ONE_LEG, but spans record the delivery and its copy. For one message, in this worker
    CARRIED = 1                # flag of the verdicts that `carry_whole` executes

# Plan for messages with identical leading sections. Plain struct, embedded in its user. The user calls `composed_drop`
# for `composed` before it uses the struct for other messages.
cdef struct Plan:
    # Table.recent.version for which the plan holds; 0: the whole plan is made for each message. It holds for messages
    # with annotations at offset `at` and with a header of this priority.
    uint64_t version
    size_t at
    int priority
    # The consumer is chosen by load for each message (`choose_again`); the rest of the plan is remembered.
    bint several
    PlanVerdict verdict
    Choice choice              # set for verdicts with CARRIED only
    Leg leg                    # likewise
    ComposedAnnotations composed   # octets of `leg.edit`, for consumers that get router annotations
    void* address              # ForwardingAddress, borrowed
    AddressSlot* slot          # its counters
    # Kind of the messages, see `count_entry`. The handler sets `entry`, `honour` and `anonymous`.
    uint8_t entry
    # Fields of the record, for a copy into a ring. `to` is borrowed from the handler or from a cached prefix.
    Slice to
    int phase
    uint8_t overflow           # Overflow, and K_… flags
    bint honour                # router annotations of the message are used
    bint anonymous             # the message arrived from a client by a link without a target
    bint came_by_router        # the message arrived from another router, an edge router included

# Facts about routing in a message's leading sections, without its properties.
cdef struct LeadingSections:
    const Sections* sections   # of its annotations; NULL: it has none
    size_t at                  # offset of the annotations, or of the place where they would be
    int priority               # of its header, or NO_PRIORITY

cdef inline bint is_section(const uint8_t* p) noexcept nogil:
    """Return True if `p` points to a three-octet section descriptor."""
    return p[0] == 0 and p[1] == T_SMALLULONG


cdef inline bint has_no_annotations(const uint8_t* p, size_t size, LeadingSections* said) noexcept nogil:
    """Return True if the message needs no scan: it has neither delivery-annotations nor message-annotations.

    A header before its properties or body must have `durable` and `priority` in their short encodings. Sets `said`.
    The properties matter only where the address or the policy asks for them.
    """
    said.sections = NULL
    said.at = 0
    said.priority = NO_PRIORITY
    if size < 9 or not is_section(p):
        return False
    if p[2] >= S_PROPERTIES:
        return True
    if p[2] != S_HEADER:
        return False
    if p[3] == T_LIST0:
        said.at = 4
    elif p[3] != T_LIST8 or p[4] < 1:
        return False
    else:
        said.at = 5 + p[4]
        if p[5] and p[6] != T_TRUE and p[6] != T_FALSE and p[6] != T_NULL:
            return False
        if p[5] > p[4] - 1 or (p[5] > 1 and p[7] != T_NULL and (p[7] != T_UBYTE or p[4] < 4)):
            return False
        if p[5] > 1 and p[7] == T_UBYTE:
            said.priority = p[8] if p[8] < HIGHEST_PRIORITY else HIGHEST_PRIORITY
    return said.at + 3 <= size and is_section(p + said.at) and p[said.at + 2] >= S_PROPERTIES


cdef inline void use_scanned_prefix(const ScannedPrefix* last, LeadingSections* said) noexcept nogil:
    """Set `said` from the results of a scan of the same octets."""
    said.sections = &last.sections
    said.at = last.sections.at
    said.priority = last.sections.priority


cdef inline bint plan_holds(const Plan* plan, uint64_t version, const LeadingSections* said) noexcept nogil:
    """Return True if the remembered plan holds for this message. version: current value of Table.recent.version."""
    return plan.version == version and plan.at == said.at and plan.priority == said.priority
