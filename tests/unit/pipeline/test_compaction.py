"""Merging of small files into large ones, including interrupted runs."""

import shutil
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.pipeline.cli import main
from sluice.pipeline.commands.bench import deliveries
from sluice.pipeline.compaction import archive, merge_telemetry
from sluice.pipeline.errors import FileError, LandingError
from sluice.pipeline.segments import FORMAT, FORMAT_KEY, Group, Landing, LandingLog, Segment, now, parse_log_key, schema
from sluice.pipeline.stores import LocalStore
from sluice.pipeline.writer import SegmentWriter

KEY = "l/a"
HOUR = 3_600_000
START = 1_700_000_000_000 // HOUR * HOUR


class Killed(Exception):
    """Exception that stands for the death of the process."""


def segment(landing: Landing, number: int, landed: int, key: str = KEY) -> Segment:
    rows = [{"message": b"%d.%d" % (number, each), "address": "a", "link": "l-0", "ordinal": each} for each in range(3)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema().remove_metadata(), store_schema=False) as writer:
        writer.add_key_value_metadata({FORMAT_KEY.decode(): str(FORMAT)})
        writer.write_table(pa.Table.from_pylist(rows, schema().remove_metadata()))
    octets = sink.getvalue()
    made = Segment(key, number, landed, 3, len(octets))
    landing.store.make_folder(key)
    landing.store.publish(made.path, octets)
    return made


