"""Tables of the sizing guide."""

from pathlib import Path

import pytest

from scripts import make_sizing


def test_changed_measurement_makes_check_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "sizing.json"
    changed.write_text(make_sizing.MEASUREMENTS.read_text("utf-8").replace('"value": 56.2', '"value": 99.0'), "utf-8")
    assert make_sizing.main(["--check"]) == 0
    monkeypatch.setattr(make_sizing, "MEASUREMENTS", changed)
    assert make_sizing.main(["--check"]) == 1
    assert "| 1 | 99 MiB |" in make_sizing.page()


def test_page_without_marker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "sizing.md"
    page.write_text("# Sizing\n", "utf-8")
    monkeypatch.setattr(make_sizing, "PAGE", page)
    with pytest.raises(ValueError, match="no table idle"):
        make_sizing.page()


def test_cores_above_measured_rate_are_marked_as_bound() -> None:
    assert make_sizing.cores(36.3, 10_000, 20_000) == "0.52"
    assert make_sizing.cores(36.3, 100_000, 20_000) == "≤ 5.2"
    assert make_sizing.cores(0.17, 1_000) == "< 0.1"
