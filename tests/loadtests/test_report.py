"""Figures compared with their bars, and the tables made of them."""

from pathlib import Path

import pytest

from loadtests.report import (
    FailedRow,
    Figure,
    around_table,
    at_least,
    at_most,
    cells,
    markdown_table,
    number,
    ratio_at_least,
    ratio_at_most,
    text_table,
    write_docs,
)

FAST = Figure("fast", 2_000_000.0, "/s", ratio_at_least(0.4), 4_000_000.0)
CPU = Figure("cpu", 0.3, "µs", at_most(0.25))


@pytest.mark.parametrize(
    ("figure", "passed"),
    [
        (FAST, True),
        (Figure("slow", 1.0, "/s", ratio_at_least(0.4), 2.6), False),
        (CPU, False),
        (Figure("edge", 0.25, "µs", at_most(0.25)), True),
        (Figure("edge", 3.0, "/s", at_least(3)), True),
        (Figure("below", 2.9, "/s", at_least(3)), False),
        (Figure("late", 31.0, "µs", ratio_at_most(3), 10.0), False),
        (Figure("in time", 30.0, "µs", ratio_at_most(3), 10.0), True),
        (Figure("relay measured nothing", 30.0, "µs", ratio_at_most(3), 0.0), False),
    ],
)
def test_figure_passes_or_misses_its_bar(figure: Figure, passed: bool) -> None:
    assert figure.passed is passed
    assert cells(figure)[-1] == ("pass" if passed else "miss")


@pytest.mark.parametrize(
    ("value", "text"), [(0.0512, "0.0512"), (12.345, "12.3"), (0, "0"), (999.4, "999"), (1234567.8, "1,234,568")]
)
def test_number_is_rounded_for_display(value: float, text: str) -> None:
    assert number(value) == text


def test_cells_have_value_relay_ratio_and_bar() -> None:
    assert cells(FAST) == ("fast", "2,000,000 /s", "4,000,000 /s", "0.50", "≥ 0.4 of relay", "pass")
    assert cells(CPU) == ("cpu", "0.3 µs", "", "", "≤ 0.25 µs", "miss")


def test_text_table_is_aligned() -> None:
    lines = text_table([FAST, CPU]).splitlines()
    column = lines[0].index("measured")
    assert lines[2][column:].startswith("2,000,000 /s")
    assert lines[3][column:].startswith("0.3 µs")
    assert lines[2].endswith("pass")
    assert lines[3].endswith("miss")


def test_failure_is_reported_as_miss_with_reason() -> None:
    failure = FailedRow("multicast", "3 messages\nwere lost | twice")
    assert failure.passed is False
    table = markdown_table([failure])
    assert "not measured: 3 messages were lost \\| twice" in table
    assert table.splitlines()[-1].endswith("| miss |")


BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def test_write_docs_replaces_text_between_markers(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{BEGIN}\nold table\n{END}\nafter\n")
    for _ in range(2):  # the second call changes nothing
        write_docs("bench", markdown_table([FAST]), page)
    assert page.read_text() == f"before\n{BEGIN}\n{markdown_table([FAST])}\n{END}\nafter\n"


@pytest.mark.parametrize("name", ["bench", "instructions", "scale"])
def test_performance_page_has_markers(name: str) -> None:
    before, after = around_table(name)
    assert before.startswith("# Performance")
    assert "How it is measured" in after


@pytest.mark.parametrize("text", ["no markers", f"{BEGIN} only", f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_write_docs_without_markers_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "performance.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"performance\.md"):
        write_docs("bench", "table", page)
    assert page.read_text() == text
