"""What the hourly roll-ups need of each table, summed by Arrow before Spark has it (telemetry/hourly.py)."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.telemetry.hourly import DOUBLE, Hourly, exploded
from pipeline.telemetry.names import LINK_COUNTS, LINK_GAUGES, WORKER_COUNTS, WORKER_GAUGES
from router.telemetry.schema import INT, LONG, TEXT


def _rate(count: pa.ChunkedArray, interval: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(count.cast(pa.float64()), pc.max_element_wise(interval, 1).cast(pa.float64()))


def _links(rows: pa.Table) -> pa.Table:
    interval, deliveries = rows.column("interval_ms"), rows.column("deliveries")
    full = pc.fill_null(pc.greater(rows.column("zero_credit_ms"), 0), False)
    for peak, gauge in LINK_GAUGES.items():
        if peak != gauge:
            rows = rows.append_column(peak, rows.column(gauge))
    rows = rows.append_column("link_ms", interval)
    rows = rows.append_column("full_ms", pc.if_else(full, interval, 0))
    rows = rows.append_column("full_deliveries", pc.if_else(full, deliveries, 0))
    return rows.append_column("rate_peak", _rate(pc.multiply(deliveries, 1000), interval))


def _settles(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.equal(rows.column("dir").cast(pa.string()), "in"))
    return exploded(rows, "settle_hist", ("bucket", "count"))


def _workers(rows: pa.Table) -> pa.Table:
    cpu = pc.add(rows.column("cpu_user_us"), rows.column("cpu_sys_us"))
    rows = rows.append_column("cpu_us", cpu)
    return rows.append_column("busiest", _rate(cpu, pc.multiply(rows.column("interval_ms"), 1000)))


FLOWS: Final = Hourly(
    "fact_flow",
    reads=("boot_id", "worker_in", "worker_out", "connection_in", "connection_out", "address", "deliveries"),
    keys={
        "boot_id": TEXT,
        "worker_in": INT,
        "worker_out": INT,
        "connection_in": LONG,
        "connection_out": LONG,
        "address": TEXT,
    },
    sums=("deliveries",),
)
LINKS: Final = Hourly(
    "fact_link",
    reads=("interval_ms", "boot_id", "connection_id", "address", "dir", *LINK_COUNTS, *LINK_GAUGES.values()),
    keys={"boot_id": TEXT, "connection_id": LONG, "address": TEXT, "dir": TEXT},
    sums=(*LINK_COUNTS, "link_ms", "full_ms", "full_deliveries"),
    peaks={**dict.fromkeys(LINK_GAUGES, LONG), "rate_peak": DOUBLE},
    derive=_links,
)
SETTLES: Final = Hourly(
    "fact_link",
    reads=("address", "dir", "settle_hist"),
    keys={"address": TEXT, "bucket": INT},
    sums=("count",),
    derive=_settles,
)
WORKERS: Final = Hourly(
    "fact_worker",
    reads=("worker", "cpu_user_us", "cpu_sys_us", *WORKER_COUNTS, *WORKER_GAUGES),
    keys={"worker": INT},
    sums=("cpu_us", *WORKER_COUNTS),
    peaks={**dict.fromkeys(WORKER_GAUGES, LONG), "busiest": DOUBLE},
    derive=_workers,
)
