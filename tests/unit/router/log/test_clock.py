"""Timestamps of log lines: formats and time zones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.router.log import TimestampFormatter

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("pattern", "stamp"),
    [
        (None, "1970-01-01 00:16:40.000789 +0000"),
        ("%T %%d", "00:16:40 789"),
        ("%%06lu|%T", "000789|00:16:40"),
        ("%T", "00:16:40"),
        ("", ""),
        ("%T 100%%%%", "00:16:40 100%"),
        ("%%d %%%%", "789 %"),
    ],
)
def test_timestamp_format_is_applied(pattern, stamp):
    clock = TimestampFormatter(pattern, utc=True)
    clock.stamp(999_999_999_999)
    assert clock.stamp(1000 * 10**9 + 789_999) == stamp


@pytest.mark.starts
def test_timestamps_in_local_time_or_utc():
    program = (
        "import time; time.tzset(); from sluice.router.log import TimestampFormatter as F; "
        "print(F(None, False).stamp(0)); print(F(None, True).stamp(0))"
    )
    environment = {**os.environ, "TZ": "XXX-03:30", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1970-01-01 03:30:00.000000 +0330", "1970-01-01 00:00:00.000000 +0000"]
