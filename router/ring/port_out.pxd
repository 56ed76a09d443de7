"""Deliveries to another worker: a port is the downstream of their copies."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.id_map cimport IdMap, map_put
from sluice.router.amqp.meter cimport Meter
from sluice.router.delivery.delivery cimport OUT_STARTED, DeliveryNode, InDelivery, NodeOwner, OutDelivery
from sluice.router.ring.outbox cimport Outbox, commit
from sluice.router.ring.records cimport (
    F_AT_HAND, R_TRANSFER, RECORD_OCTETS, DeliveryRecord, DeliveryHead, RecordTarget, TransferRecord, encode_transfer,
    transfer_octets,
)
from sluice.router.ring.ring cimport ring_longest, ring_reserve
from sluice.router.message.content cimport Content, Message

cdef enum:
    # Octets of one streamed delivery that may be with the other worker before it reports that some have left.
    STREAM_WINDOW = 262144

# Downstream of copies for the peer's consumers. Owner: the port.
cdef class PortOut(NodeOwner):
    cdef Outbox outbox
    cdef uint64_t next_key                 # key of the next delivery
    cdef IdMap sent                        # key -> OutDelivery*: sent to the peer, not settled
    # If the peer is this worker: key -> MeterHold of the producer, for unread records; else None.
    cdef dict meters
    cdef uint32_t unstarted_count                  # queued deliveries whose first record is not written
    # Deliveries that wait for octets or for their window. They are not visited until there are some.
    cdef DeliveryNode resting
    cdef readonly uint64_t visits          # visits of queued deliveries so far
    # Targets of the delivery being offered: pairs of slot and generation.
    cdef uint32_t* targets
    cdef uint32_t target_count
    cdef uint32_t target_room
    # State of the record being processed: SETTLED, RETURNED.
    cdef uint32_t progress                 # keys that are done
    # The delivery being settled; NULL: a run, of which no delivery has ended yet.
    cdef OutDelivery* failing
    cdef DeliveryNode* concerned           # upstream of these (borrowed); NULL: none
    cdef int add_target(self, uint32_t slot_index, uint32_t generation) except -1
    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1
    cdef Meter* producer_meter(self, const InDelivery* d) except? NULL
    cdef int keep_meter(self, const InDelivery* d) except -1
    cdef void fill_record(self, TransferRecord* r, DeliveryHead* head, const InDelivery* d, const Content* c,
                          uint32_t count,
                          int overflow) noexcept
    cdef Message* stored_part(self, OutDelivery* o, Content* c, uint8_t* head, bint dropped) except NULL
    cdef int queue_first_part(self, OutDelivery* o, Message* m, uint8_t* head, size_t size, uint32_t sections) except -1
    cdef bint stuck(self) noexcept
    cdef bint waiting(self) noexcept
    cdef void rest(self, OutDelivery* o) noexcept
    cdef void go_on(self, OutDelivery* o) noexcept
    cdef void unqueue(self, OutDelivery* o) noexcept
    cdef int pump(self) except -1
    cdef int write_part(self, OutDelivery* o) except? -2
    cdef int forget(self, OutDelivery* o) except -1
    cdef int post_update(self, OutDelivery* o, uint8_t flags, uint8_t kind, const Slice* state) except -1
    cdef int keep_state(self, OutDelivery* o, const Slice* state) except -1
    cdef int on_settled(self, const DeliveryRecord* r) except -1
    cdef uint32_t settle_run(self, const DeliveryHead* head, const Slice* state) except 0xFFFFFFFF
    cdef int settle_one(self, const DeliveryHead* head, const Slice* state) except -1
    cdef int on_window(self, const DeliveryRecord* r) except -1
    cdef bint settled_failed(self, const uint8_t* p, object fault) except *
    cdef int lost(self) except -1


# ---------------------------------------------------------------------------------------------------------------------
# Fast path: a whole message for one consumer, written at once

cdef inline uint8_t* room_for_whole(PortOut port, size_t to, size_t size) noexcept:
    """Reserve room in the ring for the record of a message; NULL: it has to wait, or needs several records.

    to, size: octets of `to`, and of the message.
    """
    cdef uint64_t needed = transfer_octets(1, to, 0, 0) + size
    if size > RECORD_OCTETS or port.node.queue_first is not NULL or port.outbox.backlog.end or port.outbox.waits \
            or needed > ring_longest(&port.outbox.ring):
        return NULL
    return ring_reserve(&port.outbox.ring, <uint32_t>needed)


cdef inline int write_whole(PortOut port, uint8_t* room, OutDelivery* o, uint8_t flags, uint8_t kind, int phase,
                            uint32_t format, uint32_t slot_index, uint32_t generation, const Slice* to,
                            const uint8_t* data, size_t size) except -1:
    """Write the record of a message into the reserved room. o: copy for the record; flags, kind: of the record."""
    cdef TransferRecord record
    cdef DeliveryHead head
    cdef RecordTarget target
    cdef uint8_t* w
    o.tag_octets = port.next_key
    o.flags |= OUT_STARTED
    map_put(&port.sent, port.next_key, o)
    head.type = R_TRANSFER
    head.flags = flags | F_AT_HAND         # shorter than a stream
    head.kind = kind
    head.phase = <uint8_t>phase
    head.count = 1
    head.key = port.next_key
    head.format = format
    port.next_key += 1
    target.slot = slot_index
    target.generation = generation
    record.head = &head
    record.targets = &target
    record.to.data = to.data
    record.to.size = to.size
    record.served.data = record.state.data = NULL
    record.served.size = record.state.size = 0
    w = encode_transfer(room, &record)
    memcpy(w, data, size)
    commit(port.outbox, <uint32_t>(w - room + size))
    return 0
