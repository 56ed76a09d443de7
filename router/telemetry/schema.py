"""The tables of telemetry: their columns, and the types of these.

Every row has what is in `COMMON`. The router and the hour are in the names of folders (`router=…/date=…/hour=…`), where
Spark finds them.
"""

from collections.abc import Mapping
from typing import Any, Final

VERSION: Final = 1  # of the layout: the folder below the path of the section

# Types of columns. Times are microseconds since the epoch.
INT: Final = "int"
LONG: Final = "long"
TEXT: Final = "string"
TIME: Final = "timestamp"
HISTOGRAM: Final = "map<int,bigint>"  # deliveries by bucket: b holds those of 2**(b-1) µs and more, below 2**b µs
TEXTS: Final = "map<string,string>"

Columns = Mapping[str, str]
Row = dict[str, Any]

COMMON: Final[Columns] = {"interval_start": TIME, "interval_ms": LONG, "boot_id": TEXT}

_FACTS: Final[Mapping[str, Columns]] = {
    # Deliveries that a link of a consumer got, by the worker that their producer is on.
    "fact_flow": {
        "worker_in": INT,
        "worker_out": INT,
        "link_in": LONG,  # null: several links of that worker sent to the address, or none that names it
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
        "octets": LONG,  # of messages
        "unsettled": LONG,  # as are the following, when the interval ended
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
        "rtt_us": LONG,  # as TCP knew it; null: not known
    },
}

_OTHERS: Final[Mapping[str, Columns]] = {
    # One of 1,024 deliveries to each link; and each that was rejected, modified or took longer than a second.
    "delivery_sample": {
        "ts": TIME,  # when it was settled, or left settled
        "worker": INT,
        "link_id": LONG,  # of the consumer
        "connection_id": LONG,
        "address": TEXT,
        "octets": LONG,  # null: not known
        "latency_us": LONG,  # from its first octet at this worker to its last one to the consumer; null: not known
        "settle_us": LONG,  # … to its settlement; null: it left settled
        "outcome": TEXT,  # null: settled without one
        "every": INT,  # it stands for so many deliveries
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
    """The column that says when a row of this table holds."""
    return next(name for name in ("interval_start", "ts", "valid_from") if name in TABLES[table])
