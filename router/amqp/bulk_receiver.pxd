"""A link on which we receive many deliveries without looking at any."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from router.amqp.frames cimport Transfer
from router.amqp.receiver cimport Receiver

# Memory that Python code looks at through the buffer protocol. Owner: whoever has the object.
cdef class Octets:
    cdef uint8_t* data
    cdef readonly size_t size

# Deliveries of one link, one after the other. Owner: the code that took it.
cdef class Batch:
    cdef readonly object link              # its BulkReceiver
    cdef readonly uint32_t first           # delivery-ids
    cdef readonly uint32_t last
    cdef readonly size_t rows
    cdef readonly Octets messages          # all octets of all messages
    cdef readonly Octets offsets           # rows + 1 int32: where each begins, and the end of the last one
    cdef readonly Octets arrived           # rows int64: µs since 1970

# Owner: its session, which has no other receiver.
cdef class BulkReceiver(Receiver):
    cdef uint8_t* data                     # of the messages that came since the last `take`
    cdef size_t used
    cdef size_t room
    cdef int32_t* offsets                  # of `rows` messages, and of the one that comes
    cdef int64_t* arrived
    cdef readonly size_t rows
    cdef size_t rows_room
    cdef uint32_t first                    # delivery-ids of the first and the last row
    cdef uint32_t last
    cdef bint within                       # a delivery is not complete
    cdef bint too_long                     # … and will be rejected
    cdef bint presettled
    cdef uint32_t id                       # its delivery-id
    cdef size_t start                      # its first octet in `data`
    cdef uint64_t read_at                  # ms of the connection's clock when `now` was read
    cdef int64_t now                       # µs since 1970
    cdef readonly uint64_t rejected        # messages that were too long
    cdef int append(self, const uint8_t* data, size_t size) except -1
    cdef int add_row(self) except -1
    cdef int reject(self) except -1
    cdef int64_t clock(self) noexcept
