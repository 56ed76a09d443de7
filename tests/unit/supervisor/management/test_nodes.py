"""Type router.node: routers of the network as this router sees them (management.md 6.4)."""

import pytest

from sluice.supervisor.management.nodes import management_address
from tests.unit.supervisor.management.managed_router import CONFIGURATION, ManagedRouter


@pytest.fixture
def interior():
    return ManagedRouter(text=CONFIGURATION.replace("id: QDR", "id: QDR\n    mode: interior"))


def test_standalone_router_has_no_nodes(router):
    assert router.query("router.node") == []


def test_first_node_is_router_itself(interior):
    (row,) = interior.query("router.node")
    assert (row["id"], row["identity"], row["address"]) == ("QDR", "router.node/QDR", "amqp:/_topo/0/QDR")
    assert (row["lastTopoChange"], row["linkState"], row["validOrigins"]) == (0, [], [])
    assert (row["nextHop"], row["routerLink"], row["cost"]) == ("(self)", None, None)


@pytest.mark.parametrize(("edge", "address"), [(False, "_topo/0/A.1/$management"), (True, "_edge/A.1/$management")])
def test_management_address_depends_on_mode(edge, address):
    assert management_address("A.1", edge=edge) == address
