"""Fixtures of the system tests.

`router` is shared by a test module; the module's `SECTIONS` extend its configuration, `OPTIONS` its command line. Tests
that need a private router use `start`. `connect` opens a scripted peer to the shared router. In modules with
`pytestmark = pytest.mark.adversarial` these routers have bystanders, which are checked after each test. Bystanders of
the shared router also use a neighbour router, over a connection of the role that the module's `NEIGHBOUR` names.

tests/worker_counts.py sets the number of workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.bystanders.harness import MEMORY_MOST, BystanderHarness, with_bystanders
from tests.system.fixtures import Connect, Fresh, Start
from tests.system.networks import TwoRouterNetwork, interior, ports
from tests.system.router import SETTINGS, RouterProcess, Section, listener
from tests.worker_counts import pytest_collection_modifyitems, pytest_generate_tests

__all__ = ["pytest_collection_modifyitems", "pytest_generate_tests"]

#: Lines of a router's log shown with a failed test.
SHOWN_LINES = 80


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> int:
    """Return the number of workers of private routers."""
    return int(request.param)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the logs of the routers of a failed test to its report."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for router in getattr(item, "routers", []):
            report.sections.append((f"log of the router in {router.directory.name}", router.tail(SHOWN_LINES)))


def _adversarial(request: pytest.FixtureRequest) -> bool:
    """Return whether the module's tests are adversarial, so that its routers get bystanders."""
    return request.node.get_closest_marker("adversarial") is not None


def _disturbs(request: pytest.FixtureRequest) -> bool:
    """Return whether the test harms all clients on purpose.

    Private routers of such a test have no bystanders; the shared router gets new ones after it.
    """
    return request.node.get_closest_marker("disturbs") is not None


@pytest.fixture(scope="module")
def _shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    sections: list[Section] = [listener(), *SETTINGS, *getattr(request.module, "SECTIONS", [])]
    role = getattr(request.module, "NEIGHBOUR", "inter-router")
    complete = partial(with_bystanders, neighbour=role) if _adversarial(request) else tuple
    options = getattr(request.module, "OPTIONS", ())
    directory = tmp_path_factory.mktemp(f"router{request.param}-")
    router = RouterProcess(directory, sections, request.param, options=options, complete=complete)
    router.start()
    yield router
    router.stop()


@pytest.fixture(scope="module")
def bystanders(
    _shared: RouterProcess, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BystanderHarness | None]:
    """Yield the bystanders of the shared router in adversarial modules, otherwise None."""
    if not _adversarial(request):
        yield None
        return
    most = getattr(request.module, "MEMORY_MOST", MEMORY_MOST)
    harness = BystanderHarness(_shared, tmp_path_factory.mktemp("neighbour-"), most)
    yield harness
    harness.stop()


@pytest.fixture
def router(
    _shared: RouterProcess, bystanders: BystanderHarness | None, request: pytest.FixtureRequest
) -> Iterator[RouterProcess]:
    """Yield the router of this test module, restarted if an earlier test has killed it."""
    if not _shared.alive:
        _shared.kill()
        _shared.start()
        if bystanders is not None:
            bystanders.stop()
    if bystanders is not None:
        bystanders.start()
    request.node.routers = [_shared]
    yield _shared
    assert _shared.alive, f"the router died during this test; log:\n{_shared.tail()}"
    if bystanders is not None:
        if _disturbs(request):
            bystanders.stop()
        else:
            bystanders.check()


def _end(router: RouterProcess) -> None:
    """Stop a router with all checks, or kill what is left of one that a test has ended."""
    if router.alive:
        router.stop()
    else:
        router.kill()


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts private routers: start(sections, workers=1, text=None, options=(), program=()).

    The routers are stopped with all checks after the test. In adversarial tests they have bystanders, unless their
    configuration is given as text.
    """
    routers: list[RouterProcess] = []
    harnesses: list[BystanderHarness] = []
    adversarial = _adversarial(request) and not _disturbs(request)
    request.node.routers = routers
    numbers = itertools.count()

    def start_router(
        sections: list[Section] | None = None,
        workers: int = 1,
        text: str | None = None,
        options: Sequence[str] = (),
        program: Sequence[str] = (),
    ) -> RouterProcess:
        directory = tmp_path / f"router{next(numbers)}"
        directory.mkdir()
        given = [listener()] if sections is None else sections
        watched = adversarial and text is None
        router = RouterProcess(directory, given, workers, text, options, with_bystanders if watched else tuple, program)
        routers.append(router)
        router.start()
        if watched:
            harnesses.append(BystanderHarness(router, directory))
        return router

    yield start_router
    with ExitStack() as stack:  # stops all of them even if a check fails; the last in the list is called first
        for router in reversed(routers):
            stack.callback(_end, router)
        for harness in harnesses:
            stack.callback(harness.stop)
            stack.callback(harness.check)


@pytest.fixture
def peers() -> Iterator[list[AmqpPeer]]:
    """Yield a list of peers to be dropped after the test."""
    made: list[AmqpPeer] = []
    yield made
    for peer in made:
        peer.drop()


@pytest.fixture
def connect(router: RouterProcess, peers: list[AmqpPeer]) -> Connect:
    """Return connect(listener="", **open_fields), which opens a peer to the shared router."""

    def opened(listener: str = "", **fields: Any) -> AmqpPeer:
        peer = AmqpPeer.opened(router.ports[listener], **fields)
        peers.append(peer)
        return peer

    return opened


@pytest.fixture
def dial(router: RouterProcess, peers: list[AmqpPeer]) -> Connect:
    """Return dial(listener=""), which connects a peer that has sent nothing."""

    def connected(listener: str = "") -> AmqpPeer:
        peer = AmqpPeer(router.ports[listener])
        peers.append(peer)
        return peer

    return connected


@pytest.fixture
def management(router: RouterProcess, connect: Connect) -> Management:
    """Return a management client of the shared router on its own connection."""
    return Management(connect())


_numbers = itertools.count(1)


@pytest.fixture
def fresh() -> Fresh:
    """Return fresh(prefix), which returns an address that no test has used."""

    def address(prefix: str = "balanced") -> str:
        return f"{prefix}/t{next(_numbers)}"

    return address


@pytest.fixture(scope="module")
def _two_routers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwoRouterNetwork]:
    """Yield routers A and B, which form a network."""
    (port,) = ports(1)
    routers = []
    for name, listens, to in (("A", port, ()), ("B", None, (port,))):
        directory = tmp_path_factory.mktemp(f"router{name}{request.param}-")
        router = RouterProcess(directory, [*interior(name, listens, to), *SETTINGS], request.param)
        routers.append(router)
        router.start()
    two_routers = TwoRouterNetwork(*routers)
    try:
        two_routers.at_a.wait_nodes(B=1)
        two_routers.at_b.wait_nodes(A=1)
        yield two_routers
    finally:
        for router in routers:
            router.stop()


@pytest.fixture
def two_routers(_two_routers: TwoRouterNetwork, request: pytest.FixtureRequest) -> Iterator[TwoRouterNetwork]:
    """Yield two routers that form a network, shared by a test module."""
    request.node.routers = [_two_routers.a, _two_routers.b]
    yield _two_routers
    _two_routers.drop()
