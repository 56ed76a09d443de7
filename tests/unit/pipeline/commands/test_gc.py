"""Deletion of read segments from the command line."""

from sluice.pipeline.cli import main
from sluice.pipeline.segments import Group, Landing
from tests.unit.pipeline.test_segments import KEY, publish_segments


def test_gc_reports_deleted_segments(tmp_path, capsys):
    landing = Landing.create(str(tmp_path))
    words = ["gc", "--path", str(tmp_path), "--retention", "0"]
    publish_segments(landing, 0, 1, 2)
    assert main(words, "p") == 0
    assert "no group has read anything" in capsys.readouterr().out
    landing.commit(Group("g", {KEY: 2}))
    assert main([*words, "--dry-run"], "p") == 0
    assert "would delete 2 segments, 3 B, 20 messages" in capsys.readouterr().out
    assert main(words, "p") == 0
    assert "deleted 2 segments" in capsys.readouterr().out
    assert [each.number for each in landing.listing(KEY).segments] == [2]
