"""Frames (AMQP 1.0 part 2, 2.3) and the performatives of the hot path as C structs."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from router.amqp.buffer cimport WriteBuffer
from router.amqp.codec cimport Slice

cdef enum:
    # Transfer.options
    T_RCV_FIRST = 1            # rcv-settle-mode: first
    T_RCV_SECOND = 2           # … second
    T_RESUME = 4
    T_BATCHABLE = 8

# Part 2, 2.7.5. Flags are 0 when absent or false.
cdef struct Transfer:
    uint32_t handle
    uint32_t delivery_id
    uint32_t message_format
    bint has_delivery_id
    bint has_settled
    bint settled
    bint more
    bint aborted
    uint8_t options            # T_ bits: what only matters to the ends
    Slice tag
    Slice state                # encoded delivery state
    Slice payload

# Part 2, 2.7.4.
cdef struct Flow:
    uint32_t next_incoming_id
    uint32_t incoming_window
    uint32_t next_outgoing_id
    uint32_t outgoing_window
    uint32_t handle
    uint32_t delivery_count
    uint32_t link_credit
    bint has_next_incoming_id
    bint has_handle
    bint has_delivery_count
    bint has_link_credit
    uint32_t available
    bint has_available
    bint drain
    bint echo
    Slice properties
    uint32_t given_back        # not on the wire: credit by which a routed sender's delivery-count went ahead (a drain)

# Part 2, 2.7.6.
cdef struct Disposition:
    bint role                  # True: the sender of this frame is the receiver of the deliveries
    uint32_t first
    uint32_t last
    bint settled
    Slice state

cdef int parse_transfer(const uint8_t* p, const uint8_t* end, Transfer* out) except -1
cdef int parse_flow(const uint8_t* p, const uint8_t* end, Flow* out) except -1
cdef int parse_disposition(const uint8_t* p, const uint8_t* end, Disposition* out) except -1

cdef enum:
    TRANSFER_ROOM = 80         # most octets of a transfer frame before its payload: the header, and a tag of 32 octets
    DISPOSITION_ROOM = 48      # a disposition without the octets of its state
    FLOW_ROOM = 88             # a flow without properties

# Each writes a whole frame (the transfer: everything but the payload, whose size it is told) at `w` and returns its
# length. The caller has made room, for a transfer TRANSFER_ROOM octets and the state.
cdef size_t write_transfer(uint8_t* w, uint16_t channel, uint32_t handle, uint32_t delivery_id, const uint8_t* tag,
                           size_t tag_size, uint32_t message_format, bint settled, bint more, bint aborted,
                           const uint8_t* state, size_t state_size, size_t payload) noexcept nogil
# The same for a routed link, which passes on what `t` says of the delivery. first: it is its first transfer. There
# is room for TRANSFER_ROOM octets and the state.
cdef size_t write_routed_transfer(uint8_t* w, uint16_t channel, uint32_t handle, uint32_t delivery_id,
                                  const Transfer* t, bint first, bint settled, bint more, bint aborted,
                                  size_t payload) noexcept nogil
cdef size_t write_disposition(uint8_t* w, uint16_t channel, bint role, uint32_t first, uint32_t last, bint settled,
                              const uint8_t* state, size_t state_size) noexcept nogil
cdef size_t write_flow(uint8_t* w, uint16_t channel, const Flow* flow) noexcept nogil
cdef int write_frame(WriteBuffer* out, uint16_t channel, uint8_t kind, bytes body) except -1
