"""Mapped shared memory region: the place of each struct of layout.pxd."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.ring.layout cimport (
    AddressSlot, LinkSlot, QuotaSlot, RemoteSlot, RingHeader, SampleRing, WorkerSlot,
)

cdef class Region:
    """Mapped region. Owner: created by the supervisor, mapped by every worker; immutable after creation.

    The accessors check nothing: indices must be in range and the region open. A pointer is valid until close().
    """
    cdef readonly int fd       # -1 when closed
    cdef readonly int workers
    cdef readonly int links_per_worker
    cdef readonly int addresses
    cdef readonly size_t ring_octets
    cdef readonly size_t size
    cdef readonly size_t link_stride
    cdef uint8_t* base
    cdef size_t workers_at     # offsets (_at) and strides, in octets
    cdef size_t worker_stride
    cdef size_t links_at
    cdef size_t links_stride   # all link slots of one worker
    cdef size_t addresses_at
    cdef size_t addresses_stride
    cdef size_t samples_at
    cdef size_t sample_stride
    cdef size_t quotas_at
    cdef size_t rings_at
    cdef size_t ring_stride
    cdef uint64_t links_kept(self) noexcept nogil   # ns, see RegionHeader.kept
    cdef WorkerSlot* worker_slot(self, int worker) noexcept nogil
    cdef LinkSlot* link_slot(self, int worker, uint32_t index) noexcept nogil
    # Claim a free slot of a worker's own: zeroed, below links_used_high, visible as a whole. The worker frees it by
    # storing generation 0.
    cdef LinkSlot* claim_link(self, int worker, uint32_t index, uint32_t generation) noexcept nogil
    cdef uint32_t* link_taken(self, LinkSlot* slot) noexcept nogil
    cdef AddressSlot* address_slot(self, int worker, uint32_t address) noexcept nogil
    cdef RemoteSlot* remote_slot(self, int worker, uint32_t counters) noexcept nogil
    cdef QuotaSlot* quota_slot(self, uint32_t index) noexcept nogil
    cdef SampleRing* sample_ring(self, int worker) noexcept nogil
    cdef RingHeader* ring(self, int producer, int consumer) noexcept nogil
