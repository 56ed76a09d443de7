"""Limits that the control groups of this process set, as containers and systemd do: processor time and memory.

cgroups(7). Version 2 has one hierarchy, version 1 one for each controller. The limits of all ancestors apply. CPU sets
are not read here: `sched_getaffinity` includes them.
"""

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

PROC: Final = Path("/proc/self")
# Files by controller: of version 2, and of version 1.
CPU_FILES: Final = ("cpu.max", "cpu.cfs_quota_us")
CPU_COUNTS: Final = "cpu.stat"  # beside the limit, in both versions
CPU_PERIOD: Final = "cpu.cfs_period_us"  # version 1; in version 2 it is the second word of cpu.max
MEMORY_FILES: Final = ("memory.max", "memory.limit_in_bytes")
# Version 1 shows a missing limit of memory as the largest multiple of a page.
NO_LIMIT: Final = 1 << 62
_MAX: Final = "max"


class CgroupLimit(NamedTuple):
    """Limit with the file that sets it."""

    value: float  # cores, or octets
    file: str


class CgroupThrottling(NamedTuple):
    """Effect of a limit of processor time, since the group exists."""

    periods: int  # periods in which the group had work
    throttled: int  # periods of these in which the kernel stopped it, because it had used its time


class CgroupLimits(NamedTuple):
    """Limits of this process. None: there is no limit."""

    cores: CgroupLimit | None = None
    octets: CgroupLimit | None = None

    @property
    def whole_cores(self) -> int | None:
        """Return the number of processes that the limit of cores can keep busy."""
        return None if self.cores is None else max(1, math.ceil(self.cores.value))


def read_limits(proc: Path = PROC, root: Path = Path("/")) -> CgroupLimits:
    """Return the limits of this process. Files that are missing or cannot be read set no limit.

    proc: the process's folder of procfs. root: folder that absolute paths in its files refer to.
    """
    try:
        groups = (proc / "cgroup").read_text().splitlines()
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return CgroupLimits()
    return CgroupLimits(
        min(_limits(groups, mounts, root, "cpu"), default=None),
        min(_limits(groups, mounts, root, "memory"), default=None),
    )


def read_throttling(limit: CgroupLimit, root: Path = Path("/")) -> CgroupThrottling | None:
    """Return how often a limit of cores was reached; None if the kernel does not say. root: as for `read_limits`."""
    words = _words(root / PurePosixPath(limit.file).parent.relative_to("/") / CPU_COUNTS)
    counts = dict(zip(words[::2], words[1::2], strict=False))
    if "nr_periods" not in counts or "nr_throttled" not in counts:
        return None
    return CgroupThrottling(int(counts["nr_periods"]), int(counts["nr_throttled"]))


def _limits(groups: list[str], mounts: list[str], root: Path, controller: str) -> Iterator[CgroupLimit]:
    """Yield the limits of a controller in the group of the process and in its ancestors, in both versions."""
    read = _read_cores if controller == "cpu" else _read_octets
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = _mount(mounts, controller if controllers else "")
        if mount is None:
            continue
        for folder in _folders(path, *mount):
            value = read(root / folder.relative_to("/"))
            if value is not None:
                name = (CPU_FILES if controller == "cpu" else MEMORY_FILES)[bool(controllers)]
                yield CgroupLimit(value, str(folder / name))


def _mount(mounts: list[str], controller: str) -> tuple[str, str] | None:
    """Return the group at the root of a hierarchy's mount, and the mount point. controller: empty for version 2."""
    for line in mounts:
        fields = line.split()
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if (kind == "cgroup2") if not controller else (kind == "cgroup" and controller in options):
            return fields[3], fields[4]
    return None


def _folders(path: str, top: str, point: str) -> Iterator[PurePosixPath]:
    """Yield the folder of a group, then those of its ancestors, as far as they are mounted.

    A container may see the path of its group on the host, with only that group mounted.
    """
    inside = PurePosixPath(path)
    inside = inside.relative_to(top) if inside.is_relative_to(top) else PurePosixPath()
    folder = PurePosixPath(point) / inside.as_posix().lstrip("/")
    while True:
        yield folder
        if folder == PurePosixPath(point):
            return
        folder = folder.parent


def _read_cores(folder: Path) -> float | None:
    """Return the processor time that a group may use, in cores."""
    words = _words(folder / CPU_FILES[0])
    if not words:
        words = [*_words(folder / CPU_FILES[1]), *_words(folder / CPU_PERIOD)]
    if len(words) != 2 or words[0] == _MAX:
        return None
    quota, period = int(words[0]), int(words[1])
    return quota / period if quota > 0 and period > 0 else None


def _read_octets(folder: Path) -> float | None:
    """Return the memory that a group may use, in octets."""
    words = _words(folder / MEMORY_FILES[0]) or _words(folder / MEMORY_FILES[1])
    if not words or words[0] == _MAX or int(words[0]) >= NO_LIMIT:
        return None
    return int(words[0])


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
