"""Outgoing links of any worker, as forwarders see them."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.links.consumer_link cimport ConsumerLink
from sluice.router.ring.layout cimport LinkSlot
from sluice.router.ring.region cimport Region
from sluice.router.ring.port cimport WorkerPort

# Outgoing link as a destination of deliveries. Owner: the address, or the next hop. Immutable but for `sent`,
# `suspended`, and the two fields by which the table finds it, `address` and `also`.
cdef class Consumer:
    cdef object address                    # ForwardingAddress to which the table has bound it; None: not bound
    cdef Consumer also                     # next consumer that is bound with the same slot
    cdef readonly int worker
    cdef readonly uint32_t slot_index
    cdef readonly uint32_t generation
    cdef readonly uint32_t capacity        # deliveries
    cdef bint container                    # the link belongs to a route container
    cdef bint suspended                    # its peer is lost: deliveries wait, and producers get no credit
    cdef readonly uint32_t edge            # number of the link's edge connection; 0: on no edge connection
    cdef readonly uint32_t cost            # at an edge router with peers: cost of its connection `edge`
    # Encoded mark of the edge router at the other end of the link; None: the other end is no edge router.
    cdef readonly bytes peer
    cdef uint64_t message_limit            # octets of the longest message that the link takes; 0: any length
    cdef LinkSlot* slot
    cdef const uint32_t* taken             # deliveries for the link that its worker took from our ring (mod 2**32)
    cdef uint32_t sent                     # deliveries for the link that we put into our ring (mod 2**32)
    cdef readonly ConsumerLink link        # the link, if it belongs to this worker; else None
    cdef readonly WorkerPort port          # port to the worker that has the link; None: this worker has it

# Make the Consumer of a link slot. None: the slot belongs to this worker, and its link has ended.
# worker: this worker. owner: the worker that has the slot. ports, links: see Table.
cdef Consumer find_consumer(Region region, int worker, list ports, dict links, int owner, uint32_t slot_index,
                            uint32_t generation, uint32_t capacity, uint32_t edge, uint32_t cost, str peer)
