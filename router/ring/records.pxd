"""Layout of the records that cross between two workers, with one encoder and one decoder for each kind.

Each delivery between workers has a key, counted by the sending port:

    TRANSFER   key, targets (link slot and generation), annotations' `to`,
               served edge routers and a delivery state if any, first octets             sender -> receiver of
               deliveries CONTINUE   key, more octets, the end, or an abort                                      "
               UPDATE     key, state or settlement by the producer, or its loss                       " SETTLED    keys
               first … first + count - 1: state or settlement by the consumers      receiver -> sender of deliveries
               RETURNED   keys: presettled deliveries that have left their queues                     " WINDOW     key,
               octets of a stream that have left                                      "

Records from R_LINK on are for one end of a routed link. routed/remote_end.pyx describes them,
routed/link_records.pxd has their flags.

Only this file knows where the fields of a record are. A writer fills a head and calls an encoder. A reader calls a
decoder, which compares each length with the size of the record before it is used. A decoder returns False for a record
that no encoder writes; its port then stops reading (MalformedRecordError). The slices of a decoded record never reach
beyond the record.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from sluice.router.amqp.codec cimport Slice

cdef enum:
    R_TRANSFER = 1
    R_CONTINUE = 2
    R_UPDATE = 3
    R_SETTLED = 4
    R_RETURNED = 5
    R_WINDOW = 6
    R_LINK = 16                # first type of the records of routed links
    R_LINK_TRANSFER = 16
    R_LINK_UPDATE = 17
    R_LINK_OUTCOME = 18
    R_LINK_RETURNED = 19
    R_LINK_WINDOW = 20
    R_LINK_FLOW = 21
    R_LINK_EVENT = 22
    # Flags of a record below R_LINK.
    F_PRESETTLED = 1
    F_MORE = 2
    F_ABORTED = 4
    F_LOST = 4                 # R_UPDATE: the producer of a multicast delivery is gone
    F_SETTLED = 8              # R_SETTLED, R_UPDATE: settled, not only a state
    F_STATE = 8                # R_TRANSFER: a delivery state, with its size in front, is behind `to`
    F_MULTI = 16
    F_HONOUR = 32              # router annotations of the message are used
    F_OWN = 64                 # sent by the router itself
    # Flags in `kind` of a TRANSFER, beside its overflow policy.
    K_CHECKPOINT = 128         # Content.checkpoint
    K_TRACED = 8               # the delivery has a span; the message's annotations have its trace context
    K_OVERFLOW = 7             # mask of the overflow policy
    K_CHARGED = 16             # the message counts for its producer's connection until the copy ends
    K_AS_IS = 32               # the message needs no change for a consumer without router annotations
    K_SERVED = 64              # Content.served, with its size in front, is behind `to`, before a state
    # Another flag of a record.
    F_AT_HAND = 128            # complete at the sending worker, and no stream: the rest follows this record
    STATE_SIZE = 4             # octets of a size in front of a state or of Content.served

cdef enum:
    # Octets of content in one record: several records fit into the smallest ring, and none occupies the ring alone.
    RECORD_OCTETS = 32768

# Head of every record of a delivery.
cdef struct DeliveryHead:
    uint8_t type
    uint8_t flags
    uint8_t kind               # kind of a delivery state; of a TRANSFER: K_…
    uint8_t phase
    uint32_t count             # number of keys, or of targets
    uint64_t key
    uint32_t extra             # octets of `to`, behind the targets; or of a state, behind the head
    uint32_t format            # message-format; of a WINDOW: octets

# Consumer of the receiving worker, as named in a record.
cdef struct RecordTarget:
    uint32_t slot
    uint32_t generation

# Head of every record of a routed link.
cdef struct LinkHead:
    uint8_t type
    uint8_t flags
    uint8_t kind               # kind of a delivery state; of a TOLD: LinkEvent
    uint8_t options            # of a transfer
    uint32_t slot              # slot of the link that the record is for
    uint32_t generation        # generation of that slot
    uint32_t count             # number of keys; of a flow: credit; of a window: octets
    uint64_t key
    uint32_t format            # message-format; of a flow: delivery-count
    uint32_t state_size        # octets of a state, or of properties, behind the tag
    uint32_t tag_size          # octets of a tag, behind the head
    uint32_t available         # of a flow

# Fields of a TRANSFER. In a decoded one, all pointers are into the record.
cdef struct TransferRecord:
    const DeliveryHead* head           # the encoder sets its `extra`, F_STATE and K_SERVED from the slices
    const RecordTarget* targets      # `head.count` of them
    # Optional fields: data is NULL if absent.
    Slice to
    Slice served
    Slice state
    Slice data                 # decoded: octets of the message, up to the end of the record; not used by the encoder

# Any other record of a delivery: a head and one field. UPDATE, SETTLED, RETURNED: a state. CONTINUE: octets.
cdef struct DeliveryRecord:
    const DeliveryHead* head
    Slice body

# Record of a routed link.
cdef struct LinkRecord:
    const LinkHead* head
    Slice tag
    Slice state                # of a flow: its properties
    Slice data                 # up to the end of the record


# ---------------------------------------------------------------------------------------------------------------------
# TRANSFER: DeliveryHead, targets, `to`, [size and octets of served], [size and octets of a state], message octets

cdef inline uint64_t sized_octets(size_t size) noexcept nogil:
    """Return the octets of an optional field with its size in front; an empty field is left out."""
    return STATE_SIZE + size if size else 0


cdef inline uint64_t transfer_octets(uint32_t count, size_t to, size_t served, size_t state) noexcept nogil:
    """Return the octets of a TRANSFER in front of its message, for fields of these sizes."""
    return (sizeof(DeliveryHead) + <uint64_t>count * sizeof(RecordTarget) + to + sized_octets(served)
            + sized_octets(state))


cdef inline uint8_t* put_sized(uint8_t* w, const Slice* part) noexcept nogil:
    """Write an optional field that is not empty; return the place behind it."""
    cdef uint32_t size = <uint32_t>part.size
    memcpy(w, &size, STATE_SIZE)
    memcpy(w + STATE_SIZE, part.data, size)
    return w + STATE_SIZE + size


cdef inline bint take_sized(const uint8_t** p, const uint8_t* end, Slice* part) noexcept nogil:
    """Read a field with its size in front, and move `p` behind it. False: it passes the end."""
    cdef uint32_t size = 0
    if end - p[0] < STATE_SIZE:
        return False
    memcpy(&size, p[0], STATE_SIZE)
    p[0] += STATE_SIZE
    if size > <size_t>(end - p[0]):
        return False
    part.data = p[0]
    part.size = size
    p[0] += size
    return True


cdef inline uint8_t* encode_transfer(uint8_t* w, const TransferRecord* r) noexcept nogil:
    """Write a TRANSFER up to its message, `transfer_octets` in all; return the place of the message.

    The slices must not point into the record at `w`.
    """
    cdef const DeliveryHead* given = r.head
    cdef DeliveryHead* head = <DeliveryHead*>w
    head.type = given.type
    head.flags = given.flags & ~F_STATE | (F_STATE if r.state.size else 0)
    head.kind = given.kind & ~K_SERVED | (K_SERVED if r.served.size else 0)
    head.phase = given.phase
    head.count = given.count
    head.key = given.key
    head.extra = <uint32_t>r.to.size
    head.format = given.format
    w += sizeof(DeliveryHead)
    if given.count == 1:
        (<RecordTarget*>w)[0] = r.targets[0]     # nearly always
    else:
        memcpy(w, r.targets, given.count * sizeof(RecordTarget))
    w += given.count * sizeof(RecordTarget)
    if r.to.size:
        memcpy(w, r.to.data, r.to.size)
        w += r.to.size
    if r.served.size:
        w = put_sized(w, &r.served)
    if r.state.size:
        w = put_sized(w, &r.state)
    return w


cdef inline bint decode_transfer(const uint8_t* p, size_t size, TransferRecord* r) noexcept nogil:
    """Find the fields of a TRANSFER. False: it is malformed."""
    cdef const DeliveryHead* head = <const DeliveryHead*>p
    cdef const uint8_t* end = p + size
    # Both terms are below 2**36: the sum does not wrap.
    if (size < sizeof(DeliveryHead)
            or <uint64_t>head.count * sizeof(RecordTarget) + head.extra > size - sizeof(DeliveryHead)):
        return False
    r.head = head
    r.targets = <const RecordTarget*>(head + 1)
    p = <const uint8_t*>(r.targets + head.count)
    r.to.data = p if head.extra else NULL
    r.to.size = head.extra
    p += head.extra
    r.served.data = r.state.data = NULL
    r.served.size = r.state.size = 0
    if head.kind & K_SERVED and not take_sized(&p, end, &r.served):
        return False
    if head.flags & F_STATE and not take_sized(&p, end, &r.state):
        return False
    r.data.data = p
    r.data.size = end - p
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Other records of deliveries: DeliveryHead, octets

cdef inline void delivery_record(DeliveryHead* head, uint8_t type, uint8_t flags, uint8_t kind, uint64_t key,
                                 uint32_t count,
                                 const Slice* state) noexcept nogil:
    """Fill the head of an UPDATE, SETTLED or RETURNED, which the octets of `state` follow.

    For a CONTINUE, state is NULL.
    """
    memset(head, 0, sizeof(DeliveryHead))
    head.type = type
    head.flags = flags
    head.kind = kind
    head.count = count
    head.key = key
    head.extra = <uint32_t>state.size if state is not NULL else 0


cdef inline void window_record(DeliveryHead* head, uint64_t key, uint32_t octets) noexcept nogil:
    """Fill a WINDOW, which is a head only."""
    delivery_record(head, R_WINDOW, 0, 0, key, 0, NULL)
    head.format = octets


cdef inline bint decode_delivery(const uint8_t* p, size_t size, DeliveryRecord* r) noexcept nogil:
    """Find the fields of an UPDATE, SETTLED, RETURNED, CONTINUE or WINDOW. False: it is malformed."""
    cdef const DeliveryHead* head = <const DeliveryHead*>p
    if size < sizeof(DeliveryHead):
        return False
    r.head = head
    r.body.size = size - sizeof(DeliveryHead)
    r.body.data = p + sizeof(DeliveryHead) if r.body.size else NULL
    if head.type == R_CONTINUE:
        return True
    # A WINDOW has no `extra`, and nothing behind its head.
    return R_UPDATE <= head.type <= R_WINDOW and r.body.size == head.extra


# ---------------------------------------------------------------------------------------------------------------------
# Records of routed links: LinkHead, tag, state or properties, octets

cdef inline uint8_t* encode_link(uint8_t* w, const LinkRecord* r) noexcept nogil:
    """Write head, tag and state; return the place of the message's octets."""
    cdef LinkHead* head = <LinkHead*>w
    head[0] = r.head[0]
    head.tag_size = <uint32_t>r.tag.size
    head.state_size = <uint32_t>r.state.size
    w += sizeof(LinkHead)
    if r.tag.size:
        memcpy(w, r.tag.data, r.tag.size)
        w += r.tag.size
    if r.state.size:
        memcpy(w, r.state.data, r.state.size)
        w += r.state.size
    return w


cdef inline bint decode_link(const uint8_t* p, size_t size, LinkRecord* r) noexcept nogil:
    """Find the fields of a record of a routed link. False: it is malformed."""
    cdef const LinkHead* head = <const LinkHead*>p
    if size < sizeof(LinkHead) or not R_LINK <= head.type <= R_LINK_EVENT \
            or <uint64_t>head.tag_size + head.state_size > size - sizeof(LinkHead):
        return False
    r.head = head
    r.tag.data = p + sizeof(LinkHead)
    r.tag.size = head.tag_size
    r.state.data = r.tag.data + head.tag_size if head.state_size else NULL
    r.state.size = head.state_size
    r.data.data = r.tag.data + head.tag_size + head.state_size
    r.data.size = p + size - r.data.data
    if head.type == R_LINK_TRANSFER:
        return True
    return head.tag_size == 0 and (r.data.size == 0 or head.type == R_LINK_EVENT)
