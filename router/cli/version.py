"""The version of the installed router."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

DISTRIBUTION = "sluice-router"


def version() -> str:
    """Return the version, such as `0.1.0`; a text says so for a plain source tree."""
    try:
        return installed_version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown (not installed)"
