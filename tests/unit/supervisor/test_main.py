"""Decisions at the start of the router."""

import os

import pytest

from sluice.router.cgroup import CgroupLimit, CgroupLimits
from sluice.router.config import build
from sluice.router.config.capacity import MIB, Capacity
from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ProcessLog
from sluice.supervisor import main
from sluice.supervisor.main import _cores


def test_workers_are_pinned_only_if_they_fill_all_cores() -> None:
    """Two routers with one worker each on one machine would otherwise share the first core."""
    cores = sorted(os.sched_getaffinity(0))
    assert _cores(len(cores)) == (cores if len(cores) > 1 else [None])
    assert _cores(len(cores) + 1) == [None] * (len(cores) + 1)
    assert _cores(1) == [None]


CONTAINER = Capacity(64, CgroupLimits(None, CgroupLimit(512 * MIB, "/memory")))


@pytest.mark.parametrize(
    ("own", "warnings"),
    [
        ("workerThreads: 2", []),
        (
            "workerThreads: 4\n maxBufferedMegabytes: 200",
            [
                "The router may need 1056 MiB of memory, more than the limit of 512 MiB: lower workerThreads or"
                " maxBufferedMegabytes, or the kernel may kill it"
            ],
        ),
    ],
)
def test_capacity_of_container_is_logged(monkeypatch: pytest.MonkeyPatch, own: str, warnings: list[str]) -> None:
    for module in (build, main):
        monkeypatch.setattr(module, "measure", lambda: CONTAINER)
    configuration = load_text("x.conf", f"router {{\n id: R\n {own}\n}}\n")
    log = ProcessLog(LogSettings())
    main.log_capacity(configuration, log)
    lines = log.recent()
    router = configuration.router
    assert lines[0].text == (
        f"May use 64 cores, 512 MiB of memory (/memory): {router.workers} workers with"
        f" {router.buffered_megabytes} MiB for messages each"
    )
    assert [line.text for line in lines[1:]] == warnings
