"""Fixtures of tests of links between routers."""

import pytest

from tests.component.engine.host import InProcessRouter
from tests.component.engine.network import EDGE, EDGE_LISTENER, IgnoringObserver, RouterConnection


@pytest.fixture
def network(networks):
    """Interior router A, and edge router E with an uplink to A."""
    network = networks("A", more=EDGE_LISTENER)
    edge = network.routers["E"] = InProcessRouter(1, EDGE)
    (uplink,) = edge.configuration.connectors
    ends = edge.initiate(0, uplink, IgnoringObserver()), network["A"].connect(0, "edges")
    network.joints.append(RouterConnection(network, *ends))
    network.settle()
    return network
