"""Display of memory pools."""

from tests.unit.router.cli.stat.rows import ROUTER, TOTALS, Stat


def test_memory_table_shows_pools_and_summary(stat: Stat) -> None:
    pool = {"identity": "allocator/qd_b", "typeSize": 1024, "transferBatchSize": 16384, "localFreeListMax": 32,
            "totalAllocFromHeap": 1720, "heldByThreads": 1600, "batchesRebalancedToThreads": 0,
            "batchesRebalancedToGlobal": 1}  # fmt: skip
    tables = {"router": [ROUTER | TOTALS], "allocator": [pool, {**pool, "identity": "allocator/qd_a"}]}
    assert stat(tables, "-m") == (
        "Memory Pools\n"
        "  type  size   batch  thread-max  total  in-threads  rebal-in  rebal-out\n"
        "  ========================================================================\n"
        "  qd_a  1,024  16384  32          1,720  1,600       0         1\n"
        "  qd_b  1,024  16384  32          1,720  1,600       0         1\n"
        "\n"
        "Memory Summary\n"
        "  VmSize   Pooled\n"
        "  ===================\n"
        "  318 MiB  3.36 MiB\n"
    )
    assert stat({"allocator": []}, "-m") == "No memory statistics available\n"
    assert stat({"allocator": [{**pool, "typeSize": None}]}, "-m") == "No memory statistics available\n"
