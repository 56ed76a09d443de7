"""Load test of reloads: it runs, and it detects the faults that it looks for."""

import itertools
import json
import re

import pytest

from loadtests import reload
from loadtests.processes import BenchRouter, MeasureError

SMALL = reload.Size(connections=8, addresses=20, listeners=2, reloads=3, interval=0.3, rate=400, workers=2)


def test_successive_configurations_differ():
    texts = [reload.configuration(SMALL, turn, 1, [2, 3]) for turn in range(4)]
    for before, after in itertools.pairwise(texts):
        lines = list(zip(before.splitlines(), after.splitlines(), strict=False))
        assert sum(old != new and "priority" in new for old, new in lines) or len(before) != len(after)
        assert sorted(set(re.findall("prefix: .*", before))) == sorted(set(re.findall("prefix: .*", after)))


def test_small_run_loses_no_message(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reload, "MOST_ADDED_MS", 10_000.0)  # other tests run at the same time
    figures = tmp_path / "out.json"
    words = ["--connections", "8", "--addresses", "20", "--listeners", "2", "--reloads", "3", "--interval", "0.3"]
    assert reload.main([*words, "--rate", "400", "--workers", "2", "--json", str(figures)]) == 0
    assert "none lost, doubled or out of order; no connection ended" in capsys.readouterr().out
    found = json.loads(figures.read_text())
    assert len(found["reload_ms"]) == 3
    assert found["messages"] > 0
    assert found["size"]["workers"] == 2


def test_configuration_not_in_force_is_a_fault():
    text = reload.configuration(SMALL, 0, 0, [])
    with BenchRouter(1, text=text) as router:
        reload.check_in_force(router, SMALL, 0)
        with pytest.raises(MeasureError, match="20 addresses are there, 20 of them not as the file says"):
            reload.check_in_force(router, SMALL, 1)
