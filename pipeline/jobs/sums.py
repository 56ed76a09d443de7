"""Definitions of the hourly roll-ups, and the sums they need of each table (telemetry/hourly.py)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sluice.pipeline.telemetry.clients import KNOWN, with_clients
from sluice.pipeline.telemetry.hourly import DOUBLE, HourlySums, explode_map
from sluice.pipeline.telemetry.names import LINK_COUNTS, LINK_GAUGES, WORKER_COUNTS, WORKER_GAUGES
from sluice.router.telemetry.schema import INT, LONG, TEXT, TIME


def _rate(count: pa.ChunkedArray, interval: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(count.cast(pa.float64()), pc.max_element_wise(interval, 1).cast(pa.float64()))


def _links(rows: pa.Table) -> pa.Table:
    for peak, gauge in LINK_GAUGES.items():
        if peak != gauge:
            rows = rows.append_column(peak, rows.column(gauge))
    return rows.append_column("link_ms", rows.column("interval_ms"))


def _settles(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.equal(rows.column("dir").cast(pa.string()), "in"))
    return explode_map(rows, "settle_hist", ("bucket", "count"))


def _workers(rows: pa.Table) -> pa.Table:
    cpu = pc.add(rows.column("cpu_user_us"), rows.column("cpu_sys_us"))
    rows = rows.append_column("cpu_us", cpu)
    return rows.append_column("busiest", _rate(cpu, pc.multiply(rows.column("interval_ms"), 1000)))


FLOWS: Final = HourlySums(
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
LINKS: Final = HourlySums(
    "fact_link",
    reads=("interval_ms", "boot_id", "connection_id", "address", "dir", *LINK_COUNTS, *LINK_GAUGES.values()),
    keys={"boot_id": TEXT, "connection_id": LONG, "address": TEXT, "dir": TEXT},
    sums=(*LINK_COUNTS, "link_ms"),
    peaks=dict.fromkeys(LINK_GAUGES, LONG),
    derive=_links,
)
SETTLES: Final = HourlySums(
    "fact_link",
    reads=("address", "dir", "settle_hist"),
    keys={"address": TEXT, "bucket": INT},
    sums=("count",),
    derive=_settles,
)
WORKERS: Final = HourlySums(
    "fact_worker",
    reads=("worker", "cpu_user_us", "cpu_sys_us", *WORKER_COUNTS, *WORKER_GAUGES),
    keys={"worker": INT},
    sums=("cpu_us", *WORKER_COUNTS),
    peaks={**dict.fromkeys(WORKER_GAUGES, LONG), "busiest": DOUBLE},
    derive=_workers,
)


@dataclass(frozen=True)
class RollupTable:
    """Roll-up table: sums by hour, router and keys, with clients in place of connections."""

    sums: HourlySums
    keys: Mapping[str, str]
    clients: Mapping[str, str] = field(default_factory=dict)  # connection columns, with suffixes of clients' columns

    @property
    def columns(self) -> dict[str, str]:
        sums = {name: kind for name, kind in self.sums.columns.items() if name in (*self.sums.sums, *self.sums.peaks)}
        known = {name + suffix: TEXT for suffix in self.clients.values() for name in KNOWN}
        return {"hour": TIME, "router": TEXT, **self.keys, **known, **sums}

    def of(self, sums: pa.Table, clients: pa.Table) -> pa.Table:
        """Return the rows from sums in which a key may occur several times."""
        for column, suffix in self.clients.items():
            sums = with_clients(sums, clients, column, suffix)
        return self.sums.grouped(sums, self.columns)


TABLES: Final[Mapping[str, RollupTable]] = {
    # Deliveries by pair of workers, pair of clients, address.
    "flows": RollupTable(
        FLOWS,
        {"worker_in": INT, "worker_out": INT, "address": TEXT},
        {"connection_in": "_in", "connection_out": "_out"},
    ),
    # Deliveries, octets, outcomes and credit by address, direction and client. link_ms: time for which its links were
    # attached.
    "links": RollupTable(LINKS, {"address": TEXT, "dir": TEXT}, {"connection_id": ""}),
    # Settled deliveries by address and bucket of their time in the router.
    "settles": RollupTable(SETTLES, {"address": TEXT, "bucket": INT}),
    # CPU time and deliveries by worker.
    "workers": RollupTable(WORKERS, {"worker": INT}),
}
