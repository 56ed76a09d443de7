"""Telemetry of simulated routers, written by the real writer, with known results."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sluice.router.telemetry.parquet import encode
from sluice.router.telemetry.schema import TABLES
from sluice.router.telemetry.writer import TelemetryWriter

START = datetime(2026, 3, 1, tzinfo=timezone.utc)  # noqa: UP017
INTERVAL = 600  # seconds; long, so that a day has few rows
BOOT = "b" * 32


def microseconds(when: datetime) -> int:
    return round(when.timestamp() * 1e6)


class TelemetryDay:
    """Day of one router, with producers `sensor-N` (worker 0) and consumers `store-N` (worker 0 or 1)."""

    def __init__(self, path: Path, router: str, hours: int = 24, lines: bool = False) -> None:
        """Open the writer; with `lines` it writes lines of JSON, as without pyarrow."""
        self._writer = TelemetryWriter(
            path, router, BOOT, max_megabytes=100, keep_hours=1 << 20, encode=None if lines else encode
        )
        self.router = router
        self.hours = hours
        self._number = 0

    def add(self, table: str, when: datetime, **values: Any) -> None:
        row = {name: values.pop(name, None) for name in TABLES[table]}
        assert not values, values
        row["boot_id"] = BOOT
        for name in ("interval_start", "ts", "valid_from"):
            if name in row:
                row[name] = microseconds(when)
        if "interval_ms" in row and row["interval_ms"] is None:
            row["interval_ms"] = INTERVAL * 1000
        self._writer.add(table, [row])

    def write(self) -> None:
        self._number += 1
        self._writer.publish(self._number)

    def connection(
        self, number: int, container: str, worker: int, user: str = "anonymous", host: str = "10.0.0.1"
    ) -> None:
        self.add(
            "dim_connection", START, connection_id=number, worker=worker, container=container, user=user,
            vhost="", peer=f"{host}:{40000 + number}", listener="amqp", role="normal",
        )  # fmt: skip

    def intervals(self) -> list[datetime]:
        return [START + timedelta(seconds=INTERVAL * n) for n in range(self.hours * 3600 // INTERVAL)]


def write_usual_day(path: Path, router: str = "R", hours: int = 24, lines: bool = False) -> TelemetryDay:
    """Write a day with two producers on worker 0.

    Each interval has 600 orders, 500 of them to worker 1 and 100 to worker 0, and 60 logs, all on worker 0, whose
    consumer withholds credit for half of the time. Load grows by a hundredth of a core in a day.
    """
    day = TelemetryDay(path, router, hours, lines)
    day.connection(1, "sensor-17", 0, user="alice")
    day.connection(2, "sensor-18", 0, user="alice", host="10.0.0.2")
    day.connection(3, "store-1", 1, host="10.0.1.1")
    day.connection(4, "store-2", 0, host="10.0.1.2")
    day.connection(5, "logger", 0, host="10.0.1.3")
    for at, when in enumerate(day.intervals()):
        for source, target, worker, address, count in (
            (1, 3, 1, "orders", 500), (1, 4, 0, "orders", 100), (2, 5, 0, "logs", 60),
        ):  # fmt: skip
            day.add(
                "fact_flow", when, worker_in=0, worker_out=worker, link_in=source, link_out=target,
                connection_in=source, connection_out=target, address=address, deliveries=count,
            )  # fmt: skip
        for number, address, count, rejected in ((1, "orders", 600, 6), (2, "logs", 60, 0)):
            day.add(
                "fact_link", when, worker=0, link_id=number, connection_id=number, dir="in", address=address,
                deliveries=count, accepted=count - rejected, rejected=rejected, released=0, modified=0, presettled=0,
                dropped_presettled=0, delayed_1s=0, delayed_10s=0, unsettled=0, undelivered=0, credit=250, capacity=250,
                stuck=0, zero_credit_ms=0, settle_hist={11: count * 9 // 10, 14: count - count * 9 // 10},
            )  # fmt: skip
        for number, worker, address, count, without in (
            (3, 1, "orders", 500, 0), (4, 0, "orders", 100, 0), (5, 0, "logs", 60, INTERVAL * 500),
        ):  # fmt: skip
            day.add(
                "fact_link", when, worker=worker, link_id=number, connection_id=number, dir="out", address=address,
                deliveries=count, accepted=count, rejected=0, released=0, modified=0, presettled=0,
                dropped_presettled=0, delayed_1s=0, delayed_10s=0, unsettled=0, undelivered=7 if without else 0,
                credit=0 if without else 10, capacity=250, stuck=1 if without else 0, zero_credit_ms=without,
            )  # fmt: skip
        growth = 0.01 * at * INTERVAL / 86400
        for worker, share, ingress in ((0, 0.3 + growth, 660), (1, 0.1, 0)):
            day.add(
                "fact_worker", when, worker=worker, pid=10 + worker, cpu_user_us=round(share * INTERVAL * 1e6),
                cpu_sys_us=0, rss=1 << 26, loop_turns=1000, connections=3, links=3, buffered=0, ingress=ingress,
                egress=ingress, transit=0, accepted=ingress, rejected=0, released=0, modified=0, presettled=0,
                dropped_presettled=0,
            )  # fmt: skip
        day.add("fact_internode", when, connection_id=9, peer="S", cost=1, received=5, sent=30, unsettled=0)
        if at % 6 == 5:
            day.write()
    hour = START + timedelta(hours=3)
    peer = {"role": "inter-router", "container": "S", "peer": "10.9.9.9:5672"}
    day.add("event", hour, kind="connection close", subject="9", detail=peer)
    day.add("event", hour + timedelta(minutes=5), kind="connection open", subject="12", detail=peer)
    day.add("event", hour, kind="connection open", subject="3", detail={"role": "normal", "container": "store-1"})
    for minute in (1, 2, 61):
        detail = {"group": "guests", "reason": "target", "count": "4"}
        day.add("event", hour + timedelta(minutes=minute), kind="policy denial", subject="v", detail=detail)
    day.write()
    return day
