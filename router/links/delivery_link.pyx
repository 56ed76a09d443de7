"""Base of the router's links: a link of the protocol that is a delivery node with counters.

Outgoing copies of all kinds of links take the same steps. They wait in the queue of the link's node, `pump` writes
them as frames in the link's turn, and those that the peer has not settled are then in the node's list of sent copies.
Links differ in when a delivery may start, in the head of its transfers, and in what follows when it is written.
"""
from libc.string cimport memcpy

from sluice.router.amqp.buffer cimport buffer_room, buffer_used
from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.endpoint cimport LINK_QUANTUM, TURN_DONE, TURN_MORE, TURN_WINDOW, is_detached, is_open
from sluice.router.amqp.frames cimport TRANSFER_ROOM, Flow
from sluice.router.amqp.id_map cimport map_take
from sluice.router.amqp.meter cimport DELIVERY_OCTETS, meter_release
from sluice.router.amqp.session cimport Session
from sluice.router.amqp.spec cimport D_MODIFIED
from sluice.router.amqp.state_reports cimport reports_forget
from sluice.router.amqp.states cimport plain_state, state_kind
from sluice.router.delivery.delivery cimport (
    OUT_ABORT, OUT_LATE_SETTLED, OUT_PARTIAL, OUT_QUEUED, OUT_SETTLED, OUT_STARTED, NodeCalls, out_free,
)
from sluice.router.message.content cimport cursor_close, cursor_read, message_release
from sluice.router.stats.counters cimport PrivateSlot, count_finished, count_outcome, totals

from sluice.router.amqp.errors import SESSION_INVALID_FIELD, RemoteError


cdef int wrong_delivery(const InDelivery* d, const Transfer* t) except -1:
    raise RemoteError("link", SESSION_INVALID_FIELD,
                      f"transfer: delivery-id {t.delivery_id}, but delivery {<uint32_t>d.key} is not complete")


cdef Slice first_state(const OutDelivery* o, size_t most) noexcept:
    """Return the delivery state for the first transfer of a copy; only its kind, if it is too long for the peer."""
    cdef Slice state
    state.data = o.message.state
    state.size = o.message.state_size
    return state if state.size < most else plain_state(state_kind(&state))


