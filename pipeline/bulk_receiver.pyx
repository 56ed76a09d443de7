"""Receiving link for many deliveries without a Python object for each: their octets are stored consecutively, and
outcomes are reported for ranges of them.

`take` returns the deliveries received. The handler is a Python object with

    on_drained(receiver)                   the sender has used or given back all credit

Deliveries that the sender settles later are not distinguished; an outcome for them has no effect there. A range covers
all deliveries of the session, so this must be its only receiver. Its memory is bounded by credit and
`max_message_size`. Larger messages are rejected, and the link continues.
"""
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport INT32_MAX
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.endpoint cimport is_detached
from sluice.router.amqp.session cimport Session
from sluice.router.amqp.spec cimport D_REJECTED

from sluice.router.amqp import codec
from sluice.router.amqp.errors import MESSAGE_SIZE_EXCEEDED, SESSION_INVALID_FIELD, RemoteError

cdef enum:
    FIRST_OCTETS = 65536
    FIRST_ROWS = 1024
    SPARE_MOST = 64 << 20      # octets of a block that is kept
    SPARE_USED = 64            # a block is kept if the last batch used one SPARE_USED-th of it, at least


cdef class SpareBlock:
    """Block of memory for the next batch. New pages would be cleared by the kernel, and copied as the block grows."""

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t* take(self, size_t* room) noexcept:
        """Return the block and its octets; NULL and 0: there is none."""
        cdef uint8_t* data = self.data
        room[0] = self.room
        self.data = NULL
        self.room = 0
        return data

    cdef void give(self, uint8_t* data, size_t used, size_t room) noexcept:
        """Take ownership of a block of which `used` octets were used. Of two blocks the larger one is kept."""
        if room > SPARE_MOST or room // SPARE_USED > used or room < self.room:
            free(data)
            return
        free(self.data)
        self.data = data
        self.room = room


cdef class OctetBuffer:
    """Memory that readers access through the buffer protocol."""

    def __dealloc__(self):
        if self.spare is not None:
            self.spare.give(self.data, self.size, self.room)
        else:
            free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError("read only")
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)

    def __len__(self):
        return self.size


cdef OctetBuffer octets_of(void* data, size_t size, size_t room, SpareBlock spare):
    """Wrap a block of `room` octets, and take ownership of it until `spare` gets it."""
    cdef OctetBuffer octets = OctetBuffer.__new__(OctetBuffer)
    octets.data = <uint8_t*>data
    octets.size = size
    octets.room = room
    octets.spare = spare
    return octets


cdef class Batch:
    """Deliveries that were taken together."""

    @property
    def octets(self):
        """Number of octets of all messages."""
        return self.messages.size


