"""Java for processes of Spark that live as short as a test: they have no time to win back what optimising costs."""

from __future__ import annotations

import os

from tests.system.router import ROOT

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(**changes: str) -> dict[str, str]:
    """Of a process that starts Java, and Python that finds this checkout."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {**os.environ, "JAVA_TOOL_OPTIONS": OPTIONS, "PYTHONPATH": path, **changes}
