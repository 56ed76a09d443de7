"""Number of workers and memory for messages, if the configuration does not set them: what this process may use."""

import os
from typing import Final

from msgspec import Struct

from sluice.router.cgroup import CgroupLimits, read_limits

MIB: Final = 1 << 20
# Memory in MiB for the messages of a worker: without a limit, and the least that the schema allows.
MOST_MEGABYTES: Final = 1024
LEAST_MEGABYTES: Final = 16
# Memory in MiB that a router needs beside messages: all processes but the workers, and each worker.
BASE_MEGABYTES: Final = 128
WORKER_MEGABYTES: Final = 32
# Share of the remaining memory that workers may fill with messages. The rest is for queues of sockets, which a control
# group counts as well, for the quarter by which a worker may exceed its limit, and for fragmentation.
SHARE: Final = 0.5


class Capacity(Struct, frozen=True):
    """Processor cores and memory that this process may use."""

    affinity: int  # cores that the process may run on
    limits: CgroupLimits

    @property
    def workers(self) -> int:
        """Return the number of workers: one for each core, but none that the control group would only slow down."""
        cores = self.limits.whole_cores
        return self.affinity if cores is None else min(self.affinity, cores)

    def megabytes(self, workers: int) -> int:
        """Return the memory in MiB for the messages of each worker."""
        if self.limits.octets is None:
            return MOST_MEGABYTES
        rest = self.limits.octets.value / MIB - BASE_MEGABYTES - WORKER_MEGABYTES * workers
        return max(LEAST_MEGABYTES, min(MOST_MEGABYTES, int(rest * SHARE) // workers))

    def describe(self) -> str:
        """Return the sources of these figures, for the log."""
        cores, octets = self.limits
        parts = [f"{self.affinity} cores"]
        if cores is not None:
            parts.append(f"{cores.value:g} of them at a time ({cores.file})")
        if octets is not None:
            parts.append(f"{octets.value / MIB:.0f} MiB of memory ({octets.file})")
        return ", ".join(parts)


def measure() -> Capacity:
    """Return what this process may use."""
    return Capacity(len(os.sched_getaffinity(0)), read_limits())
