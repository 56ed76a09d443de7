"""Costs of steps in large tables: each row runs, and growth is detected."""

import re

import pytest

from loadtests import costs


@pytest.mark.long
@pytest.mark.timeout(300)
def test_rows_run_and_print_costs(capsys):
    assert costs.main(["--sizes", "20,40", "--growth", "1000"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^{name} +[\d.]+ +[\d.]+ +[\d.]+$", out, re.MULTILINE) for name in costs.ROWS)


def test_row_that_grows_too_much_is_reported(monkeypatch, capsys):
    monkeypatch.setitem(costs.ROWS, "walk", lambda _router, size: (lambda: sum(range(size * 1000)), 1))
    assert costs.main(["walk", "--sizes", "20,2000"]) == 1
    assert "TOO MUCH" in capsys.readouterr().out


def test_unknown_row_is_refused(capsys):
    with pytest.raises(SystemExit):
        costs.main(["none"])
    assert "no such row: none" in capsys.readouterr().err
