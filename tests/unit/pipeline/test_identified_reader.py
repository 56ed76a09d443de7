"""Streams over folders and logs that are made anew, without Spark's Java: the reader is called as Spark calls it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadMaxRows

from sluice.pipeline.commands.bench import deliveries
from sluice.pipeline.errors import DataLossError
from sluice.pipeline.identified_reader import IdentifiedReader
from sluice.pipeline.options import source_options
from sluice.pipeline.segments import FORMAT_FILE, LOG_FILE, Landing, LandingLog
from sluice.pipeline.source import StreamReader
from sluice.pipeline.writer import SegmentWriter

LIMIT = ReadMaxRows(1000)
LOG = LandingLog("l", "a")
ROWS = 5


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "landing")


def land(path: str, segments: int, log: LandingLog = LOG) -> None:
    writer = SegmentWriter(Landing.create(path), log, "link")
    for _ in range(segments):
        writer.write(deliveries(ROWS, 1))


def reader(path: str, **options: str) -> IdentifiedReader:
    """Return a reader as in a new process."""
    return IdentifiedReader(StreamReader(source_options({"path": path, **options}, stream=True), ["segment"]))


def read(found: IdentifiedReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Return the segment of each row of a batch."""
    rows = [batch for part in found.partitions(start, end) for batch in found.read(part)]
    return sorted(number for batch in rows for number in batch.column("segment").to_pylist())


def every_row(*segments: int) -> list[int]:
    return sorted([*segments] * ROWS)


def first_batch(path: str) -> dict[str, Any]:
    """Read and commit all segments. Return the offset of the checkpoint."""
    found = reader(path)
    end = found.latestOffset(found.initialOffset(), LIMIT)
    found.commit(end)
    return end


def test_stream_continues_in_the_same_folder(path):
    land(path, 2)
    start = first_batch(path)
    land(path, 1)
    found = reader(path)
    end = found.latestOffset(start, LIMIT)
    assert read(found, start, end) == every_row(2)
    assert found.latestOffset(end, LIMIT) == end


def test_folder_made_anew_fails_though_its_log_is_longer(path):
    land(path, 2)
    start = first_batch(path)
    shutil.rmtree(path)
    land(path, 3)
    with pytest.raises(DataLossError, match="the landing folder was made anew since the query's last batch"):
        reader(path).latestOffset(start, LIMIT)


def test_folder_made_anew_is_read_from_its_first_segment_on_request(path):
    land(path, 2)
    start = first_batch(path)
    shutil.rmtree(path)
    land(path, 3)
    found = reader(path, failOnDataLoss="false")
    end = found.latestOffset(start, LIMIT)
    assert read(found, start, end) == every_row(0, 1, 2)


def test_shorter_folder_made_anew_is_read_from_its_first_segment_on_request(path):
    land(path, 3)
    start = first_batch(path)
    shutil.rmtree(path)
    land(path, 1)
    found = reader(path, failOnDataLoss="false")
    assert read(found, start, found.latestOffset(start, LIMIT)) == every_row(0)


def test_log_made_anew_fails_though_it_is_longer(path):
    other = LandingLog("l", "b")
    land(path, 2)
    land(path, 2, other)
    start = first_batch(path)
    shutil.rmtree(f"{path}/_consumers")  # numbers would continue from the group's
    shutil.rmtree(f"{path}/{LOG.key}")
    land(path, 3)
    land(path, 1, other)
    with pytest.raises(DataLossError, match="log l/a was made anew since the query's last batch"):
        reader(path).latestOffset(start, LIMIT)
    found = reader(path, failOnDataLoss="false")
    assert read(found, start, found.latestOffset(start, LIMIT)) == every_row(0, 1, 2, 2)


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_log_made_anew_between_triggers_fails(path, segments):
    land(path, 2)
    found = reader(path)
    end = found.latestOffset(found.initialOffset(), LIMIT)
    shutil.rmtree(f"{path}/{LOG.key}")
    land(path, segments)
    if segments == 2:  # nothing new by number: the next segment shows it
        assert found.latestOffset(end, LIMIT) == end
        land(path, 1)
    with pytest.raises(DataLossError, match=r"log l/a was made anew|was the log made anew"):
        found.latestOffset(end, LIMIT)


def test_identity_of_a_log_that_goes_on_is_not_read_again(path, monkeypatch):
    land(path, 2)
    found = reader(path)
    end = found.latestOffset(found.initialOffset(), LIMIT)
    identity = end["_ids"][LOG.key]
    reads: list[str] = []
    real = Landing.log_identity

    def spy(landing: Landing, log: str) -> str | None:
        reads.append(log)
        return real(landing, log)

    land(path, 1)
    monkeypatch.setattr(Landing, "log_identity", spy)
    end = found.latestOffset(end, LIMIT)
    assert (end[LOG.key], end["_ids"][LOG.key], reads) == (3, identity, [])
    assert reader(path).latestOffset({**end, LOG.key: 2}, LIMIT)["_ids"][LOG.key] == identity
    assert reads == [LOG.key], "a new process compares"


def test_repeated_batch_of_a_folder_made_anew_fails(path):
    """After a restart Spark repeats the last batch without asking for offsets."""
    land(path, 2)
    start = reader(path).initialOffset()
    end = reader(path).latestOffset(start, LIMIT)
    shutil.rmtree(path)
    land(path, 2)
    with pytest.raises(DataLossError, match="is of a log that was made anew"):
        read(reader(path), start, end)


def test_offsets_of_the_old_folder_are_not_committed_in_the_new_one(path):
    land(path, 2)
    found = reader(path)
    end = found.latestOffset(found.initialOffset(), LIMIT)
    shutil.rmtree(path)
    land(path, 3)
    with pytest.raises(DataLossError, match="the landing folder was made anew while a batch ran"):
        found.commit(end)
    assert Landing.open(path).groups() == []


def test_folder_of_an_earlier_release_is_read_and_named_once(path, caplog):
    land(path, 2)
    Path(path, LOG.key, LOG_FILE).unlink()
    Path(path, FORMAT_FILE).write_text('{"format":1}')
    found = reader(path)
    start = found.initialOffset()
    end = found.latestOffset({log: at for log, at in start.items() if log == LOG.key}, LIMIT)
    assert read(found, start, end) == every_row(0, 1)
    assert [each.message for each in caplog.records] == [
        f"{path}: a lander of an earlier release writes l/a, so a log made anew in its place would not be recognised"
    ]


def test_log_of_an_earlier_release_gets_an_identity_from_its_lander(path):
    land(path, 2)
    Path(path, LOG.key, LOG_FILE).unlink()
    start = first_batch(path)
    land(path, 1)
    found = reader(path)
    end = found.latestOffset(start, LIMIT)
    assert read(found, start, end) == every_row(2)
    assert end["_ids"][LOG.key] == Landing.open(path).log_identity(LOG.key)
