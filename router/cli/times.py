"""Times in the output of commands."""

from datetime import datetime


def time_text(seconds: float) -> str:
    """Format a time, in seconds since the Unix epoch, as in the router's log."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f %z")
