"""Watch of the processor time of a control group: log lines and events, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.router.cgroup import CgroupLimit
from sluice.supervisor.history.processor_limit import READINGS, ProcessorLimit


class ThrottlingLines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, level: int, module: str, text: str) -> None:
        self.lines.append(text)


class ThrottledGroup:
    """Control group whose counts the test sets."""

    def __init__(self, root: Path) -> None:
        self.file = root / "cpu.stat"
        self.periods = self.throttled = 0
        self.go_on(0)
        self.log = ThrottlingLines()
        self.limit = ProcessorLimit(CgroupLimit(0.5, "/cpu.max"), self.log, root)  # type: ignore[arg-type]

    def go_on(self, throttled: int) -> None:
        """Let 50 periods pass; the group was stopped in some of them."""
        self.periods += 50
        self.throttled += throttled
        self.file.write_text(f"nr_periods {self.periods}\nnr_throttled {self.throttled}\n")

    def take(self, throttled: int) -> str | None:
        self.go_on(throttled)
        return self.limit.take()


@pytest.fixture
def group(tmp_path: Path) -> ThrottledGroup:
    return ThrottledGroup(tmp_path)


def test_group_stopped_often_has_one_line_until_it_is_not(group: ThrottledGroup) -> None:
    assert [group.take(30) for _ in range(READINGS - 1)] == [None] * (READINGS - 1)
    assert group.take(2) is None, "the count begins anew"
    assert [group.take(31) for _ in range(READINGS)][-1] == "The control group stops the router too often"
    text = "The control group may use 0.5 cores (/cpu.max) and was stopped in 62% of its periods"
    assert group.log.lines == [f"{text}: all clients wait meanwhile"]
    assert group.take(50) is None
    assert [group.take(0) for _ in range(READINGS)][-1] == "The control group stops the router less often"
    assert len(group.log.lines) == 2


def test_group_without_limit_or_work_is_never_stopped(group: ThrottledGroup) -> None:
    group.limit.take()
    assert (group.limit.take(), group.limit.share) == (None, 0.0)
    group.file.unlink()
    assert (group.limit.take(), group.limit.share) == (None, 0.0)
    free = ProcessorLimit(None, group.log)  # type: ignore[arg-type]
    assert (free.take(), free.counts) == (None, None)
