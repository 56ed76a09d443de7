"""Names of numbers in layout.pxd."""

from __future__ import annotations

import enum
from typing import Final


class WorkerState(enum.IntEnum):
    """State of a worker, as set by the supervisor (`state` of its slot)."""

    DOWN = 0
    STARTING = 1
    READY = 2
    DRAINING = 3


#: Names of the DROP_ reasons, by number: index of `dropped` in the counters of a worker.
DROP_NAMES: Final = (
    "noDestination",
    "overflow",
    "consumerLost",
    "producerLost",
    "workerLost",
    "rejected",
    "unfinished",
)
