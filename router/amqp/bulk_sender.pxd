"""A link on which we send many messages without a Python object for any."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.endpoint cimport EntryOwner
from router.amqp.sender cimport Sender

# A message that was given to a link. It begins as the entries in the maps of a session do.
cdef struct Row:
    EntryOwner* owner
    void* messages             # borrowed Messages: its link keeps them
    uint32_t id                # of its delivery
    uint8_t state              # ROW_

# Messages, encoded, one after the other, and which of them are done. It is filled first, then sent; it outlives the
# links by which it is sent. Owner: the code that made it, and a link until all are done.
cdef class Messages:
    cdef uint8_t* data
    cdef readonly size_t size
    cdef size_t room
    cdef size_t* ends
    cdef size_t ends_room
    cdef readonly size_t count
    cdef readonly size_t left              # messages that are not done
    cdef Row* rows                         # NULL until it is sent
    cdef size_t next                       # the first message that was not written to its link
    cdef size_t begun                      # octets of that one which were
    cdef object link                       # its BulkSender, or None
    cdef uint8_t* more(self, size_t size) except NULL
    cdef int finish(self) except -1
    cdef size_t start_of(self, size_t row) noexcept

# Owner: its session.
cdef class BulkSender(Sender):
    # Set before it is attached:
    cdef public bint presettled            # all messages are sent settled
    cdef public uint32_t most              # messages that may be unsettled, 0: any number
    cdef readonly uint32_t flying          # … and that are
    cdef readonly uint64_t accepted
    cdef list kept                         # Messages that are not done
    cdef bint abort                        # the message that is being written was settled
    cdef int write_row(self, Messages messages, size_t* budget) except -1
    cdef int skip_done(self, Messages messages) except -1
    cdef int done(self, Row* row) except -1
