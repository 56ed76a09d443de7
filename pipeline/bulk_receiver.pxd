"""Receiving link for many deliveries without a Python object for each."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from sluice.router.amqp.frames cimport Transfer
from sluice.router.client.receiver cimport Receiver

# Block of memory that a batch has given back, for a later one. Owners: a receiver and the buffers of its batches.
cdef class SpareBlock:
    cdef uint8_t* data
    cdef size_t room
    cdef uint8_t* take(self, size_t* room) noexcept
    cdef void give(self, uint8_t* data, size_t used, size_t room) noexcept

# Memory that Python code reads through the buffer protocol. Owner: the code that has the object.
cdef class OctetBuffer:
    cdef uint8_t* data
    cdef readonly size_t size
    cdef size_t room
    cdef SpareBlock spare                  # gets the memory back

# Consecutive deliveries of one link. Owner: the code that took it.
cdef class Batch:
    cdef readonly object link              # its BulkReceiver
    cdef readonly uint32_t first           # delivery-id of the first delivery
    cdef readonly uint32_t last            # delivery-id of the last delivery
    cdef readonly size_t rows
    cdef readonly OctetBuffer messages          # octets of all messages
    cdef readonly OctetBuffer offsets           # rows + 1 int32: start of each message, and the end of the last one
    cdef readonly OctetBuffer arrived           # rows int64: time of arrival in µs since 1970

# Receiving link for many deliveries. Owner: its session, which has no other receiver.
cdef class BulkReceiver(Receiver):
    cdef uint8_t* data                     # octets of the messages received since the last `take`
    cdef size_t used
    cdef size_t room
    cdef int32_t* offsets                  # of `rows` messages, and of the incomplete one
    cdef int64_t* arrived
    cdef SpareBlock spare_data
    cdef SpareBlock spare_offsets
    cdef SpareBlock spare_arrived
    cdef readonly size_t rows
    cdef size_t rows_room
    cdef uint32_t first                    # delivery-id of the first row
    cdef uint32_t last
    cdef bint within                       # a delivery is incomplete
    cdef bint too_long                     # the incomplete delivery will be rejected
    cdef bint presettled
    cdef uint32_t id                       # delivery-id of the incomplete delivery
    cdef size_t start                      # offset of its first octet in `data`
    cdef readonly uint64_t read_at         # connection's clock in ms at the arrival of the last message
    cdef int64_t now                       # time in µs since 1970
    cdef readonly uint64_t rejected        # number of messages that were too large
    cdef int append(self, const uint8_t* data, size_t size) except -1
    cdef int add_row(self) except -1
    cdef int reject(self) except -1
    cdef int64_t clock(self) noexcept
