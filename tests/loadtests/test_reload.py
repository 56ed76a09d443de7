"""Row about reloads: it detects the faults that it looks for."""

import itertools
import re

import pytest

from loadtests import reload_rows
from loadtests.processes import BenchRouter, MeasureError

SMALL = reload_rows.ReloadSize(connections=8, addresses=20, listeners=2, reloads=3)


def test_successive_configurations_differ():
    texts = [reload_rows.configuration(SMALL, turn, 1, [2, 3]) for turn in range(4)]
    for before, after in itertools.pairwise(texts):
        lines = list(zip(before.splitlines(), after.splitlines(), strict=False))
        assert sum(old != new and "priority" in new for old, new in lines) or len(before) != len(after)
        assert sorted(set(re.findall("prefix: .*", before))) == sorted(set(re.findall("prefix: .*", after)))


def test_configuration_not_in_force_is_a_fault():
    text = reload_rows.configuration(SMALL, 0, 0, [])
    with BenchRouter(1, text=text) as router:
        reload_rows.check_in_force(router, SMALL, 0)
        with pytest.raises(MeasureError, match="20 addresses are there, 20 of them not as the file says"):
            reload_rows.check_in_force(router, SMALL, 1)
