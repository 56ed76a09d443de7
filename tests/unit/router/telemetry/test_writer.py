"""Telemetry files: complete or absent, kept within a quota, never written twice."""

import json

import pytest

from sluice.router.telemetry.schema import TABLES, time_column
from sluice.router.telemetry.writer import TelemetryWriter

US = 1_000_000
HOUR = 3600


class SettableClock:
    def __init__(self):
        self.now = 1_772_323_200.0  # 2026-03-01

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return SettableClock()


def writer(path, clock, **more):
    given = {"max_megabytes": 1, "keep_hours": 1, "encode": None, "clock": clock, **more}
    return TelemetryWriter(path, "a/b", "boot", **given)


def row(clock, ingress=1):
    return {"interval_start": round(clock() * US), "interval_ms": 1000, "worker": 0, "ingress": ingress}


def files(path):
    return sorted(found for found in path.rglob("*.jsonl"))


def test_file_path_has_spark_partitions(tmp_path, clock):
    made = writer(tmp_path, clock)
    made.add("fact_worker", [row(clock, 7)])
    made.publish(1)
    (file,) = files(tmp_path)
    assert file == tmp_path / "v1/fact_worker/router=a%2Fb/date=2026-03-01/hour=00/000000-boot-000001.jsonl"
    (found,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (found["ingress"], found["interval_start"]) == (7, "2026-03-01T00:00:00.000000+00:00")


@pytest.mark.parametrize("table", TABLES)
def test_tables_can_be_written_as_parquet(tmp_path, clock, table):
    parquet = pytest.importorskip("pyarrow.parquet")
    from sluice.router.telemetry.parquet import encode

    made = writer(tmp_path, clock, encode=encode)
    made.add(table, [{time_column(table): round(clock() * US), "settle_hist": {3: 4}, "detail": {"a": "b"}}])
    made.publish(1)
    (file,) = tmp_path.rglob("*.parquet")
    found = parquet.ParquetFile(file).read()
    assert found.column_names == list(TABLES[table])
    if table == "fact_link":
        assert found.column("settle_hist").to_pylist() == [[(3, 4)]]


def test_rows_wait_while_disk_refuses_files(tmp_path, clock):
    path = tmp_path / "telemetry"
    path.write_text("no folder")
    made = writer(path, clock)
    made.add("fact_worker", [row(clock)])
    with pytest.raises(OSError):
        made.publish(1)
    path.unlink()
    made.add("fact_worker", [row(clock)])
    made.publish(1)
    (file,) = files(path)
    assert len(file.read_text().splitlines()) == 2
    assert made.waiting == 0


def test_failed_set_leaves_no_files(tmp_path, clock):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1/fact_worker").write_text("no folder")
    made = writer(tmp_path, clock)
    made.add("event", [{"ts": round(clock() * US), "kind": "reload"}])
    made.add("fact_worker", [row(clock)])
    with pytest.raises(OSError):
        made.publish(1)
    assert files(tmp_path) == []
    assert made.waiting == 2


def test_old_files_are_deleted_with_their_folders(tmp_path, clock):
    made = writer(tmp_path, clock)
    for number in range(1, 31):
        made.add("fact_worker", [row(clock)])
        made.publish(number)
        made.clean()
        clock.now += HOUR / 2
    left = files(tmp_path)
    assert len(left) == len(TABLES)
    assert left[-1].name.endswith("000030.jsonl")
    assert len(list((tmp_path / "v1/fact_worker/router=a%2Fb/date=2026-03-01").iterdir())) <= len(TABLES)


def test_quota_includes_files_of_earlier_process(tmp_path, clock):
    first = writer(tmp_path, clock, keep_hours=1000)
    for number in range(1, 15):
        rows = [row(clock) for _ in range(800)]
        first.add("fact_worker", rows)
        first.publish(number)
        clock.now += 60
    clock.now += HOUR
    second = writer(tmp_path, clock, keep_hours=1000)
    second.add("fact_worker", [row(clock)])
    second.publish(15)
    second.clean()
    left = files(tmp_path)
    assert sum(file.stat().st_size for file in left) <= 1 << 20
    assert len(TABLES) <= len(left) < 15
    assert left[-1].name.endswith("000015.jsonl")


def test_hidden_files_of_other_boot_are_deleted(tmp_path, clock):
    made = writer(tmp_path, clock)
    for number in (1, 2, 3):
        made.add("fact_worker", [row(clock)])
        made.publish(number, b"state %d" % number)
    for file in files(tmp_path)[1:]:
        file.rename(file.with_name(f".{file.name}.tmp"))  # the state after a crash
    (tmp_path / "v1/fact_worker/router=a%2Fb/date=2026-03-01/hour=00/.part.tmp").write_text("{")
    again = writer(tmp_path, clock)
    assert again.load() == b"state 3"
    again.recover("another", 9)
    assert [file.name[-12:] for file in files(tmp_path)] == ["000001.jsonl"]


def test_noted_set_is_published_after_crash(tmp_path, clock):
    made = writer(tmp_path, clock)
    made.add("fact_worker", [row(clock)])
    made.publish(1, b"state")
    (file,) = files(tmp_path)
    file.rename(file.with_name(f".{file.name}.tmp"))
    later = file.with_name(f".{file.name.replace('000001', '000002')}.tmp")
    later.write_text("{}")
    writer(tmp_path, clock).recover("boot", 1)
    assert files(tmp_path) == [file]
    assert not later.exists()


def test_files_that_cannot_be_renamed_are_published_later_once(tmp_path, clock):
    made = writer(tmp_path, clock)
    made.add("fact_worker", [row(clock)])
    blocked = tmp_path / "v1/fact_worker/router=a%2Fb/date=2026-03-01/hour=00/000000-boot-000001.jsonl"
    (blocked / "folder").mkdir(parents=True)
    with pytest.raises(OSError):
        made.publish(1, b"state")
    assert made.load() == b"state"
    assert made.waiting == 0
    made.add("fact_worker", [row(clock, 2)])
    (blocked / "folder").rmdir()
    blocked.rmdir()
    made.publish(2, b"state")
    assert len(files(tmp_path)) == 2


def test_files_are_private_and_planted_links_are_not_followed(tmp_path, clock):
    made = writer(tmp_path, clock)
    victim = tmp_path / "victim"
    victim.write_text("own")
    temporary = made.state_path.with_name(f".{made.state_path.name}.tmp")
    temporary.parent.mkdir(parents=True)
    temporary.symlink_to(victim)
    made.add("fact_worker", [row(clock)])
    made.publish(1, b"state")
    assert victim.read_text() == "own"
    assert made.load() == b"state"
    for path in (made.state_path, *files(tmp_path)):
        assert path.lstat().st_mode & 0o137 == 0, path
