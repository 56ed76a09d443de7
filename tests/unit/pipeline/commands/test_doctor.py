"""Check of prerequisites, a landing folder and a router."""

import re

import pytest

from sluice.pipeline.cli import main
from sluice.pipeline.segments import Group, Landing
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
