"""`qdstat -m`: show memory pools and the memory of the process."""

from sluice.router.cli.stat.context import StatContext, sorted_by
from sluice.router.cli.table import Cells, commas, memory

_HEADS = ["type", "size", "batch", "thread-max", "total", "in-threads", "rebal-in", "rebal-out"]
_COLUMNS = [
    "identity", "typeSize", "transferBatchSize", "localFreeListMax", "totalAllocFromHeap", "heldByThreads",
    "batchesRebalancedToThreads", "batchesRebalancedToGlobal",
]  # fmt: skip
_BATCH = "transferBatchSize"


def show(context: StatContext) -> None:
    """Show the memory pools for which the router reports all columns, and the memory of the process."""
    pools = [
        pool for pool in context.rows("allocator", _COLUMNS) if all(pool.get(column) is not None for column in _COLUMNS)
    ]
    if not pools:
        context.display.line("No memory statistics available")
        return
    rows: list[Cells] = [
        [
            pool["identity"].partition("/")[2] or pool["identity"],
            *(pool[column] if column == _BATCH else commas(pool[column]) for column in _COLUMNS[1:]),
        ]
        for pool in pools
    ]
    context.table("Memory Pools", _HEADS, sorted_by(_HEADS, rows, "type"))
    context.display.line()
    pooled = sum(pool["typeSize"] * pool["totalAllocFromHeap"] for pool in pools)
    summary: list[Cells] = [(memory(context.router().get("memoryUsage")), memory(pooled))]
    context.table("Memory Summary", ["VmSize", "Pooled"], summary)
