"""Storm of edge routers, and the addresses that distant interior routers learn from it."""

import gc

import pytest

from loadtests.edge_simulation import converge


def test_remote_routers_know_all_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert converge(edges=20, addresses=3, far=2, within=0.1) == 0
    finally:
        gc.enable()
    rows = capsys.readouterr().out.splitlines()[-3:]
    assert [row.split()[0] for row in rows] == ["B", "C0", "C1"]
    assert all(int(row.split()[-1]) > 0 for row in rows[1:]), "messages with addresses"
