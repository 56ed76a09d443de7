"""Fixture of two neighbouring routers."""

import pytest


@pytest.fixture(params=[(1, (0, 0)), (2, (1, 0))], ids=["one-worker", "two-workers"])
def router_pair(request, networks):
    """Return a network of two routers, A and B. With two workers each, A's clients and the connection to B are on
    different workers."""
    workers, ends = request.param
    network = networks("AB", workers)
    network.join("A", "B", workers=ends)
    network.converge()
    return network
