"""Display of recent log lines."""

import time

from tests.unit.router.cli.node import ScriptedManagementNode
from tests.unit.router.cli.stat.rows import Stat


def test_log_lines_are_shown(stat: Stat, nodes: list[ScriptedManagementNode]) -> None:
    at = time.mktime((2026, 11, 21, 0, 28, 19, 0, 0, -1))
    entries = [["SERVER", "info", "[C1] Accepted", None, None, int(at)]]
    assert stat({}, "--log", "--limit", "5", calls={"GET-LOG": entries}) == (
        "Sat Nov 21 00:28:19 2026 SERVER (info) [C1] Accepted\n"
    )
    assert nodes[0].requests[-1].properties["limit"] == 5