@pytest.fixture
def landing(tmp_path):
    landing = Landing.create(str(tmp_path / "landing"))
    for number in range(6):
        segment(landing, number, START + number * HOUR // 3)
    landing.commit(Group("g", {KEY: 6}))
    return landing


def archived(path) -> list[tuple[bytes, int]]:
    return [
        (row["message"], row["segment"])
        for file in sorted(path.rglob("[0-9]*.parquet"))
        for row in pq.ParquetFile(file).read().to_pylist()
    ]


WHOLE = [(b"%d.%d" % (number, each), number) for number in range(5) for each in range(3)]


def test_archive_merges_segments_of_an_hour(landing, tmp_path):
    into = tmp_path / "archive"
    assert archive(landing, str(into), 0, at=START + 10 * HOUR) == (5, 2)
    assert archived(into) == WHOLE
    assert [each.number for each in landing.listing(KEY).segments] == [5]
    assert archive(landing, str(into), 0, at=START + 10 * HOUR) == (0, 0)
    (first, _) = sorted(into.rglob("[0-9]*.parquet"))
    assert first.name == "000000000000-000000000002.parquet"
    row = pq.ParquetFile(first).read().to_pylist()[0]
    assert (row["lander"], row["landed_time"]) == ("l", datetime.fromtimestamp(START / 1000, UTC))


def test_archive_keeps_unread_segments(landing, tmp_path):
    landing.commit(Group("h", {KEY: 1}))
    assert archive(landing, str(tmp_path / "archive"), 0, at=START + 10 * HOUR) == (1, 1)
    assert [each.number for each in landing.listing(KEY).segments] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("publications", [0, 1, 2])
@pytest.mark.parametrize("deletions", [0, 2])
def test_interrupted_archive_has_each_row_once(landing, tmp_path, monkeypatch, publications, deletions):
    into = tmp_path / "archive"
    publish, delete = LocalStore.publish, LocalStore.delete
    left = {"publish": publications, "delete": deletions}

    def kill_after(name, method):
        def call(self, *arguments):
            if left[name] == 0:
                raise Killed
            left[name] -= 1
            return method(self, *arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "publish", kill_after("publish", publish))
        patch.setattr(LocalStore, "delete", kill_after("delete", delete))
        with pytest.raises(Killed):
            archive(landing, str(into), 0, at=START + 10 * HOUR)
    archive(landing, str(into), 0, at=START + 10 * HOUR)
    assert archived(into) == WHOLE
    assert [each.number for each in landing.listing(KEY).segments] == [5]


def test_telemetry_merge_covers_past_hours(tmp_path, monkeypatch):
    folder = tmp_path / "telemetry" / "v1" / "fact_flow" / "router=A" / "date=2026-03-01" / "hour=07"
    folder.mkdir(parents=True)
    for minute in range(4):
        pq.write_table(pa.table({"n": [minute, minute]}), folder / f"{minute:02}.parquet")
    url = str(tmp_path / "telemetry")
    at = datetime(2026, 3, 1, 8, 59, tzinfo=UTC)
    assert merge_telemetry(url, at=at) == (0, 0)  # the current hour may still be written to
    at = at.replace(hour=9)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            merge_telemetry(url, at=at)
    assert merge_telemetry(url, at=at) == (4, 0)
    (file,) = folder.iterdir()
    assert pq.read_table(file, partitioning=None)["n"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3]
    pq.write_table(pa.table({"n": [4]}), folder / "99.parquet")  # a late file
    assert merge_telemetry(url, at=at) == (2, 1)
    (file,) = folder.iterdir()
    assert sorted(pq.read_table(file, partitioning=None)["n"].to_pylist()) == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert merge_telemetry(url, at=at) == (0, 0)


def test_compact_command_reports_files_and_errors(landing, tmp_path, capsys):
    assert main(["compact", "--path", landing.url, "--into", str(tmp_path / "x"), "--retention", "0"], "p") == 0
    assert "5 segments moved to 2 files in" in capsys.readouterr().out
    assert main(["compact", "--path", landing.url], "p") == 1
    assert "give --path and --into" in capsys.readouterr().err
    assert main(["compact", "--telemetry", str(tmp_path / "nowhere")], "p") == 1
    assert "there is no telemetry (no folder v1)" in capsys.readouterr().err


def test_archive_keeps_damaged_segment(landing, tmp_path):
    written = SegmentWriter(landing, LandingLog("l", "b"), "l-1")
    batch = deliveries(3, 40)
    damaged, _ = written.write(batch), written.write(deliveries(3, 40))
    landing.commit(Group("g", {damaged.log: 2}))
    path = landing.store.root / damaged.path
    octets = bytearray(path.read_bytes())
    octets[octets.index(batch.messages[:40])] ^= 1
    path.write_bytes(octets)
    with pytest.raises(LandingError, match=damaged.name):
        archive(landing, str(tmp_path / "archive"), 0, at=damaged.landed + HOUR)
    assert path.exists()


def test_archive_merges_segments_with_and_without_checksums(landing, tmp_path):
    writer = SegmentWriter(landing, parse_log_key(KEY), "l-0")
    writer.write(deliveries(3, 4))
    landing.commit(Group("g", {KEY: 7}))
    writer.write(deliveries(3, 4))
    into = tmp_path / "archive"
    assert archive(landing, str(into), 0, at=START + 10**12)[0] == 7
    assert [number for _, number in archived(into)] == [number for number in range(7) for _ in range(3)]


def test_damaged_telemetry_is_not_merged(tmp_path):
    folder = tmp_path / "v1" / "fact_flow" / "router=A" / "date=2026-03-01" / "hour=07"
    folder.mkdir(parents=True)
    for minute in range(2):
        pq.write_table(pa.table({"n": list(range(99))}), folder / f"{minute}.parquet", write_page_checksum=True)
    path = folder / "1.parquet"
    octets = bytearray(path.read_bytes())
    octets[100] ^= 1
    path.write_bytes(octets)
    with pytest.raises(FileError, match=r"1\.parquet cannot be read: "):
        merge_telemetry(str(tmp_path), at=datetime(2026, 3, 2, tzinfo=UTC))
    assert path.exists()


def test_archive_of_log_made_anew_keeps_its_segments(landing, tmp_path):
    log, into = LandingLog("l", "b"), str(tmp_path / "archive")

    def land_and_archive() -> None:
        writer = SegmentWriter(landing, log, "l-1")
        writer.write(deliveries(3, 4))
        writer.write(deliveries(3, 4))
        landing.commit(Group("g", {log.key: 2, KEY: 0}))
        archive(landing, into, 0, at=now() + HOUR)

    land_and_archive()
    shutil.rmtree(landing.store.root / log.key)
    landing.forget_group("g")
    with pytest.raises(LandingError, match=r"archive/l/b archives a log that was made anew since"):
        land_and_archive()
    assert [each.number for each in landing.listing(log.key).segments] == [0, 1]
