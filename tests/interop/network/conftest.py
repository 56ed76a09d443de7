"""Fixtures: networks shared by many tests, one for each number of workers, and networks of a single test.

`chain` is A - M - B, with M of 1.19. `middle` is L - S - R, with S under test between two routers of 1.19. `triangle`
is S1 and S2 under test and T of 1.19, each connected to both others. `network` starts routers for one test.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.network.net import InteropNetwork, Sluice, full_mesh
from tests.interop.network.scripted import ScriptedRouter, ScriptedRouterView
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19
from tests.system.router import Section

Fresh = Callable[..., str]
SHOWN_LINES = 60
_numbers = itertools.count(1)
#: Link routes and auto links of router B of the chain.
BROKERS: list[Section] = [
    ("linkRoute", {"name": "lr-in", "prefix": "lr", "direction": "in", "containerId": "broker"}),
    ("linkRoute", {"name": "lr-out", "prefix": "lr", "direction": "out", "containerId": "broker"}),
    ("linkRoute", {"name": "lp-in", "pattern": "lp.*.x.#", "direction": "in", "containerId": "broker"}),
    ("autoLink", {"name": "wp-out", "address": "wp.1", "direction": "out", "containerId": "waypoint"}),
    ("autoLink", {"name": "wp-in", "address": "wp.1", "direction": "in", "containerId": "waypoint"}),
]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the logs of the routers of a failed test to its report."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        arguments = getattr(item, "funcargs", {})
        networks = [value for value in arguments.values() if isinstance(value, InteropNetwork)]
        networks += [value.network for value in arguments.values() if isinstance(value, SharedNetwork)]
        sluices = [value for value in arguments.values() if isinstance(value, Sluice)]
        for sluice in itertools.chain(sluices, *(network.sluices for network in networks)):
            report.sections.append((f"log of {sluice.name}", sluice.router.tail(SHOWN_LINES)))


class SharedNetwork:
    """Network shared by tests. Subclasses have its routers as attributes."""

    def __init__(self, network: InteropNetwork) -> None:
        self.network = network
        self.world = network.world

    def drop_peers(self) -> None:
        """Drop the clients of a finished test."""
        for sluice in self.network.sluices:
            assert sluice.router.alive, f"{sluice.name} died; log:\n{sluice.router.tail()}"
            sluice.drop_peers()


class ChainNetwork(SharedNetwork):
    """Chain of A, M and B: A connects to M, M connects to B."""

    a: Sluice
    m: Router19
    b: Sluice


class MiddleNetwork(SharedNetwork):
    """Router S between two routers of 1.19: L connects to S, S connects to R."""

    left: Router19
    s: Sluice
    right: Router19


class TriangleNetwork(SharedNetwork):
    """Triangle: S1 connects to T, S2 to S1, T to S2."""

    s1: Sluice
    s2: Sluice
    t: Router19


@pytest.fixture(scope="session")
def router19_loop() -> Iterator[Router19Loop]:
    """Thread of the 1.19 routers."""
    router19_loop = Router19Loop()
    yield router19_loop
    router19_loop.close()


@pytest.fixture(scope="session")
def workers(request: pytest.FixtureRequest) -> int:
    """Number of workers of each router under test."""
    return int(request.param)


@pytest.fixture(scope="session")
def _chain(
    router19_loop: Router19Loop, workers: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChainNetwork]:
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("chain"), workers)
    chain = ChainNetwork(network)
    try:
        chain.m = network.router19("M")
        chain.b = network.sluice("B", BROKERS)
        chain.a = network.sluice("A", to=[(chain.m.listen(), 1)])
        chain.m.connect(chain.b.ports["ir"])
        network.wait_converged()
        yield chain
    finally:
        network.stop()


@pytest.fixture(scope="session")
def _middle(
    router19_loop: Router19Loop, workers: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MiddleNetwork]:
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("middle"), workers)
    middle = MiddleNetwork(network)
    try:
        middle.left, middle.right = network.router19("L"), network.router19("R")
        middle.s = network.sluice("S", to=[(middle.right.listen(), 1)])
        middle.left.connect(middle.s.ports["ir"])
        network.wait_converged()
        yield middle
    finally:
        network.stop()


@pytest.fixture(scope="session")
def _triangle(
    router19_loop: Router19Loop, workers: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TriangleNetwork]:
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("triangle"), workers)
    triangle = TriangleNetwork(network)
    try:
        triangle.t = network.router19("T")
        triangle.s1 = network.sluice("S1", to=[(triangle.t.listen(), 1)])
        triangle.s2 = network.sluice("S2", to=[(triangle.s1.ports["ir"], 1)])
        triangle.t.connect(triangle.s2.ports["ir"])
        network.wait_converged()
        for sluice in (triangle.s1, triangle.s2):
            sluice.wait_rows("router.node", functools.partial(full_mesh, 3), "a triangle")
        triangle.world.wait(lambda: triangle.t.engine.paths.radius == 1, "T has two neighbours")
        yield triangle
    finally:
        network.stop()


@pytest.fixture
def chain(_chain: ChainNetwork) -> Iterator[ChainNetwork]:
    """Shared network A - M - B, with M of 1.19."""
    yield _chain
    _chain.drop_peers()


@pytest.fixture
def middle(_middle: MiddleNetwork) -> Iterator[MiddleNetwork]:
    """Shared network L - S - R, with S under test."""
    yield _middle
    _middle.drop_peers()


@pytest.fixture
def triangle(_triangle: TriangleNetwork) -> Iterator[TriangleNetwork]:
    """Shared triangle S1, S2, T, with T of 1.19."""
    yield _triangle
    _triangle.drop_peers()


@pytest.fixture
def network(router19_loop: Router19Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteropNetwork]:
    """Network of one test. Routers have one worker; a test for which the number matters sets `workers`."""
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("network"), 1)
    yield network
    network.stop()


@pytest.fixture
def fresh() -> Fresh:
    """Factory fresh(prefix): returns an address that no other test uses."""

    def address(prefix: str = "balanced") -> str:
        return f"{prefix}/n{next(_numbers)}"

    return address


@pytest.fixture(scope="session")
def _solo(router19_loop: Router19Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sluice]:
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("solo"), 3)
    try:
        yield network.sluice("S", helloMaxAgeSeconds=3)
    finally:
        network.stop()


@pytest.fixture
def solo(_solo: Sluice) -> Iterator[Sluice]:
    """Shared router S with three workers, for scripted neighbours."""
    yield _solo
    assert _solo.router.alive, f"the router died; log:\n{_solo.router.tail()}"
    _solo.drop_peers()


@pytest.fixture
def view(solo: Sluice) -> ScriptedRouterView:
    """Management view of the router of `solo`."""
    return ScriptedRouterView(solo)


@pytest.fixture
def scripted_router(router19_loop: Router19Loop, solo: Sluice) -> Iterator[Callable[..., ScriptedRouter]]:
    """Factory scripted_router(cost=1, sees=True): connects a new scripted neighbour to `solo`."""
    made: list[ScriptedRouter] = []

    def neighbour(name: str | None = None, **keywords: Any) -> ScriptedRouter:
        made.append(ScriptedRouter(router19_loop, solo, name or f"X{next(_numbers)}", **keywords))
        return made[-1]

    yield neighbour
    for one in made:
        one.stop()
