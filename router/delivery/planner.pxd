"""Planning of a delivery with one consumer (plan.pxd)."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.delivery.plan cimport LeadingSections, Plan
from router.table.table cimport ForwardingAddress

# Plan a producer's next delivery to this address. False: it needs the slow path.
# came_by: number of the connection of an edge router or another router; 0: of a client. to, phase: as of Content.
cdef bint make_plan(Plan* plan, ForwardingAddress address, uint64_t version, uint32_t came_by, uint64_t producer,
                    const LeadingSections* said, const Slice* to, int phase) noexcept
