"""Fixtures that run `sluice stat` with a scripted management node."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sluice.router.cli.stat.main import main
from tests.unit.router.cli.node import ScriptedManagementNode, rows_node
from tests.unit.router.cli.stat.rows import HEADING, ROUTER, Stat


@pytest.fixture
def nodes() -> Iterator[list[ScriptedManagementNode]]:
    made: list[ScriptedManagementNode] = []
    yield made
    for node in made:
        node.stop()


@pytest.fixture
def stat(nodes: list[ScriptedManagementNode], capsys: pytest.CaptureFixture[str]) -> Stat:
    """Return a function that runs the tool and returns its output without the heading. code: expected exit status."""

    def run(
        tables: Mapping[str, list[dict[str, Any]]], *words: str, calls: Mapping[str, Any] | None = None, code: int = 0
    ) -> str:
        node = rows_node({"router": [ROUTER], **tables}, calls)
        nodes.append(node)
        assert main([*words, "-b", node.url]) == code
        out = capsys.readouterr().out
        return HEADING.sub("", out, count=1)

    return run
