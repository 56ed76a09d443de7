"""Sending link for many messages without a Python object for each: their octets are stored consecutively
(`MessageBatch`), and accepted messages are only counted.

The handler is a Python object with

    on_credit(sender)                      the receiver has granted credit
    on_outcome(sender, octets, state)      a message was not accepted; state: encoded, or b""

With a `transfer_state`, `on_outcome` gets every outcome that `learn_accepted` was not called for.

Messages that are sent settled are not done before `settle_written` is called.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from sluice.router.amqp.buffer cimport buffer_room, buffer_used, write32
from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.endpoint cimport LINK_QUANTUM, TURN_DONE, TURN_MORE, TURN_WINDOW, is_detached
from sluice.router.amqp.frames cimport TRANSFER_ROOM, write_transfer
from sluice.router.amqp.id_map cimport map_put, map_take
from sluice.router.amqp.session cimport Session
from sluice.router.amqp.spec cimport D_ACCEPTED
from sluice.router.amqp.states cimport plain_state, terminal
from sluice.router.client.sender cimport check_transfer_state

from sluice.router.amqp.errors import LocalError, delivery_id_in_use

cdef enum:
    FIRST_OCTETS = 65536
    FIRST_ENDS = 1024
    TAG_OCTETS = 4

cdef enum:
    ROW_WAITS = 0
    ROW_FLIES = 1
    ROW_DONE = 2


cdef class MessageBatch:
    def __dealloc__(self):
        free(self.data)
        free(self.ends)
        free(self.rows)

    @classmethod
    def of(cls, messages):
        """Create it from an iterable of encoded messages."""
        cdef MessageBatch made = cls()
        for each in messages:
            made.add(each)
        return made

    def add(self, bytes octets not None):
        """Append a message."""
        if len(octets):
            memcpy(self.more(len(octets)), <const uint8_t*>octets, len(octets))
        self.finish()

    cdef uint8_t* more(self, size_t size) except NULL:
        """Return memory for `size` more octets of the unfinished message, to be filled by the caller."""
        cdef size_t room
        cdef void* grown
        cdef uint8_t* p
        if self.rows is not NULL:
            raise LocalError("link", "amqp:not-allowed", "these messages are being sent")
        if self.room - self.size < size:
            room = 2 * self.room + size + FIRST_OCTETS
            grown = realloc(self.data, room)
            if grown is NULL:
                raise MemoryError("messages")
            self.data = <uint8_t*>grown
            self.room = room
        p = self.data + self.size
        self.size += size
        return p

    cdef int finish(self) except -1:
        """End the unfinished message."""
        cdef void* grown
        if self.rows is not NULL:
            raise LocalError("link", "amqp:not-allowed", "these messages are being sent")
        if self.count == self.ends_room:
            grown = realloc(self.ends, (2 * self.ends_room + FIRST_ENDS) * sizeof(size_t))
            if grown is NULL:
                raise MemoryError("messages")
            self.ends = <size_t*>grown
            self.ends_room = 2 * self.ends_room + FIRST_ENDS
        self.ends[self.count] = self.size
        self.count += 1
        self.left += 1
        return 0

    cdef size_t start_of(self, size_t row) noexcept:
        return self.ends[row - 1] if row else 0

    def __getitem__(self, size_t row):
        """Encoded message at an index."""
        cdef size_t start
        if row >= self.count:
            raise IndexError(row)
        start = self.start_of(row)
        return PyBytes_FromStringAndSize(<const char*>self.data + start, self.ends[row] - start)


cdef class BulkSender(Sender):
    """Sending link for many messages. Owner: its session."""

    def __cinit__(self, handler, **options):
        self.kept = []
        self.transfer_state = b""

    def give(self, MessageBatch messages not None):
        """Send the messages that are not done. Messages of a lost link can be given to the next link."""
        cdef size_t row
        if is_detached(self):
            raise LocalError("link", "amqp:not-allowed", f"link {self.name} is detached")
        check_transfer_state(self.transfer_state)
        if messages.link is not None:
            raise LocalError("link", "amqp:not-allowed", f"link {messages.link.name} has these messages")
        if messages.left == 0:
            return
        if messages.rows is NULL:
            messages.rows = <MessageRow*>calloc(messages.count, sizeof(MessageRow))
            if messages.rows is NULL:
                raise MemoryError("messages")
            for row in range(messages.count):
                messages.rows[row].messages = <void*>messages
        messages.link = self
        messages.next = 0
        messages.begun = 0
        self.kept.append(messages)
        self.queue.append(messages)
        self.mark_ready()

    def learn_accepted(self, bytes state not None):
        """Count the message whose outcome is being reported, and all later ones with this state, as accepted.

        state: encoded as the peer has sent it: a transactional-state with outcome accepted.
        """
        self.accepted += 1
        self.accepted_state = state

    def settle_written(self):
        """Mark all messages written settled as done; return their number."""
        cdef MessageBatch messages
        cdef size_t row
        cdef uint64_t before = self.accepted
        if self.presettled:
            for messages in list(self.kept):
                for row in range(messages.next):
                    if messages.rows[row].state == ROW_FLIES:
                        self.accepted += 1
                        self.done(&messages.rows[row])
        return self.accepted - before

    cdef int done(self, MessageRow* row) except -1:
        cdef MessageBatch messages = <MessageBatch>row.messages
        row.state = ROW_DONE
        self.rows_in_flight -= 1
        messages.left -= 1
        if messages.left == 0:
            messages.link = None
            self.kept.remove(messages)
        return 0

    cdef int skip_done(self, MessageBatch messages) except -1:
        while messages.next < messages.count and messages.rows[messages.next].state == ROW_DONE:
            messages.next += 1
        return 0

    cdef int pump(self, size_t budget) except -1:
        cdef Session session = self.session
        cdef MessageBatch messages
        if is_detached(self) or session.ended:
            return TURN_DONE
        while self.queue:
            messages = self.queue[0]
            if not messages.begun:
                self.skip_done(messages)
                if messages.next == messages.count:
                    self.queue.popleft()
                    continue
                if not self.credit or (self.most and self.rows_in_flight >= self.most):
                    break
            if not session.remote_incoming_window:
                return TURN_WINDOW
            if buffer_used(&session.connection.out) >= self.output_high or budget == 0:
                return TURN_MORE
            self.write_row(messages, &budget)
        if self.drain:  # also while messages wait for outcomes: the receiver may wait for this answer
            self.finish_drain()
        return TURN_DONE

    cdef int write_row(self, MessageBatch messages, size_t* budget) except -1:
        """Write one frame of a message."""
        cdef Session session = self.session
        cdef Connection connection = session.connection
        cdef MessageRow* row = &messages.rows[messages.next]
        cdef size_t start = messages.start_of(messages.next)
        cdef size_t left = messages.ends[messages.next] - start - messages.begun
        cdef bint more, begins = row.state == ROW_WAITS
        cdef size_t state = len(self.transfer_state) if begins else 0
        cdef size_t part = connection.remote_max_frame - TRANSFER_ROOM - state
        cdef uint8_t[TAG_OCTETS] tag
        cdef uint8_t* w
        if part > LINK_QUANTUM:
            part = LINK_QUANTUM
        if part > left:
            part = left
        if self.abort:
            part = 0
        more = part < left and not self.abort
        w = buffer_room(&connection.out, TRANSFER_ROOM + state + part)
        if begins:
            row.owner = &self.entry_owner
            row.id = session.next_delivery_id
            if not self.presettled and not map_put(&session.sent, row.id, row):
                raise delivery_id_in_use()
            row.state = ROW_FLIES
            self.rows_in_flight += 1
            session.next_delivery_id += 1
            self.delivery_count += 1
            self.credit -= 1
        write32(tag, row.id)           # unique among the unsettled deliveries of the session, and so of the link
        w += write_transfer(w, session.local_channel, self.handle, row.id, tag, TAG_OCTETS, 0, self.presettled, more,
                            self.abort, <const uint8_t*>self.transfer_state, state, part)
        memcpy(w, messages.data + start + messages.begun, part)
        connection.out.end = w + part - connection.out.data
        messages.begun += part
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        part += TRANSFER_ROOM              # a frame counts, too: messages may be tiny
        budget[0] = budget[0] - part if budget[0] > part else 0
        if not more:
            messages.begun = 0
            messages.next += 1
            self.abort = False
        return 0

    cdef int delivery_outcome(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        cdef MessageRow* row = <MessageRow*>entry
        cdef MessageBatch messages = <MessageBatch>row.messages
        cdef Slice none
        cdef size_t at = row - messages.rows
        if not settled:
            if not terminal(kind):
                return 0
            none = plain_state(0)
            self.session.report_outcome(False, row.id, 1, &none)  # the receiver waits for the settlement
        map_take(&self.session.sent, row.id)
        if at == messages.next and messages.begun:
            self.abort = True              # settled before its last frame: do not send the remaining octets
            self.mark_ready()
        self.done(row)
        if self.most and self.rows_in_flight == self.most - 1 and self.queue:
            self.mark_ready()
        if self.counts_as_accepted(kind, state):
            self.accepted += 1
        else:
            self.handler.on_outcome(self, messages[at], state.data[:state.size] if state.size else b"")
        return 0

    cdef bint counts_as_accepted(self, uint8_t kind, const Slice* state) noexcept:
        """True if an outcome is accepted: in a transaction, a state that `learn_accepted` was given. Accepted alone is
        an outcome outside of the transaction."""
        cdef bytes known = self.accepted_state
        if not self.transfer_state:
            return kind == D_ACCEPTED
        return known is not None and state.size == <size_t>len(known) \
            and memcmp(<const uint8_t*>known, state.data, state.size) == 0

    cdef bint has_deliveries(self) noexcept:
        return self.rows_in_flight > 0 and not self.presettled

    cdef int forget_all(self) except -1:
        """Make unfinished messages wait again, for another link."""
        cdef MessageBatch messages
        cdef size_t row
        for messages in self.kept:
            for row in range(messages.count):
                if messages.rows[row].state == ROW_FLIES:
                    if not self.presettled:
                        map_take(&self.session.sent, messages.rows[row].id)
                    messages.rows[row].state = ROW_WAITS
            messages.link = None
        self.kept = []
        self.queue.clear()
        self.rows_in_flight = 0
        return 0
