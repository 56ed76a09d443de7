"""Deletion of read segments from the command line."""

import json

from sluice.pipeline.cli import main
from sluice.pipeline.segments import Group, Landing, now
from tests.unit.pipeline.test_segments import KEY, publish_segments


def test_gc_reports_deleted_segments(tmp_path, capsys):
    landing = Landing.create(str(tmp_path))
    words = ["gc", "--path", str(tmp_path), "--retention", "0"]
    publish_segments(landing, 0, 1, 2)
    assert main(words, "p") == 0
    assert "no group has read anything" in capsys.readouterr().out
    assert main([*words, "--json"], "p") == 0
    assert json.loads(capsys.readouterr().out)["segments"] == 0
    landing.commit(Group("g", {KEY: 2}))
    assert main([*words, "--dry-run"], "p") == 0
    assert "would delete 2 segments, 3 B, 20 messages" in capsys.readouterr().out
    assert main([*words, "--dry-run", "--json"], "p") == 0
    expected = {"path": str(tmp_path), "dry_run": True, "segments": 2, "octets": 3, "messages": 20}
    assert json.loads(capsys.readouterr().out) == expected
    assert main(words, "p") == 0
    assert "deleted 2 segments" in capsys.readouterr().out
    assert [each.number for each in landing.listing(KEY).segments] == [2]


def test_forgotten_group_no_longer_keeps_segments(tmp_path, capsys):
    landing = Landing.create(str(tmp_path))
    publish_segments(landing, 0, 1, 2)
    landing.commit(Group("gone", {KEY: 0}))
    landing.commit(Group("g", {KEY: 2}))
    words = ["gc", "--path", str(tmp_path), "--retention", "0", "--forget-group", "gone"]
    assert main([*words, "--dry-run"], "p") == 0
    assert "would delete 2 segments, 3 B, 20 messages" in capsys.readouterr().out
    assert [group.name for group in landing.groups()] == ["g", "gone"]
    assert main(words, "p") == 0
    assert "deleted 2 segments, 3 B, 20 messages" in capsys.readouterr().out
    assert [group.name for group in landing.groups()] == ["g"]


def test_dry_run_that_forgets_the_last_group_deletes_nothing(tmp_path, capsys):
    landing = Landing.create(str(tmp_path))
    publish_segments(landing, 0, 1)
    landing.commit(Group("g", {KEY: 2}))
    words = ["gc", "--path", str(tmp_path), "--retention", "0", "--forget-group", "g", "--dry-run"]
    assert main(words, "p") == 0
    assert "no group has read anything" in capsys.readouterr().out


def test_segments_within_retention_are_kept(tmp_path, capsys):
    landing = Landing.create(str(tmp_path))
    publish_segments(landing, 0, 1, landed=now())
    landing.commit(Group("g", {KEY: 2}))
    assert main(["gc", "--path", str(tmp_path)], "p") == 0
    assert "deleted 0 segments" in capsys.readouterr().out
