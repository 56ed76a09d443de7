"""Plan of a delivery: the choice of its leg, and the edit of the message (plan.pxd)."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.items cimport items_in
from sluice.router.delivery.entry cimport is_entry
from sluice.router.delivery.plan cimport EACH_CONSUMER, NO_PLAN, ONE_LEG, TAPPED_LEG, LeadingSections, Leg, Plan
from sluice.router.table.consumer cimport Consumer
from sluice.router.table.chooser cimport choose
from sluice.router.table.table cimport MULTICAST, SPECIAL_TAPPED, ForwardingAddress
from sluice.router.ring.records cimport K_AS_IS
from sluice.router.links.consumer_link cimport ConsumerLink
from sluice.router.message.annotations cimport ComposedAnnotations, composed_keep
from sluice.router.message.content cimport Content


cdef inline bint never_carried(ForwardingAddress address) noexcept:
    """Return True if no message of the address can have a plan before the table changes."""
    return address.exchange is not None or address.special or address.treatment > MULTICAST \
        or (address.remotes is None and items_in(<void*>address.consumers) == 0)


cdef bint is_only_tapped(ForwardingAddress address) noexcept:
    """Return True if messages of the address have plans except that taps copy them, which nothing waits for."""
    return address.special == SPECIAL_TAPPED and address.exchange is None and address.treatment < MULTICAST \
        and (address.remotes is not None or items_in(<void*>address.consumers) != 0)


cdef inline bint choose_leg(Plan* plan, ForwardingAddress address, uint32_t came_by, const LeadingSections* said,
                            uint64_t producer) noexcept:
    """Choose the consumer that gets the next delivery. Returns False if there is none."""
    cdef void* chosen
    if address.remotes is not None and address.version != address.network.version:
        return False
    choose(address, came_by, producer, said.priority, NULL if said.sections is NULL else &said.sections.ingress,
           &plan.choice)
    chosen = plan.choice.consumer
    if chosen is NULL:
        return False
    plan.leg.link = NULL if (<Consumer>chosen).link is None else <void*>(<Consumer>chosen).link
    return True


cdef bint keep_composed_annotations(ComposedAnnotations* kept, const LeadingSections* said, const Slice* to,
                                    int phase) noexcept:
    """Compose the annotations for links that send router annotations, and keep them."""
    cdef Content c
    memset(&c, 0, sizeof(Content))
    if said.sections is not NULL:
        c.sections = said.sections[0]
    c.to = to[0]
    c.phase = phase
    return composed_keep(kept, &c)


cdef inline bint choose_edit(Leg* leg, const LeadingSections* said, ComposedAnnotations* kept, const Slice* to,
                             int phase) noexcept:
    """Set the edit that gives the message the annotations of the leg's consumer.

    Returns False if the annotations must be composed for each message.
    """
    cdef ConsumerLink link = <ConsumerLink>leg.link
    leg.routed = link.routed
    leg.edited = False
    leg.edit.at = leg.edit.end = said.at
    leg.edit.octets = NULL
    leg.edit.size = 0
    if link.annotations:
        if not link.plain and not link.routed:
            return False
        if kept.octets is NULL and not keep_composed_annotations(kept, said, to, phase):
            return False
        leg.edited = True
        leg.edit.octets = kept.octets
        leg.edit.size = kept.size
    elif not link.plain:
        return False
    if said.sections is not NULL and (link.annotations or said.sections.rewrite):
        if not link.annotations and said.sections.pairs:
            return False                   # users' annotations stay
        leg.edited = True
        leg.edit.end = said.sections.end
    return True


cdef bint make_plan(Plan* plan, ForwardingAddress address, uint64_t version, uint32_t came_by, uint64_t producer,
                    const LeadingSections* said, const Slice* to, int phase) noexcept:
    plan.version = 0
    plan.verdict = NO_PLAN
    plan.several = False
    plan.at = said.at
    plan.priority = said.priority
    plan.address = <void*>address
    plan.slot = address.slot
    plan.overflow = <uint8_t>address.overflow
    plan.came_by_router = came_by != 0
    plan.to = to[0]
    plan.phase = phase
    if never_carried(address):
        if not is_only_tapped(address):
            plan.version = version
            return False
        if not plan_leg(plan, address, version, came_by, producer, said, to, phase):
            return False
        if is_entry(plan.entry):
            plan.verdict = TAPPED_LEG
        return True
    if address.treatment == MULTICAST:
        plan.version = version
        if said.sections is not NULL or came_by:
            return False
        plan.verdict = EACH_CONSUMER
        return True
    return plan_leg(plan, address, version, came_by, producer, said, to, phase)


cdef inline bint plan_leg(Plan* plan, ForwardingAddress address, uint64_t version, uint32_t came_by, uint64_t producer,
                          const LeadingSections* said, const Slice* to, int phase) noexcept:
    """Plan a copy for one consumer; see `make_plan`."""
    if (said.sections is not NULL and said.sections.hops > address.network.hop_limit) \
            or not choose_leg(plan, address, came_by, said, producer):
        return False
    if plan.leg.link is NULL:
        # The other worker scans the message again and composes its annotations.
        plan.leg.edited = plan.leg.routed = False
        if said.sections is NULL or not said.sections.rewrite:
            plan.overflow |= K_AS_IS
    elif not choose_edit(&plan.leg, said, &plan.composed, to, phase):
        return False
    plan.verdict = ONE_LEG
    if plan.choice.alone:
        plan.version = version
    elif not plan.choice.remote and is_usual_leg(plan.leg.link) and chosen_by_load(address):
        plan.version = version
        plan.several = True
    return True
