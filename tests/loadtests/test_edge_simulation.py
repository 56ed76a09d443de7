"""Storm of edge routers, and the addresses that distant interior routers learn from it."""

from loadtests.edge_simulation import converge
from loadtests.simulation_rows import in_own_process


def test_remote_routers_know_all_addresses() -> None:
    first, *others = in_own_process(converge, edges=20, addresses=3, far=2, within=0.1)
    assert first.seconds > 0
    assert len(others) == 2
    assert all(router.updates for router in others), "messages with addresses"
