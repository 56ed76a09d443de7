"""Memory of the router's objects: rows of type allocator (management.md 6.8).

All of it is shared memory reserved at the start; the rows count what is used. Pools with a counterpart in Dispatch
have its name, because scripts look for it.
"""

from typing import Any, Final

from sluice.router.ring.region import Region

_PAGE: Final = 4096  # octets
_ADDRESS_SLOT: Final = 64  # octets of an address's counters in one worker


def pools(region: Region, addresses: int) -> dict[str, dict[str, Any]]:
    """Return the attributes of the pools by name. addresses: number of ids ever used."""
    workers = [region.worker_counters(index) for index in range(region.workers)]
    return {
        "qdr_link_t": _pool(
            region.link_stride,
            sum(worker["links_used_high"] for worker in workers),
            held=sum(worker["links"] for worker in workers),
            most=region.links_per_worker,
        ),
        "qdr_address_t": _pool(
            _ADDRESS_SLOT, addresses * region.workers, held=addresses * region.workers, most=region.addresses
        ),
        "ring_page": _ring_pages(region),
        "message_octet": _pool(
            1, sum(worker["buffered"] for worker in workers), held=sum(worker["buffered"] for worker in workers), most=0
        ),
    }


def _ring_pages(region: Region) -> dict[str, Any]:
    """Return the pages of rings that were ever written, and those in use."""
    used = held = 0
    for producer in range(region.workers):
        for consumer in range(region.workers):
            if producer != consumer:
                ring = region.ring_state(producer, consumer)
                used += -(-min(ring["head"], ring["size"]) // _PAGE)
                held += -(-ring["used"] // _PAGE)
    return _pool(_PAGE, used, held=held, most=region.ring_octets // _PAGE)


def _pool(size: int, used: int, *, held: int, most: int) -> dict[str, Any]:
    """Return the attributes of a pool.

    size: of an object in octets. used: objects with allocated memory. held: objects in use. most: limit for one
    worker.
    """
    return {
        "typeSize": size,
        "transferBatchSize": 1,
        "localFreeListMax": most,
        "globalFreeListMax": 0,
        "totalAllocFromHeap": used,
        "totalFreeToHeap": 0,
        "heldByThreads": held,
        "batchesRebalancedToThreads": 0,
        "batchesRebalancedToGlobal": 0,
    }
