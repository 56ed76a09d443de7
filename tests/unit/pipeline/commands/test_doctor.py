"""Check of prerequisites, a landing folder and a router."""

import re

import pytest

from sluice.pipeline.cli import main
from sluice.pipeline.commands import doctor
from sluice.pipeline.commands.bench import LOG, deliveries
from sluice.pipeline.merging import merge
from sluice.pipeline.segments import Group, Landing
from sluice.pipeline.writer import SegmentWriter
from tests.unit.pipeline.test_segments import KEY, publish_segments


@pytest.mark.starts
def test_doctor_names_problems(tmp_path, capsys):
    landing = Landing.create(str(tmp_path))
    publish_segments(landing, 0, 1)
    landing.store.publish(f"{KEY}/notes.txt", b"?")
    assert main(["doctor", "--path", str(tmp_path), "--url", "amqp://127.0.0.1:1"], "p") == 1
    out = capsys.readouterr().out
    assert "ok     folder    l/a: 2 segments, 20 messages, not read: 3 B" in out
    assert "files that are not segments, ignored: notes.txt" in out
    assert "wrong  router    127.0.0.1:1: " in out
    publish_segments(landing, 3)
    assert main(["doctor", "--path", str(tmp_path)], "p") == 1
    assert "wrong  folder    l/a: segment 2 is missing, readers stop there" in capsys.readouterr().out
    landing.commit(Group("g", {KEY: 3}))
    main(["doctor", "--path", str(tmp_path)], "p")
    out = capsys.readouterr().out
    assert "is missing" not in out
    assert re.search(r"group g: last commit \d+ s ago", out)


@pytest.mark.starts
def test_doctor_says_what_the_installed_spark_lacks(capsys, monkeypatch):
    spark_api = pytest.importorskip("sluice.pipeline.spark_api", exc_type=ImportError)
    main(["doctor"], "p")
    lines = re.findall(r"ok     pyspark   (.*)", capsys.readouterr().out)
    assert lines == [spark_api.pyspark.__version__]
    monkeypatch.setattr(spark_api, "HAS_STREAM_READER", False)
    monkeypatch.setattr(doctor, "spark_version", lambda: (4, 4))
    main(["doctor"], "p")
    lines = re.findall(r"ok     pyspark   (.*)", capsys.readouterr().out)
    assert lines[1] == "no version from 4.4 on is tested with this release"
    assert lines[2].startswith("readStream with format amqp needs Spark 4.2 or later; this is Spark ")


@pytest.mark.starts
def test_doctor_names_disk_without_room(tmp_path, capsys, monkeypatch):
    Landing.create(str(tmp_path))
    main(["doctor", "--path", str(tmp_path)], "p")
    assert re.search(r"ok     disk      [0-9.]+ \w+ are free\n", capsys.readouterr().out)
    monkeypatch.setattr(doctor, "DISK_LEAST", 1 << 62)
    assert main(["doctor", "--path", str(tmp_path)], "p") == 1
    assert re.search(r"wrong  disk      only .* are free: landers release messages", capsys.readouterr().out)


@pytest.mark.starts
def test_doctor_verify_names_damaged_segment(tmp_path, capsys):
    writer = SegmentWriter(Landing.create(str(tmp_path)), LOG, "l")
    _, damaged = writer.write(deliveries(3, 4)), writer.write(deliveries(3, 4))
    main(["doctor", "--path", str(tmp_path), "--verify"], "p")
    assert f"ok     segments  {LOG.key}: 2 segments are whole\n" in capsys.readouterr().out
    path = tmp_path / damaged.path
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 3] ^= 1
    path.write_bytes(octets)
    assert main(["doctor", "--path", str(tmp_path), "--verify"], "p") == 1
    assert f"wrong  segments  {tmp_path / damaged.path} " in capsys.readouterr().out


@pytest.mark.starts
def test_doctor_counts_merged_segments_and_verifies_them(tmp_path, capsys):
    landing = Landing.create(str(tmp_path))
    writer = SegmentWriter(landing, LOG, "l")
    segments = [writer.write(deliveries(3, 4)) for _ in range(5)]
    merged = merge(landing, segments[:4], writer.identity)
    assert merged is not None
    main(["doctor", "--path", str(tmp_path), "--verify"], "p")
    out = capsys.readouterr().out
    assert f"ok     folder    {LOG.key}: 5 segments (4 of them merged into 1 file), 15 messages, not read: " in out
    assert f"ok     segments  {LOG.key}: 5 segments are whole\n" in out
    landing.delete(segments[:4])
    landing.store.delete(merged.path)
    landing.commit(Group("g", {LOG.key: 2}))
    assert main(["doctor", "--path", str(tmp_path)], "p") == 1
    assert f"wrong  folder    {LOG.key}: segment 2 is missing, readers stop there" in capsys.readouterr().out


def test_doctor_verify_without_path_is_refused(capsys):
    assert main(["doctor", "--verify"], "p") == 1
    assert "p doctor: --verify needs --path" in capsys.readouterr().err
