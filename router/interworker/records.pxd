"""Formats of the records that cross between two workers.

A delivery that crosses has a key, counted by the sending port:

    TRANSFER   key, targets (link slot and generation), annotations' `to`,
               served edge routers and a delivery state if there are, first octets     sender -> receiver of deliveries
    CONTINUE   key, more octets, or the end, or that it was aborted                       "
    UPDATE     key, state or settlement by the producer                                  "
    SETTLED    keys first … first + count - 1: state or settlement by the consumers     receiver -> sender of deliveries
    RETURNED   keys: presettled deliveries that have left their queues                   "
    WINDOW     key, octets of a stream that have left                                    "

Records from R_LINK on are for one end of a routed link: linkroute/remote_end.pyx describes them,
linkroute/link_records.pxd has their flags.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    R_TRANSFER = 1
    R_CONTINUE = 2
    R_UPDATE = 3
    R_SETTLED = 4
    R_RETURNED = 5
    R_WINDOW = 6
    R_LINK = 16                # records of routed links begin here
    R_LINK_TRANSFER = 16
    R_LINK_UPDATE = 17
    R_LINK_OUTCOME = 18
    R_LINK_RETURNED = 19
    R_LINK_WINDOW = 20
    R_LINK_FLOW = 21
    R_LINK_TOLD = 22
    # flags of a record, below R_LINK
    F_PRESETTLED = 1
    F_MORE = 2
    F_ABORTED = 4
    F_SETTLED = 8              # R_SETTLED, R_UPDATE: settled, not only a state
    F_STATE = 8                # R_TRANSFER: octets of a delivery state, and their number, are behind `to`
    F_MULTI = 16
    F_HONOUR = 32              # router annotations of the message count
    F_OWN = 64                 # the router itself sent it
    K_CHECKPOINT = 128         # beside the overflow policy of a transfer: Content.checkpoint
    K_OVERFLOW = 7             # the overflow policy itself
    K_AS_IS = 32               # … nothing in the message is to be changed for a consumer without router annotations
    K_SERVED = 64              # … octets of Content.served, and their number, are behind `to`, before a state
    F_AT_HAND = 128            # all of it is here, and it is no stream: only what follows this record is to come
    STATE_SIZE = 4             # octets of the size of a state in a transfer, and of Content.served

cdef enum:
    # Payload of one record: several fit into the smallest ring, and none keeps the ring for itself.
    RECORD_OCTETS = 32768

# Head of every record of a delivery.
cdef struct Head:
    uint8_t type
    uint8_t flags
    uint8_t kind               # of a delivery state, or overflow policy of a transfer
    uint8_t phase
    uint32_t count             # keys, or targets
    uint64_t key
    uint32_t extra             # octets behind the targets: `to`; or of an encoded state
    uint32_t format            # message-format; WINDOW: octets

# A consumer of the receiving worker, as a record names it.
cdef struct Target:
    uint32_t slot
    uint32_t generation

# Head of every record of a routed link.
cdef struct LinkHead:
    uint8_t type
    uint8_t flags
    uint8_t kind               # of a delivery state, or what is told
    uint8_t options            # of a transfer
    uint32_t slot              # the link that it is for …
    uint32_t generation        # … and its slot's generation
    uint32_t count             # keys; flow: credit; window: octets
    uint64_t key
    uint32_t format            # message-format; flow: delivery-count
    uint32_t state_size        # octets of a state, or of properties, behind the tag
    uint32_t tag_size          # octets of a tag behind the head
    uint32_t available         # flow
