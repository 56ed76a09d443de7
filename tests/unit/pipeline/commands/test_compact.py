"""Arguments of `compact`, and its report."""

import json

import pytest

pytest.importorskip("pyarrow")
from sluice.pipeline.cli import main
from sluice.pipeline.commands.bench import deliveries
from sluice.pipeline.segments import Group, Landing, LandingLog
from sluice.pipeline.writer import SegmentWriter


@pytest.mark.parametrize("words", [(), ("--path", "p"), ("--into", "i"), ("--path", "p", "--telemetry", "t")])
def test_path_and_into_must_come_together(words, capsys):
    assert main(["compact", *words], "p") == 1
    assert capsys.readouterr().err == "p compact: give --path and --into, or --telemetry, or all three\n"


def test_folder_without_telemetry_is_refused(tmp_path, capsys):
    assert main(["compact", "--telemetry", str(tmp_path)], "p") == 1
    assert capsys.readouterr().err == f"p compact: {tmp_path}: there is no telemetry (no folder v1)\n"


def test_read_segments_are_moved_and_counted(tmp_path, capsys):
    landing = Landing.create(str(tmp_path / "landing"))
    writer = SegmentWriter(landing, LandingLog("l", "a"), "l-0")
    for _ in range(3):
        writer.write(deliveries(2, 10))
    landing.commit(Group("g", {"l/a": 3}))
    words = ["--path", str(tmp_path / "landing"), "--into", str(tmp_path / "archive")]
    assert main(["compact", *words], "p") == 0
    assert "0 segments moved to 0 files" in capsys.readouterr().out
    assert main(["compact", *words, "--json"], "p") == 0
    expected = {"path": words[1], "into": words[3], "segments": 0, "files": 0}
    assert json.loads(capsys.readouterr().out) == expected
    assert main(["compact", *words, "--retention", "0"], "p") == 0
    assert "2 segments moved to " in capsys.readouterr().out
    assert [segment.number for segment in landing.listing("l/a").segments] == [2]
