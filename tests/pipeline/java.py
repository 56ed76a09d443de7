"""Java options for short-lived Spark processes, in which the cost of optimising compilation does not pay off."""

from __future__ import annotations

import os

from tests.system.router import ROOT

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a process that starts Java, and Python that imports this checkout."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {**os.environ, "JAVA_TOOL_OPTIONS": OPTIONS, "PYTHONPATH": path, **changes}
