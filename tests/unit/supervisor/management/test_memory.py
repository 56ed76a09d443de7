"""Type allocator: memory of the objects of the router, from shared memory (management.md 6.8)."""

import pytest

from tests.unit.supervisor.management.managed_router import ManagedRouter


@pytest.fixture(scope="module")
def router():
    return ManagedRouter()


# management.md 6.8.
def test_allocator_rows_have_attributes_for_tools(router):
    rows = router.query(
        "allocator", "identity", "typeSize", "transferBatchSize", "localFreeListMax", "totalAllocFromHeap",
        "heldByThreads", "batchesRebalancedToThreads", "batchesRebalancedToGlobal",
    )  # fmt: skip
    assert rows
    assert all(value is not None for row in rows for value in row.values())
    fresh = ManagedRouter()
    fresh.link(fresh.connection())
    (slots,) = [row for row in fresh.query("allocator") if row["typeName"] == "qdr_link_t"]
    assert (slots["typeSize"], slots["totalAllocFromHeap"]) == (fresh.region.link_stride, 1)
