"""Version of the router. setup.py reads it from here, so a start need not search the installed packages for it."""

from typing import Final

VERSION: Final = "0.2.0"
