"""Tables and cells, in the form that scripts parse."""

import io

import pytest

from sluice.router.cli.table import Display, commas, long_time, memory, short_time

HEADS = ["id", "container", "last dlv"]
ROWS: list[list[object]] = [[1, "a", "-"], [22, None, "000:00:00:01"]]


def printed(csv: bool, title: str, heads: list[str], rows: list[list[object]]) -> str:
    out = io.StringIO()
    Display(out, csv=csv).table(title, heads, rows)
    return out.getvalue()


def test_classic_table_is_left_justified() -> None:
    """Columns are left-justified and two blanks apart. Only the rule below the heads pads the last column."""
    assert printed(False, "Things", HEADS, ROWS) == (
        "Things\n"
        "  id  container  last dlv\n"
        "  =============================\n"
        "  1   a          -\n"
        "  22             000:00:00:01\n"
    )


def test_csv_cells_are_quoted() -> None:
    assert printed(True, "Things", ["a", "b", "c"], [['say "x"', None, 0], ["", True, "1,5"]]) == (
        'Things\n"a","b","c"\n"say ""x""",,"0"\n,"True","1,5"\n'
    )


@pytest.mark.parametrize("csv", [False, True])
def test_table_without_rows_is_its_title(csv: bool) -> None:
    assert printed(csv, "Things", HEADS, []) == "Things\n"


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1.00 KiB"),
        (1762000, "1.68 MiB"),
        (15 * 1024, "15.0 KiB"),
        (333447168, "318 MiB"),
        (5 * 2**60, "5120 PiB"),
        (None, ""),
    ],
)
def test_memory_is_shown_with_unit(octets: int | None, text: str) -> None:
    assert memory(octets) == text


def test_times_and_numbers_are_formatted() -> None:
    assert long_time(0) == "000:00:00:00"
    assert long_time(2 * 86400 + 3 * 3600 + 4 * 60 + 5) == "002:03:04:05"
    assert long_time(1234 * 86400) == "1234:00:00:00"
    assert short_time(3661) == "01:01:01"
    assert short_time(200 * 3600) == "200:00:00"
    assert [str(commas(number)) for number in (1234567, 999, None)] == ["1,234,567", "999", ""]
