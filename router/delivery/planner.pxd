"""Planning of a delivery (plan.pxd)."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.items cimport items_in
from sluice.router.delivery.plan cimport LeadingSections, Plan, plan_holds
from sluice.router.links.consumer_link cimport ConsumerLink
from sluice.router.table.consumer cimport Consumer
from sluice.router.table.chooser cimport FEW_CONSUMERS, choose_least_loaded
from sluice.router.table.table cimport BALANCED, ForwardingAddress

# Plan a producer's next delivery to this address. False: it has no plan.
# came_by: number of the inter-router or edge connection that the message arrived by; 0: another kind of connection.
# to, phase: as in Content.
cdef bint make_plan(Plan* plan, ForwardingAddress address, uint64_t version, uint32_t came_by, uint64_t producer,
                    const LeadingSections* said, const Slice* to, int phase) noexcept


cdef inline bint is_usual_leg(void* link) noexcept:
    """Return True for a link of this worker whose consumer gets no router annotations, as nearly all clients' links."""
    return link is not NULL and (<ConsumerLink>link).plain and not (<ConsumerLink>link).annotations


cdef inline bint chosen_by_load(ForwardingAddress address) noexcept:
    """Return True for a balanced address with at most FEW_CONSUMERS consumers, all on this router."""
    return address.treatment == BALANCED and address.remotes is None and address.served is None \
        and items_in(<void*>address.consumers) <= FEW_CONSUMERS


cdef inline bint choose_again(Plan* plan, ForwardingAddress address, uint32_t came_by) noexcept:
    """Choose the consumer for another message of a plan with `several`. False: the whole plan must be made again."""
    cdef void* link
    choose_least_loaded(address, came_by, &plan.choice)
    if plan.choice.consumer is NULL or (<Consumer>plan.choice.consumer).link is None:
        return False
    link = <void*>(<Consumer>plan.choice.consumer).link
    if not is_usual_leg(link):
        return False
    plan.leg.link = link
    return True


cdef inline bint is_ready(Plan* plan, uint64_t version, const LeadingSections* said, void* address,
                          uint32_t came_by) noexcept:
    """Return True if the remembered plan holds for this message; choose its consumer again if it has several.

    address: the plan's ForwardingAddress, borrowed.
    """
    return plan_holds(plan, version, said) \
        and (not plan.several or choose_again(plan, <ForwardingAddress>address, came_by))
