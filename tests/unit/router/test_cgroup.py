"""Limits of control groups, read from files as the kernel writes them."""

from pathlib import Path

import pytest

from sluice.router.cgroup import CgroupLimit, CgroupLimits, CgroupThrottling, read_limits, read_throttling

V2 = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
V1 = """\
32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {top} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


def limits(root: Path, groups: str, mounts: str, **files: str) -> CgroupLimits:
    """Return the limits of a process with these groups and mounts. files: contents by path below /sys/fs/cgroup, with
    two underscores for a slash and a hyphen for a dot."""
    (root / "proc").mkdir()
    (root / "proc/cgroup").write_text(groups)
    (root / "proc/mountinfo").write_text("23 1 0:1 / / rw - ext4 /dev/root rw\n" + mounts)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name.replace("__", "/").replace("-", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return read_limits(root / "proc", root)


def test_limits_of_container_with_version_2_are_read(tmp_path):
    found = limits(tmp_path, "0::/\n", V2, **{"cpu-max": "150000 100000\n", "memory-max": "536870912\n"})
    assert found.cores == CgroupLimit(1.5, "/sys/fs/cgroup/cpu.max")
    assert found.octets == CgroupLimit(512 << 20, "/sys/fs/cgroup/memory.max")
    assert found.whole_cores == 2


def test_limit_of_ancestor_applies_if_it_is_lower(tmp_path):
    files = {
        "a-slice__cpu-max": "50000 100000\n",
        "a-slice__b-service__cpu-max": "200000 100000\n",
        "a-slice__b-service__memory-max": "max\n",
        "a-slice__memory-max": "1073741824\n",
    }
    found = limits(tmp_path, "0::/a.slice/b.service\n", V2, **files)
    assert found.cores == CgroupLimit(0.5, "/sys/fs/cgroup/a.slice/cpu.max")
    assert found.octets == CgroupLimit(1 << 30, "/sys/fs/cgroup/a.slice/memory.max")
    assert found.whole_cores == 1


@pytest.mark.parametrize(("path", "top"), [("/", "/"), ("/docker/4f", "/docker/4f"), ("/kubepods/pod1/c", "/")])
def test_limits_of_version_1_are_read(tmp_path, path, top):
    inside = "" if path == top else path.removeprefix("/").replace("/", "__") + "__"
    files = {
        f"cpu,cpuacct__{inside}cpu-cfs_quota_us": "250000\n",
        f"cpu,cpuacct__{inside}cpu-cfs_period_us": "100000\n",
        f"memory__{inside}memory-limit_in_bytes": "268435456\n",
    }
    groups = f"4:memory:{path}\n2:cpu,cpuacct:{path}\n0::/\n"
    found = limits(tmp_path, groups, V1.format(top=top), **files)
    assert found.cores is not None
    assert found.octets is not None
    assert (found.cores.value, found.octets.value) == (2.5, 256 << 20)
    assert found.whole_cores == 3


def test_unlimited_groups_set_no_limit(tmp_path):
    files = {
        "cpu,cpuacct__cpu-cfs_quota_us": "-1\n",
        "cpu,cpuacct__cpu-cfs_period_us": "100000\n",
        "memory__memory-limit_in_bytes": "9223372036854771712\n",
        "cpu-max": "max 100000\n",
        "memory-max": "max\n",
    }
    groups = "4:memory:/\n2:cpu,cpuacct:/\n0::/\n"
    assert limits(tmp_path, groups, V1.format(top="/") + V2, **files) == CgroupLimits()


def test_missing_files_set_no_limit(tmp_path):
    assert limits(tmp_path, "0::/a\n4:memory:/a\n", V2) == CgroupLimits()
    assert read_limits(tmp_path / "nothing") == CgroupLimits()
    assert CgroupLimits().whole_cores is None


def test_throttling_is_read_beside_limit(tmp_path):
    limit = CgroupLimit(0.5, "/sys/fs/cgroup/a/cpu.max")
    assert read_throttling(limit, tmp_path) is None
    folder = tmp_path / "sys/fs/cgroup/a"
    folder.mkdir(parents=True)
    (folder / "cpu.stat").write_text("usage_usec 9\nnr_periods 40\nnr_throttled 12\nthrottled_usec 7\n")
    assert read_throttling(limit, tmp_path) == CgroupThrottling(40, 12)
