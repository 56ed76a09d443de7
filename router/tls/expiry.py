"""Remaining validity of certificates: limits for warnings, and its wording in logs, checks and tools."""

from typing import Final

DAY: Final = 86_400  # seconds
HOUR: Final = 3_600  # seconds
WARN_DAYS: Final = (30, 7, 1)  # remaining days below which the router warns, once for each
ATTENTION_DAYS: Final = 7  # remaining days below which `/readyz` and the alerts warn


def describe_expiry(seconds: float) -> str:
    """Return when a certificate expires that is valid for `seconds` more: in days, on its last day in hours."""
    if seconds < 0:
        return "the certificate has expired"
    if seconds < HOUR:
        return "the certificate expires within the hour"
    number, unit = divmod(seconds, DAY)[0], "day"
    if seconds < DAY:
        number, unit = seconds // HOUR, "hour"
    return f"the certificate expires in {number:.0f} {unit}" + ("" if number == 1 else "s")
