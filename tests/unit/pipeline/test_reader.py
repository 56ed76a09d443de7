"""What stays of a container id when its client starts again."""

import re

import pytest

pytest.importorskip("pyspark")
from pipeline.telemetry.reader import _VOLATILE


@pytest.mark.parametrize(
    ("container", "stays"),
    [
        ("vm-25001-6e8a1b2c", "vm-*-*"),
        ("vm-25001-e1a2b3c4", "vm-*-*"),
        ("vm-7-12345678", "vm-*-*"),
        ("01234567-89ab-cdef-0123-456789abcdef", "*"),
        ("sensor-0123456789abcdef", "sensor-*"),
        ("sensor-defaced", "sensor-defaced"),
        ("backend3", "backend*"),
        ("deadbeefs", "deadbeefs"),
    ],
)
def test_numbers_go(container: str, stays: str):
    assert re.sub(_VOLATILE, "*", container) == stays
