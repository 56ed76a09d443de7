"""Parsers of sizes, counts and speeds on command lines, for argparse."""

import argparse
import re
from typing import Final

_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size_or_zero(text: str) -> int:
    """Return the octets of a size such as 512k, 64m or 1g, or of 0. Raises ArgumentTypeError."""
    return 0 if text == "0" else size(text)


def size(text: str) -> int:
    """Return the octets of a size such as 512k, 64m, 1g or 2tb. Raises ArgumentTypeError."""
    found = re.fullmatch(r"([1-9][0-9]{0,11})([kmgt]?)b?", text.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: write 512k, 64m or 1g")
    return int(found[1]) * _SIZES[found[2]]


def count(text: str) -> int:
    """Return a number of 1 or more. Raises ArgumentTypeError."""
    if re.fullmatch(r"[1-9][0-9]{0,11}", text) is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or more")
    return int(text)


def speed(text: str) -> float | None:
    """Return a factor of speed such as 0.5 or 10; None for `max`. Raises ArgumentTypeError."""
    if text == "max":
        return None
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) is None or float(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a speed: write 1, 0.5, 10 or max")
    return float(text)
