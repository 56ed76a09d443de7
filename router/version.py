"""The version of the router. setup reads it here, too: a start need not look for what is installed."""

from typing import Final

VERSION: Final = "0.1.0"
