"""Parsers of times on command lines, and a formatter of sizes. Parsers of sizes: router/cli/quantities.py."""

import re
from argparse import ArgumentTypeError

TIMES = {"": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def minutes(text: str) -> float:
    """Parse a time: "60" (minutes), "90s", "2h", "7d"; return seconds. Raises ArgumentTypeError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.lower())
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a time: expected minutes, or for example 90s, 2h or 7d")
    return float(match[1]) * TIMES[match[2]]


def seconds(text: str) -> float:
    """Parse a number of seconds, at least 0. Raises ArgumentTypeError."""
    if re.fullmatch(r"\d{1,9}(\.\d{0,9})?|\.\d{1,9}", text) is None:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return float(text)


def count_or_zero(text: str) -> int:
    """Parse a number of 0 or more. Raises ArgumentTypeError."""
    if re.fullmatch(r"0|[1-9][0-9]{0,11}", text) is None:
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def octets_text(octets: float) -> str:
    """Format octets for people: "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if octets < 1024:
            return f"{octets:.0f} {unit}" if unit == "B" else f"{octets:.1f} {unit}"
        octets /= 1024
    return f"{octets:.1f} TiB"
