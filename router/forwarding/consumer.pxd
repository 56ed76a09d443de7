"""An outgoing link of any worker, as senders of deliveries see it."""
from libc.stdint cimport uint32_t, uint64_t

from router.links.consumer_link cimport ConsumerLink
from router.interworker.layout cimport LinkSlot
from router.interworker.region cimport Region
from router.interworker.port cimport WorkerPort

# Owner: the address, or the next hop; immutable but for `sent`, and what the table finds it by.
cdef class Consumer:
    cdef object address                    # where the table has bound it, None: nowhere (any more)
    cdef Consumer also                     # another one that is bound by the same slot
    cdef readonly int worker
    cdef readonly uint32_t slot_index
    cdef readonly uint32_t generation
    cdef readonly uint32_t capacity
    cdef bint container                    # it is a route container
    cdef readonly uint32_t edge            # number of its edge connection, 0: it is on none
    cdef readonly uint32_t cost            # of that, at an edge router: counts where a peer has consumers
    cdef readonly bytes peer               # it is at another edge router: its mark, encoded; None: it is not
    cdef uint64_t message_limit            # octets of the longest message that it takes; 0: any
    cdef LinkSlot* slot
    cdef const uint32_t* taken             # deliveries that its worker took from our ring for it (mod 2**32)
    cdef uint32_t sent                     # deliveries that we gave to our ring for it (mod 2**32)
    cdef readonly ConsumerLink link        # when it is ours
    cdef readonly WorkerPort port          # when it is another worker's

# The consumer of that slot, or None when the slot is ours and its link is gone. worker: this one. ports, links: as of
# the table.
cdef Consumer find_consumer(Region region, int worker, list ports, dict links, int owner, uint32_t slot_index,
                            uint32_t generation, uint32_t capacity, uint32_t edge, uint32_t cost, str peer)
