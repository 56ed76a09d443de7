"""Sending link for many messages without a Python object for each."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.endpoint cimport DeliveryEntryOwner
from sluice.router.client.sender cimport Sender

# Message that was given to a link. Begins like the entries in the maps of a session.
cdef struct MessageRow:
    DeliveryEntryOwner* owner
    void* messages             # borrowed MessageBatch, which its link keeps
    uint32_t id                # delivery-id
    uint8_t state              # ROW_

# Consecutive encoded messages, and which of them are done. It is filled first, then sent, and outlives the links by
# which it is sent. Owner: the code that created it, and a link until all messages are done.
cdef class MessageBatch:
    cdef uint8_t* data
    cdef readonly size_t size
    cdef size_t room
    cdef size_t* ends
    cdef size_t ends_room
    cdef readonly size_t count
    cdef readonly size_t left              # number of messages that are not done
    cdef MessageRow* rows                         # NULL until sent
    cdef size_t next                       # index of the first message that is not fully written to its link
    cdef size_t begun                      # number of its octets that are written
    cdef object link                       # its BulkSender, or None
    cdef uint8_t* more(self, size_t size) except NULL
    cdef int finish(self) except -1
    cdef size_t start_of(self, size_t row) noexcept

# Sending link for many messages. Owner: its session.
cdef class BulkSender(Sender):
    # Options, set before the link is attached.
    cdef public bint presettled            # all messages are sent settled
    cdef public uint32_t most              # most messages that may be unsettled; 0: any number
    cdef public bytes transfer_state       # encoded delivery state of each first transfer; b"": none
    cdef readonly uint32_t rows_in_flight          # number of messages written and not done
    cdef readonly uint64_t accepted
    cdef list kept                         # MessageBatch objects that are not done
    cdef bytes accepted_state              # encoded state that counts as accepted, of learn_accepted; or None
    cdef bint abort                        # the message being written was settled
    cdef int write_row(self, MessageBatch messages, size_t* budget) except -1
    cdef int skip_done(self, MessageBatch messages) except -1
    cdef int done(self, MessageRow* row) except -1
    cdef bint counts_as_accepted(self, uint8_t kind, const Slice* state) noexcept
