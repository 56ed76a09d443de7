"""Share of time for connecting clients."""

import pytest

from sluice.router.pacing.admission_share import LARGE_SHARE_DIVISOR, LONG_WAIT_MS, SMALL_SHARE_DIVISOR, share_divisor


@pytest.mark.parametrize(
    ("waited", "divisor"),
    [
        (0, SMALL_SHARE_DIVISOR),
        (LONG_WAIT_MS, SMALL_SHARE_DIVISOR),
        (LONG_WAIT_MS + 1, LARGE_SHARE_DIVISOR),
        (2 * LONG_WAIT_MS, LARGE_SHARE_DIVISOR),
        (2 * LONG_WAIT_MS + 1, 1),
    ],
)
def test_long_wait_enlarges_share(waited: int, divisor: int) -> None:
    assert share_divisor(waited) == divisor
