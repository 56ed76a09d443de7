"""Telemetry jobs on days with known results, run by Spark."""

from datetime import timedelta, timezone

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from sluice.pipeline.cli import main
from sluice.pipeline.commands.report import collect
from sluice.pipeline.jobs import addresses, capacity, diagnoses, links, rollup
from sluice.pipeline.telemetry.reader import TelemetryError, TelemetryTables
from tests.pipeline.days import INTERVAL, START, TelemetryDay, write_usual_day

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
INTERVALS = 144


@pytest.fixture(scope="module")
def rollups(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("telemetry")
    write_usual_day(path)
    return rollup.Rollups.of(TelemetryTables(spark, str(path), START, START + DAY))


def test_latency_is_computed_by_address(rollups):
    orders, logs = addresses.by_address(rollups)
    assert (orders.address, orders.deliveries, logs.address) == ("orders", 600 * INTERVALS, "logs")
    assert (orders.outcomes["accepted"], orders.outcomes["rejected"]) == (594 * INTERVALS, 6 * INTERVALS)
    assert orders.settle_us[50] == pytest.approx(1024 + 1024 * 5 / 9)  # 9 of 10 lie between 1024 and 2048 µs
    assert orders.settle_us[95] == pytest.approx(8192 * 1.5)
    assert (orders.rate(50), len(orders.hourly)) == (1.0, 24)


def test_rates_cover_the_running_time_only(spark, tmp_path):
    """Rates are computed over the time in which the router ran."""
    day = TelemetryDay(tmp_path, "R", hours=1)
    for when in day.intervals()[:3]:
        day.add(
            "fact_link", when, worker=0, link_id=1, connection_id=1, dir="in", address="a", deliveries=6 * INTERVAL,
            accepted=6 * INTERVAL, rejected=0, released=0, modified=0, presettled=0, dropped_presettled=0,
        )  # fmt: skip
        day.add("fact_worker", when, worker=0, cpu_user_us=1, cpu_sys_us=0, ingress=6 * INTERVAL)
    day.write()
    found = rollup.Rollups.of(TelemetryTables(spark, str(tmp_path), START, START + DAY))
    assert found.covered() == {("R", as_collected(START)): 1800.0}
    (figures,) = addresses.by_address(found)
    assert figures.hourly == [6.0]
    assert collect(found).seconds == 1800.0


def as_collected(when):
    """Return a time as Spark collects it."""
    return when.astimezone().replace(tzinfo=None)


def test_busiest_links_come_first(rollups):
    found = [(each.client, each.direction, each.address, each.deliveries) for each in links.busiest_links(rollups)]
    assert found == [
        ("alice@sensor-*", "in", "orders", 600 * INTERVALS),
        ("store-*", "out", "orders", 600 * INTERVALS),
        ("alice@sensor-*", "in", "logs", 60 * INTERVALS),
        ("logger", "out", "logs", 60 * INTERVALS),
    ]
    assert len(links.busiest_links(rollups, most=1)) == 1


def test_stalled_links_name_the_client_withholding_credit(rollups):
    (found,) = links.stalled_links(rollups)
    assert (found.client, found.direction, found.address) == ("logger", "out", "logs")
    assert (found.undelivered, found.stuck) == (7, 1)
    assert (found.without_seconds, found.share) == (43200, 0.5)


@pytest.mark.long
def test_stalled_links_list_consumers_before_producers(spark, tmp_path):
    day = TelemetryDay(tmp_path, "R", hours=1)
    day.connection(1, "sensor-17", 0)
    for number, direction, without in ((1, "in", 500), (2, "out", 10), (3, "out", 0)):
        day.add(
            "fact_link", START, worker=0, link_id=number, connection_id=number, dir=direction, address="a",
            zero_credit_ms=without * 1000,
        )  # fmt: skip
    day.add("fact_worker", START, worker=0)
    day.write()
    found = links.stalled_links(rollup.Rollups.of(TelemetryTables(spark, str(tmp_path), START, START + DAY)))
    assert [(each.direction, each.client, each.without_seconds, each.deliveries) for each in found] == [
        ("out", "?", 10, 0), ("in", "sensor-*", 500, 0),
    ]  # fmt: skip


def test_usual_day_has_no_diagnosis(rollups):
    """Its consumer withholds credit for half of the time, but no producer waits; one of 100 orders is rejected."""
    assert diagnoses.by_address(rollups) == []


def test_stalled_producer_is_diagnosed_by_hour(spark, tmp_path):
    day = TelemetryDay(tmp_path, "R", hours=4)
    day.connection(1, "shop-1", 0)
    day.connection(2, "billing-1", 0)
    for at, when in enumerate(day.intervals()):
        slow = 12 <= at < 18  # the third hour
        for number, direction in ((1, "in"), (2, "out")):
            day.add(
                "fact_link", when, worker=0, link_id=number, connection_id=number, dir=direction, address="a",
                deliveries=2400, accepted=2400, rejected=0, released=0, modified=0, presettled=0,
                delayed_1s=2400 * slow, unsettled=250 * slow, capacity=250, zero_credit_ms=0,
                settle_hist={23 if slow else 11: 2400} if direction == "in" else {},
            )  # fmt: skip
        day.add("fact_worker", when, worker=0)
    day.write()
    telemetry = TelemetryTables(spark, str(tmp_path), START, START + DAY)
    (found,) = diagnoses.by_address(rollup.Rollups.of(telemetry))
    assert (found.kind, found.clients, found.senders) == (diagnoses.SLOW, ["billing-*"], ["shop-*"])
    assert (found.since, found.until, found.present) == (START + 2 * HOUR, START + 3 * HOUR, True)
    assert [each.kind for each in diagnoses.by_address(rollup.Rollups.of(telemetry, rollup.MINUTE))] == [diagnoses.SLOW]


def test_covered_time_is_that_of_the_files(spark, tmp_path):
    write_usual_day(tmp_path, hours=4)
    minute = timedelta(minutes=1)
    assert TelemetryTables(spark, str(tmp_path), START, START + DAY).covered() == 3 * HOUR + minute
    assert TelemetryTables(spark, str(tmp_path), START + HOUR, START + 2 * HOUR).covered() == HOUR
    assert TelemetryTables(spark, str(tmp_path), START + DAY, START + 2 * DAY).covered() == timedelta()


def test_capacity_is_computed_by_router(rollups):
    (found,) = capacity.by_router(rollups)
    assert found.cpu_us_a_delivery == pytest.approx(0.405 * 600e6 / 660, rel=0.01)
    assert found.hourly[5][1] == pytest.approx(1.1)
    assert found.full_on is None  # the data covers a single day


def test_forecast_ignores_the_daily_pattern():
    """A daily pattern is not growth."""

    def load(days, growth):
        return [(START + timedelta(hours=n), 0.2 + 0.1 * (n % 24 == 20) + growth * n / 24) for n in range(24 * days)]

    assert capacity.full_on(load(3, 0.0)) is None
    assert capacity.full_on(load(1, 0.01)) is None
    found = capacity.full_on(load(3, 0.01))
    assert found is not None
    assert (found - START) / DAY == pytest.approx(40, abs=0.1)  # 0.3 in the busiest hour, growing by 0.01 a day


@pytest.mark.long
def test_telemetry_of_a_period_includes_json_lines(spark, tmp_path):
    """Only rows that began in the period count, from two routers of which one wrote JSON."""
    write_usual_day(tmp_path, "R", hours=4)
    write_usual_day(tmp_path, "S", hours=4, lines=True)
    found = TelemetryTables(spark, str(tmp_path), START + timedelta(hours=1), START + timedelta(hours=3))
    assert rollup.write(found, str(tmp_path))["flows"] > 0
    flows = spark.read.parquet(f"{tmp_path}/rollup/v1/flows").groupBy("router").sum("deliveries").collect()
    assert {row[0]: row[1] for row in flows} == {"R": 660 * 12, "S": 660 * 12}
    rolled = rollup.Rollups.of(found)
    sent = rolled.links.where("dir = 'in'").groupBy("router").sum("deliveries").collect()
    assert {row[0]: row[1] for row in sent} == {"R": 660 * 12, "S": 660 * 12}
    settles = rolled.settles.groupBy("router", "bucket").sum("count").collect()
    assert {tuple(row) for row in settles} == {(r, b, n * 12) for r in "RS" for b, n in ((11, 594), (14, 66))}


@pytest.mark.long
def test_telemetry_period_in_another_zone_is_converted(spark, tmp_path):
    """Folders are named by hours in UTC."""
    write_usual_day(tmp_path)
    west = timezone(timedelta(hours=-5))
    for first, last in ((0, 3), (5, 6), (22, 24)):
        start, end = ((START + n * HOUR).astimezone(west) for n in (first, last))
        found = rollup.Rollups.of(TelemetryTables(spark, str(tmp_path), start, end)).links.where("dir = 'in'")
        assert found.groupBy().sum("deliveries").collect()[0][0] == 660 * 6 * (last - first)


@pytest.mark.long
def test_rollups_replace_earlier_ones_of_the_day(spark, tmp_path):
    write_usual_day(tmp_path, hours=4)
    telemetry = TelemetryTables(spark, str(tmp_path), START, START + DAY)
    first = rollup.write(telemetry, str(tmp_path))
    assert rollup.write(telemetry, str(tmp_path)) == first
    assert first["workers"] == 8
    flows = spark.read.parquet(f"{tmp_path}/rollup/v1/flows")
    assert flows.groupBy().sum("deliveries").collect()[0][0] == 660 * 24
    # An earlier version let Spark write the files; these are removed.
    (day,) = tmp_path.glob("rollup/v1/flows/date=*")
    flows.drop("date").coalesce(1).write.parquet(str(tmp_path / "earlier"))
    next((tmp_path / "earlier").glob("part-*")).rename(day / "part-0.parquet")
    assert rollup.write(telemetry, str(tmp_path)) == first
    assert [each.name for each in day.iterdir()] == ["rollup.parquet"]


@pytest.mark.long
def test_rollups_of_several_days_divide_rows_by_day(spark, tmp_path):
    """Rows of an hour's file that began on the next day belong to that day; clients are known from earlier days."""
    write_usual_day(tmp_path, hours=50)
    last = TelemetryTables(spark, str(tmp_path), START + DAY, START + 3 * DAY)
    assert rollup.write(last, str(tmp_path))["workers"] == 2 * 26
    flows = spark.read.parquet(f"{tmp_path}/rollup/v1/flows")
    sums = flows.groupBy("date", "client_in").sum("deliveries").orderBy("date").collect()
    assert {(str(row[0]), row[1]): row[2] for row in sums} == {
        ("2026-03-02", "alice@sensor-*"): 660 * 144,
        ("2026-03-03", "alice@sensor-*"): 660 * 12,
    }


def test_truncated_file_is_named(spark, tmp_path, capsys):
    write_usual_day(tmp_path, hours=2)
    path = next(tmp_path.glob("v1/fact_flow/*/*/*/*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    assert main(["rollup", "--telemetry", str(tmp_path), "--from", f"{START:%Y-%m-%d}"], "sluice pipeline") == 1
    assert capsys.readouterr().err.startswith(f"sluice pipeline rollup: {path} cannot be read: ")


def test_folder_without_telemetry_is_refused(spark, tmp_path):
    with pytest.raises(TelemetryError, match="there is no telemetry"):
        TelemetryTables(spark, str(tmp_path), START, START + DAY)
