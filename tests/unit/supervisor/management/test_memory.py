"""Type allocator: memory of the objects of the router, from shared memory (management.md 6.8)."""

from sluice.router.testing.interworker import RingEnd, set_worker
from sluice.supervisor.management.memory import pools


# management.md 6.8.
def test_allocator_rows_have_attributes_for_tools(router):
    rows = router.query(
        "allocator", "identity", "typeSize", "transferBatchSize", "localFreeListMax", "totalAllocFromHeap",
        "heldByThreads", "batchesRebalancedToThreads", "batchesRebalancedToGlobal",
    )  # fmt: skip
    assert rows
    assert all(value is not None for row in rows for value in row.values())
    router.link(router.connection())
    (slots,) = [row for row in router.query("allocator") if row["typeName"] == "qdr_link_t"]
    assert (slots["typeSize"], slots["totalAllocFromHeap"]) == (router.region.link_stride, 1)


def test_links_in_use_are_counted_apart_from_allocated_slots(router):
    set_worker(router.region, 0, links=2, links_used_high=5)
    set_worker(router.region, 1, links=1, links_used_high=1)
    pool = pools(router.region, 0)["qdr_link_t"]
    assert (pool["heldByThreads"], pool["totalAllocFromHeap"]) == (3, 6)
    assert pool["localFreeListMax"] == router.region.links_per_worker


def test_addresses_have_counters_in_each_worker(router):
    assert pools(router.region, 7)["qdr_address_t"]["heldByThreads"] == 7 * router.region.workers


def test_buffered_octets_are_summed(router):
    set_worker(router.region, 0, buffered=1000)
    set_worker(router.region, 1, buffered=24)
    assert pools(router.region, 0)["message_octet"]["heldByThreads"] == 1024


def test_ring_pages_stay_allocated_when_ring_is_empty(router):
    def pages():
        pool = pools(router.region, 0)["ring_page"]
        return pool["totalAllocFromHeap"], pool["heldByThreads"]

    assert pages() == (0, 0)
    ring = RingEnd(router.region, 0, 1)
    assert ring.write(bytes(10))
    assert pages() == (1, 1)
    ring.read()
    assert pages() == (1, 0)
