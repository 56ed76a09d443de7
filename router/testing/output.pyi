"""Types of output.pyx."""

from typing import Any

def octets_waiting(connection: Any) -> int: ...
