"""Execution of a plan: from a frame into the consumer's write buffer or queue, or into the ring to its worker.

docs/internals/life-of-a-message.md, "Carry", describes the three ends of a copy. `carry_whole` first checks its
conditions, without any effect. Then it does everything that the slow path would do for this delivery, including every
counter. A change of one path needs the same change of the other. Random conversations take both paths and are compared
(the fuzz targets `paths`, tests/component/router/delivery/test_planner.py).
"""
from libc.stdint cimport uint64_t

from sluice.router.amqp.frames cimport Transfer
from sluice.router.delivery.delivery cimport IN_COMPLETE, IN_CREDITED, IN_ROUTED, InDelivery
from sluice.router.delivery.entry cimport count_entry
from sluice.router.delivery.plan cimport Leg, Plan
from sluice.router.links.consumer_link cimport AnnotationsEdit, ConsumerLink, can_send_now, send_whole
from sluice.router.links.delivery_link cimport delivery_begins
from sluice.router.links.granting_link cimport GrantingLink, count_presettled, is_checkpoint, request_flow, spend_credit
from sluice.router.message.content cimport STREAM_AT
from sluice.router.stats.counters cimport Tally
from sluice.router.table.chooser cimport choice_used, count_choice


cdef inline bint is_plain_arrival(GrantingLink link, const Transfer* t) noexcept:
    """Return True if the frame is a whole delivery with the expected delivery-id, neither aborted nor with a state, and
    its link has credit."""
    return (not t.more and not t.aborted and not t.state.size and t.has_delivery_id and link.credit
            and t.delivery_id == link.session.expected_delivery_id and link.session.any_delivery)


cdef inline size_t octets_out(const Transfer* t, const Leg* leg) noexcept nogil:
    """Return the size of the outgoing message in octets."""
    return t.payload.size - (leg.edit.end - leg.edit.at) + leg.edit.size


cdef inline int write_now(GrantingLink link, ConsumerLink consumer, const Transfer* t, const AnnotationsEdit* edit,
                          Tally* outstanding) except -1:
    """Write the copy of this frame's delivery into the consumer's buffer. Parameters: as of `send_whole`."""
    cdef uint64_t now = link.session.connection.scheduler.now_ns
    cdef bint returns_credit = link.credit_on_forward
    cdef InDelivery* d = NULL
    # As ProducerLink.first_frame does.
    link.session.expected_delivery_id += 1
    spend_credit(link)
    if t.settled:
        link.delivery_count += 1
        link.slot.last_delivery = now
    else:
        link.slot.unsettled += 1
        d = delivery_begins(link, t, IN_COMPLETE)
        if returns_credit:
            d.flags |= IN_CREDITED
        else:
            link.occupied += 1
    send_whole(consumer, d, t.payload.data, t.payload.size, t.message_format, now, edit, outstanding)
    # As ProducerLink.route_content does.
    link.slot.deliveries += 1
    if d is NULL:
        count_presettled(link)
        if not returns_credit:
            request_flow(link)
    else:
        d.flags |= IN_ROUTED
    if returns_credit and not link.needs_flow:
        link.session.want_flow(link)
    return 0


# Write the copy of this frame's delivery into the ring to the consumer's worker. False, without any effect: the ring
# has no room, or other deliveries already wait for it.
cdef bint put_in_ring(GrantingLink link, const Transfer* t, const Plan* plan) except -1
# Store the message of this frame in its outgoing form, and queue the copy at its consumer. False, without any effect:
# the delivery needs the slow path.
cdef bint put_in_queue(GrantingLink link, const Transfer* t, const Plan* plan) except -1


cdef inline void count_carried(const Plan* plan) noexcept:
    """Count the delivery at its address and in the totals, and store its choice, as `deliver` and `forward` do."""
    count_entry(plan.entry, plan.slot)
    choice_used(plan.address, &plan.choice)
    count_choice(plan.slot, &plan.choice)


cdef inline bint carry_whole(GrantingLink link, const Transfer* t, const Plan* plan) except -1:
    """Carry the delivery of this frame by its plan: number it, spend credit, make its structs, put its copy, count.

    False, without any effect: the delivery needs the slow path. `is_plain_arrival` must be true, and the plan must hold
    for this message.
    """
    if plan.leg.routed and (t.payload.size >= STREAM_AT or (t.settled and is_checkpoint(link, t.payload.size))):
        return False                       # a stream, or tracked between routers (Content.checkpoint)
    if plan.leg.link is NULL:
        if not put_in_ring(link, t, plan):
            return False
    elif can_send_now(<ConsumerLink>plan.leg.link, octets_out(t, &plan.leg), t.settled):
        write_now(link, <ConsumerLink>plan.leg.link, t, &plan.leg.edit if plan.leg.edited else NULL,
                  plan.choice.outstanding)
    elif not put_in_queue(link, t, plan):
        return False
    count_carried(plan)
    return True
