"""Two routers that are neighbours."""

import pytest


@pytest.fixture(params=[(1, (0, 0)), (2, (1, 0))], ids=["one-worker", "two-workers"])
def pair(request, networks):
    """Two routers, A and B. With two workers each, clients of A are on another worker than the connection."""
    workers, ends = request.param
    network = networks("AB", workers)
    network.join("A", "B", workers=ends)
    network.converge()
    return network
