"""Measurement of single configuration changes: it runs and reports its findings."""

from __future__ import annotations

import json

from loadtests import changes
from loadtests.changes import Cost, Outcome


def test_measurement_runs_and_writes_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(changes, "MOST_ADDED_MS", 10_000.0)  # other tests run at the same time
    figures = tmp_path / "figures.json"
    assert changes.main(["--entities", "20", "--changes", "3", "--json", str(figures)]) == 0
    assert [found["kind"] for found in json.loads(figures.read_text())] == list(changes.BODIES)
    assert capsys.readouterr().out.endswith(": ok\n")


def test_growth_with_number_of_entities_is_reported():
    few, many = Cost(1.0, 1.0, 0.5), Cost(25.0, 20.0, 15.0)
    text = changes.report(10_000, [Outcome("address", few, few), Outcome("autoLink", few, many)])
    assert text.endswith("many entities added 14.50 ms at most (bar: 2 ms): MISSED")


def test_router_that_does_not_start_is_reported(capsys):
    assert changes.main(["--entities", "1", "--changes", "1", "--router", "false"]) == 2
    assert "did not listen" in capsys.readouterr().err
