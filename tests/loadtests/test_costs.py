"""Costs of steps in large tables: each row runs, and growth is detected."""

import re

import pytest

from loadtests import costs


@pytest.mark.long
@pytest.mark.timeout(300)
def test_all_rows(capsys):
    assert costs.main(["--sizes", "20,40", "--growth", "1000"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^{name} +[\d.]+ +[\d.]+ +[\d.]+$", out, re.MULTILINE) for name in costs.ROWS)


def test_a_row_that_grows_too_much(monkeypatch, capsys):
    monkeypatch.setitem(costs.ROWS, "walk", lambda _router, size: (lambda: sum(range(size * 1000)), 1))
    assert costs.main(["walk", "--sizes", "20,2000"]) == 1
    assert "TOO MUCH" in capsys.readouterr().out


def test_a_row_that_there_is_not(capsys):
    with pytest.raises(SystemExit):
        costs.main(["none"])
    assert "no such row: none" in capsys.readouterr().err
