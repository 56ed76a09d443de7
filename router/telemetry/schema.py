"""Tables of telemetry with their columns and types.

Every row of a fact table has the columns of `COMMON`. Router and hour are in the names of folders
(`router=…/date=…/hour=…`), which Spark reads as partition columns.
"""

from collections.abc import Mapping
from typing import Any, Final

VERSION: Final = 1  # version of the layout; names the folder below the configured path

# Types of columns. Times are microseconds since the epoch.
INT: Final = "int"
LONG: Final = "long"
TEXT: Final = "string"
TIME: Final = "timestamp"
HISTOGRAM: Final = "map<int,bigint>"  # deliveries by bucket; bucket b covers 2**(b-1) µs up to below 2**b µs
TEXTS: Final = "map<string,string>"

Columns = Mapping[str, str]
Row = dict[str, Any]

COMMON: Final[Columns] = {"interval_start": TIME, "interval_ms": LONG, "boot_id": TEXT}

_FACTS: Final[Mapping[str, Columns]] = {
    # Deliveries to a consumer's link, by the worker of their producer.
    "fact_flow": {
        "worker_in": INT,
        "worker_out": INT,
        "link_in": LONG,  # null: several links of that worker send to the address, or only anonymous ones
        "link_out": LONG,
        "connection_in": LONG,
        "connection_out": LONG,
        "address": TEXT,
        "deliveries": LONG,
    },
    "fact_link": {
        "worker": INT,
        "link_id": LONG,
        "connection_id": LONG,
        "dir": TEXT,
        "address": TEXT,
        "deliveries": LONG,
        "accepted": LONG,
        "rejected": LONG,
        "released": LONG,
        "modified": LONG,
        "presettled": LONG,
        "dropped_presettled": LONG,
        "delayed_1s": LONG,
        "delayed_10s": LONG,
        "octets": LONG,  # octets of messages
        "unsettled": LONG,  # from here to `stuck`: value at the end of the interval
        "undelivered": LONG,
        "credit": LONG,
        "capacity": LONG,
        "stuck": LONG,
        "zero_credit_ms": LONG,
        "settle_hist": HISTOGRAM,
    },
    "fact_worker": {
        "worker": INT,
        "pid": LONG,
        "cpu_user_us": LONG,
        "cpu_sys_us": LONG,
        "rss": LONG,
        "loop_turns": LONG,
        "connections": LONG,
        "links": LONG,
        "buffered": LONG,
        "ingress": LONG,
        "egress": LONG,
        "transit": LONG,
        "accepted": LONG,
        "rejected": LONG,
        "released": LONG,
        "modified": LONG,
        "presettled": LONG,
        "dropped_presettled": LONG,
        "latency_hist": HISTOGRAM,
    },
    "fact_ring": {"worker_in": INT, "worker_out": INT, "transfers": LONG, "bytes": LONG, "used": LONG},
    "fact_internode": {
        "connection_id": LONG,
        "peer": TEXT,
        "cost": LONG,
        "received": LONG,
        "sent": LONG,
        "octets_received": LONG,
        "octets_sent": LONG,
        "unsettled": LONG,
        "rtt_us": LONG,  # measured by TCP; null: unknown
    },
}

_OTHERS: Final[Mapping[str, Columns]] = {
    # Samples: 1 of 1,024 deliveries to each link, and all deliveries that were rejected, modified or took longer than a
    # second.
    "delivery_sample": {
        "ts": TIME,  # time of the settlement, or of sending if the delivery was sent settled
        "worker": INT,
        "link_id": LONG,  # of the consumer
        "connection_id": LONG,
        "address": TEXT,
        "octets": LONG,  # null: unknown
        "latency_us": LONG,  # from its first octet at this worker to its last octet to the consumer; null: unknown
        "settle_us": LONG,  # from its first octet at this worker to its settlement; null: sent settled
        "outcome": TEXT,  # null: settled without an outcome
        "every": INT,  # number of deliveries that the sample represents
    },
    "event": {"ts": TIME, "kind": TEXT, "subject": TEXT, "detail": TEXTS},
    "dim_router": {
        "valid_from": TIME,
        "host": TEXT,
        "cores": INT,
        "workers": INT,
        "version": TEXT,
        "mode": TEXT,
    },
    "dim_connection": {
        "valid_from": TIME,
        "connection_id": LONG,
        "worker": INT,
        "container": TEXT,
        "user": TEXT,
        "vhost": TEXT,
        "peer": TEXT,
        "listener": TEXT,
        "role": TEXT,
        "tls": TEXT,
    },
    "dim_link": {
        "valid_from": TIME,
        "link_id": LONG,
        "connection_id": LONG,
        "worker": INT,
        "name": TEXT,
        "dir": TEXT,
        "address": TEXT,
        "kind": TEXT,
        "capacity": LONG,
    },
    "dim_address": {"valid_from": TIME, "address": TEXT, "distribution": TEXT},
    "dim_policy": {"valid_from": TIME, "vhost": TEXT, "user_group": TEXT, "limits": TEXTS},
}

TABLES: Final[Mapping[str, Columns]] = {
    **{name: {**COMMON, **columns} for name, columns in _FACTS.items()},
    **{name: {"boot_id": TEXT, **columns} for name, columns in _OTHERS.items()},
}


def time_column(table: str) -> str:
    """Return the name of the column with the time of a row of this table."""
    return next(name for name in ("interval_start", "ts", "valid_from") if name in TABLES[table])
