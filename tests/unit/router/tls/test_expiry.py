"""Wording of the remaining validity of certificates."""

import pytest

from sluice.router.tls.expiry import DAY, HOUR, describe_expiry


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (30 * DAY + 5, "expires in 30 days"),
        (2 * DAY - 1, "expires in 1 day"),
        (DAY - 1, "expires in 23 hours"),
        (HOUR, "expires in 1 hour"),
        (HOUR - 1, "expires within the hour"),
        (0, "expires within the hour"),
        (-0.5, "has expired"),
    ],
)
def test_expiry_is_given_in_days_then_in_hours(seconds: float, text: str) -> None:
    assert describe_expiry(seconds) == f"the certificate {text}"
