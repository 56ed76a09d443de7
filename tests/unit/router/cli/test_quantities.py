"""Sizes, counts and speeds on command lines."""

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from sluice.router.cli.quantities import count, size, size_or_zero, speed


def test_quantities_with_units_are_parsed() -> None:
    assert [size(text) for text in ("512", "512k", "32m", "4G", "1tb")] == [512, 1 << 19, 32 << 20, 4 << 30, 1 << 40]
    assert [size_or_zero(text) for text in ("0", "4g")] == [0, 4 << 30]
    assert count("7") == 7
    assert [speed(text) for text in ("0.5", "10", "max")] == [0.5, 10.0, None]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *[(size, text) for text in ("0", "4x", "-1", "", "9" * 13)],
        *[(size_or_zero, text) for text in ("00", "4x")],
        *[(count, text) for text in ("0", "1.5", "٣")],
        *[(speed, text) for text in ("0", "nan", "-1")],
    ],
)
def test_text_that_is_no_quantity_is_refused(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"^'{text}' is not a "):
        read(text)