cdef class BulkReceiver(Receiver):
    """Receiving link for many deliveries. Owner: its session, which has no other receiver."""

    def __cinit__(self, handler, *, initial_delivery_count=None, max_message_size=0):
        if not 0 < max_message_size <= INT32_MAX // 2:
            raise ValueError(f"max_message_size is {max_message_size}: it must be 1 to {INT32_MAX // 2}")
        self.spare_data = SpareBlock.__new__(SpareBlock)
        self.spare_offsets = SpareBlock.__new__(SpareBlock)
        self.spare_arrived = SpareBlock.__new__(SpareBlock)

    def __dealloc__(self):
        free(self.data)
        free(self.offsets)
        free(self.arrived)

    @property
    def octets(self):
        """Number of octets that `take` would return now."""
        return self.start if self.within else self.used

    def take(self):
        """Take the complete deliveries as a Batch; None: there are none. An incomplete delivery stays."""
        cdef Batch batch
        cdef size_t end, rest, room
        cdef uint8_t* data
        cdef void* grown
        if self.rows == 0:
            return None
        end = self.start if self.within else self.used
        rest = self.used - end
        data = self.spare_data.take(&room)
        if rest > room:
            grown = realloc(data, rest)
            if grown is NULL:
                self.spare_data.give(data, room, room)
                raise MemoryError("delivery")
            data = <uint8_t*>grown
            room = rest
        if rest:
            memcpy(data, self.data + end, rest)
        batch = Batch.__new__(Batch)
        batch.link = self
        batch.first = self.first
        batch.last = self.last
        batch.rows = self.rows
        batch.messages = octets_of(self.data, end, self.room, self.spare_data)
        batch.offsets = octets_of(self.offsets, (self.rows + 1) * sizeof(int32_t),
                                  (self.rows_room + 1) * sizeof(int32_t), self.spare_offsets)
        batch.arrived = octets_of(self.arrived, self.rows * sizeof(int64_t), self.rows_room * sizeof(int64_t),
                                  self.spare_arrived)
        self.data = data
        self.used = rest
        self.room = room
        self.start = 0
        self.rows = 0
        self.offsets = <int32_t*>self.spare_offsets.take(&room)
        self.rows_room = room // sizeof(int32_t) - 1 if room else 0
        self.arrived = <int64_t*>self.spare_arrived.take(&room)
        self.rows_room = min(self.rows_room, room // sizeof(int64_t))
        return batch

    def settle_range(self, Batch batch not None, bytes state not None):
        """Settle all deliveries of a batch with one disposition. False: the link has ended, and nothing is sent."""
        cdef Slice s
        if is_detached(self) or batch.link is not self:
            return False
        s.data = state
        s.size = len(state)
        self.session.report_outcome(True, batch.first, batch.last - batch.first + 1, &s)
        return True

    cdef int on_transfer(self, const Transfer* t) except -1:
        if not self.within:
            if not self.count_delivery(t):
                return 0
            self.within = True
            self.too_long = False
            self.presettled = False
            self.id = t.delivery_id
            self.start = self.used
        elif t.has_delivery_id and t.delivery_id != self.id:
            raise RemoteError("link", SESSION_INVALID_FIELD,
                              f"transfer: delivery-id {t.delivery_id}, but delivery {self.id} is not complete")
        if t.aborted:
            self.used = self.start
            self.within = False
            return 0
        self.presettled = self.presettled or t.settled
        if not self.too_long:
            if self.used - self.start + t.payload.size > self.max_message_size:
                self.too_long = True
                self.used = self.start
            else:
                self.append(t.payload.data, t.payload.size)
        if t.more:
            return 0
        self.within = False
        if self.too_long:
            self.reject()
        else:
            self.add_row()
        if self.draining and self.credit == 0:
            self.draining = False
            self.handler.on_drained(self)
        return 0

    cdef int append(self, const uint8_t* data, size_t size) except -1:
        cdef size_t room
        cdef void* grown
        if self.room - self.used < size:
            if self.used + size > INT32_MAX:
                raise MemoryError("more than 2 GiB of received messages have not been taken")
            room = self.room * 2 if self.room else FIRST_OCTETS
            while room < self.used + size:
                room *= 2
            grown = realloc(self.data, room)
            if grown is NULL:
                raise MemoryError("delivery")
            self.data = <uint8_t*>grown
            self.room = room
        if size:
            memcpy(self.data + self.used, data, size)
            self.used += size
        return 0

    cdef int add_row(self) except -1:
        cdef size_t room
        cdef void* grown
        if self.rows == self.rows_room:
            room = self.rows_room * 2 if self.rows_room else FIRST_ROWS
            grown = realloc(self.offsets, (room + 1) * sizeof(int32_t))
            if grown is NULL:
                raise MemoryError("delivery")
            self.offsets = <int32_t*>grown
            grown = realloc(self.arrived, room * sizeof(int64_t))
            if grown is NULL:
                raise MemoryError("delivery")
            self.arrived = <int64_t*>grown
            self.rows_room = room
        if self.rows == 0:
            self.offsets[0] = 0
            self.first = self.id
        self.last = self.id
        self.arrived[self.rows] = self.clock()
        self.rows += 1
        self.offsets[self.rows] = <int32_t>self.used
        return 0

    cdef int64_t clock(self) noexcept:
        """Return the time in µs since 1970, read once in each ms of the connection's clock."""
        cdef timespec t
        cdef uint64_t at = self.session.connection.scheduler.now
        if at != self.read_at:
            self.read_at = at
            clock_gettime(CLOCK_REALTIME, &t)
            self.now = <int64_t>t.tv_sec * 1000000 + t.tv_nsec // 1000
        return self.now

    cdef int reject(self) except -1:
        cdef Session session = self.session
        cdef bytes state
        cdef Slice s
        self.rejected += 1
        if self.presettled:
            return 0
        state = codec.encode_described(D_REJECTED, [codec.encode_error(
            MESSAGE_SIZE_EXCEEDED, f"a message has more than {self.max_message_size} octets")])
        s.data = state
        s.size = len(state)
        session.flush_reports()
        return session.report_outcome(True, self.id, 1, &s)
