"""Periods of reports: their size decides how Spark starts."""

from datetime import UTC, datetime, timedelta

from sluice.pipeline.jobs import period


def test_period_with_little_json_is_little(tmp_path):
    day = datetime(2026, 3, 1, tzinfo=UTC)
    for table, date in (("fact_flow", "2026-03-01"), ("fact_link", "2026-03-02"), ("dim_link", "2026-03-01")):
        folder = tmp_path / "v1" / table / "router=R" / f"date={date}" / "hour=08"
        folder.mkdir(parents=True)
        for name, octets in (("a.jsonl", period.FEW // 2), ("a.parquet", period.FEW)):
            with (folder / name).open("wb") as file:
                file.truncate(octets)
    assert period.has_few_octets(tmp_path, day, day + timedelta(hours=23))
    assert not period.has_few_octets(tmp_path, day, day + timedelta(days=1))