cdef class DeliveryLink(Link):
    def __cinit__(self):
        cdef PrivateSlot private = PrivateSlot()
        self.slot = private.slot
        self.slot_owner = private
        self.node.owner = <void*>self
        self.node.calls = &NODE_CALLS

    def __dealloc__(self):
        if self.node.meter is not NULL:
            meter_release(self.node.meter)

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1:
        return False

    cdef int returned(self, InDelivery* d) except -1:
        raise NotImplementedError

    cdef int more(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int producer_lost(self, OutDelivery* o) except -1:
        """Settle a sent copy as modified: its consumer learns that its settlement reaches nobody.

        A queued copy is still delivered.
        """
        cdef Slice state
        if o.flags & OUT_QUEUED:
            return 0
        state = plain_state(D_MODIFIED)
        return self.producer_update(o, D_MODIFIED, &state, True)

    cdef void unstuck(self) noexcept:
        self.slot.stuck -= 1
        totals.stuck -= 1

    cdef uint32_t count_stuck(self, uint32_t marked) noexcept:
        self.slot.stuck += marked
        totals.stuck += marked
        return marked

    cdef uint32_t mark_stuck(self, uint64_t before) noexcept:
        return 0

    cdef size_t octets_awaited(self) noexcept:
        if self.session.connection.relays:
            return 0
        if self.incoming:
            return DELIVERY_OCTETS * <size_t>self.node.in_count if self.node.meter is not NULL else 0
        return DELIVERY_OCTETS * <size_t>self.slot.unsettled

    cdef bint has_deliveries(self) noexcept:
        return self.node.in_first is not NULL or self.node.queue_first is not NULL or self.node.sent_first is not NULL

    cdef int send_state(self, uint32_t credit, bint drain) except -1:
        cdef Flow f
        f.has_handle = True
        f.echo = False
        f.handle = self.handle
        f.delivery_count = self.delivery_count
        f.link_credit = credit
        f.drain = drain
        return self.session.send_flow(&f)

    def close_with(self, condition, description):
        """Detach from our side. Frames for the handle are absorbed until the peer's detach."""
        if is_detached(self):
            return
        self.leave(True)
        self.session.send_detach(self.handle, True, condition, description)

    # -- the queue ----------------------------------------------------------------------------------------------------

    cdef int pump(self, size_t budget) except -1:
        cdef OutDelivery* o
        cdef Session session = self.session
        if not is_open(self) or session.ended:
            return TURN_DONE
        while self.node.queue_first is not NULL:
            o = self.node.queue_first
            if not o.flags & (OUT_STARTED | OUT_ABORT) and not self.may_start():
                break
            if not session.remote_incoming_window:
                return TURN_WINDOW
            if o.flags & OUT_ABORT:
                self.write_abort(o)
                continue
            if buffer_used(&session.connection.out) >= self.output_high or budget == 0:
                return TURN_MORE
            if self.write_part(o, &budget) == 0:
                return TURN_DONE
        self.pumped()
        return TURN_DONE

    cdef bint may_start(self) noexcept:
        return True

    cdef int pumped(self) except -1:
        return 0

    cdef size_t write_head(self, uint8_t* w, OutDelivery* o, const Slice* state, bint first, bint settled, bint more,
                           bint aborted, size_t payload) noexcept:
        return 0

    cdef int write_part(self, OutDelivery* o, size_t* budget) except -1:
        cdef Session session = self.session
        cdef Connection connection = session.connection
        cdef size_t left = (o.prefix_size - o.prefix_at) + <size_t>(o.message.size - o.taken)
        cdef size_t most = connection.remote_max_frame - TRANSFER_ROOM
        cdef size_t part, from_prefix
        cdef bint first = not o.flags & OUT_STARTED
        cdef bint more
        cdef uint8_t* w
        cdef Slice state
        state.data = NULL
        state.size = 0
        if left == 0 and not o.message.complete:
            return 0
        if first:
            self.start(o)
            if o.message.state is not NULL:
                state = first_state(o, most)
                most -= state.size
        if most > LINK_QUANTUM:
            most = LINK_QUANTUM
        part = left if left < most else most
        more = part < left or not o.message.complete
        w = buffer_room(&connection.out, TRANSFER_ROOM + state.size + part)
        w += self.write_head(w, o, &state, first, o.flags & OUT_SETTLED and not (o.flags & OUT_LATE_SETTLED and more),
                             more, False, part)
        from_prefix = o.prefix_size - o.prefix_at
        if from_prefix > part:
            from_prefix = part
        if from_prefix:
            memcpy(w, o.prefix + o.prefix_at, from_prefix)
            o.prefix_at += <uint32_t>from_prefix
            w += from_prefix
        if part > from_prefix:
            cursor_read(&o.cursor, w, part - from_prefix)
            o.taken += part - from_prefix
            w += part - from_prefix
        connection.out.end = w - connection.out.data
        frame_written(session)
        o.octets += <uint32_t>part
        self.slot.octets += part
        part += TRANSFER_ROOM              # the frame counts as well: messages may be tiny
        budget[0] = budget[0] - part if budget[0] > part else 0
        if not more:
            leave_queue(self, o)
            cursor_close(&o.cursor)
            message_release(o.message)
            o.message = NULL
            copy_written(self, o)
        return 1

    cdef int write_abort(self, OutDelivery* o) except -1:
        """End a copy that stays incomplete; the consumer gets an aborted transfer (2.7.5)."""
        cdef Session session = self.session
        cdef bint first = not o.flags & OUT_STARTED
        cdef uint8_t* w
        cdef Slice state
        state.data = NULL
        state.size = 0
        if first:
            self.start(o)
            state = first_state(o, session.connection.remote_max_frame - TRANSFER_ROOM)
        w = buffer_room(&session.connection.out, TRANSFER_ROOM + state.size)
        session.connection.out.end += self.write_head(w, o, &state, first, True, False, True, 0)
        frame_written(session)
        map_take(&session.sent, o.id)
        leave_queue(self, o)
        out_free(o)
        return 0

    cdef int start(self, OutDelivery* o) except -1:
        return start_copy(self, o)

    cdef int left_settled(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef void unqueue(self, OutDelivery* o) noexcept:
        leave_queue(self, o)

    cdef int abandon(self, OutDelivery* o) except -1:
        if o.flags & OUT_STARTED:
            o.flags |= OUT_ABORT
            cursor_close(&o.cursor)        # the consumer may let the copy wait here for long
            return self.mark_ready()
        self.unqueue(o)
        out_free(o)
        return 0

    # -- sent copies --------------------------------------------------------------------------------------------------

    cdef int update_started(self, OutDelivery* o, const Slice* state, bint settled) except -1:
        if o.flags & OUT_SETTLED:
            return 0
        if settled:
            map_take(&self.session.sent, o.id)
            reports_forget(&self.session.sent_states, o.id)
            if o.flags & (OUT_QUEUED | OUT_PARTIAL):
                # Not all of it is written: its last frame carries the settlement.
                o.flags |= OUT_SETTLED | OUT_LATE_SETTLED
                return 0
        if not settled:
            return self.session.report_state(False, o.id, state)
        self.session.report_outcome(False, o.id, 1, state)
        count_finished(self.slot, self.session.connection.scheduler.second)
        if o.kind:
            count_outcome(self.slot, o.kind)   # set by the consumer, which waited for this settlement
        return settle_sent(self, o)


ctypedef DeliveryLink NodeObject
include "../delivery/node_calls.pxi"
