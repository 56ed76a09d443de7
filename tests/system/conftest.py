"""Fixtures of the system tests.

`router` is shared by a test module; the module adds to its configuration with `SECTIONS`, to its command line with
`OPTIONS`. Tests that need a router to themselves use `start`. `connect` opens a scripted peer to the shared router.

How many workers routers have: tests/worker_counts.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.peer.management import Management
from tests.peer.peer import Peer
from tests.system.fixtures import Connect, Fresh, Start
from tests.system.network import Two, interior, ports
from tests.system.router import SETTINGS, Router, Section, listener
from tests.worker_counts import pytest_collection_modifyitems, pytest_generate_tests

__all__ = ["pytest_collection_modifyitems", "pytest_generate_tests"]

#: Lines of a router's log shown with a failed test.
SHOWN_LINES = 80


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> int:
    """Number of workers for private routers."""
    return int(request.param)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the logs of the routers of a failed test to its report."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for router in getattr(item, "routers", []):
            report.sections.append((f"log of the router in {router.directory.name}", router.tail(SHOWN_LINES)))


@pytest.fixture(scope="module")
def _shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    sections: list[Section] = [listener(), *SETTINGS, *getattr(request.module, "SECTIONS", [])]
    options = getattr(request.module, "OPTIONS", ())
    router = Router(tmp_path_factory.mktemp(f"router{request.param}-"), sections, request.param, options=options)
    router.start()
    yield router
    router.stop()


@pytest.fixture
def router(_shared: Router, request: pytest.FixtureRequest) -> Iterator[Router]:
    """The router of this test module; started anew if a test before has killed it."""
    if not _shared.alive:
        _shared.kill()
        _shared.start()
    request.node.routers = [_shared]
    yield _shared
    assert _shared.alive, f"the router died during this test; log:\n{_shared.tail()}"


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start private routers: start(sections, workers=1, text=None, options=()).

    They are stopped, with all checks, after the test.
    """
    routers: list[Router] = []
    request.node.routers = routers
    numbers = itertools.count()

    def start_router(
        sections: list[Section] | None = None,
        workers: int = 1,
        text: str | None = None,
        options: Sequence[str] = (),
    ) -> Router:
        directory = tmp_path / f"router{next(numbers)}"
        directory.mkdir()
        router = Router(directory, [listener()] if sections is None else sections, workers, text, options)
        routers.append(router)
        router.start()
        return router

    yield start_router
    for router in routers:
        if router.alive:
            router.stop()
        else:
            router.kill()


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    """Peers to be dropped after the test."""
    made: list[Peer] = []
    yield made
    for peer in made:
        peer.drop()


@pytest.fixture
def connect(router: Router, peers: list[Peer]) -> Connect:
    """connect(listener="", **open_fields): an opened peer to the shared router."""

    def opened(listener: str = "", **fields: Any) -> Peer:
        peer = Peer.opened(router.ports[listener], **fields)
        peers.append(peer)
        return peer

    return opened


@pytest.fixture
def dial(router: Router, peers: list[Peer]) -> Connect:
    """dial(listener=""): a peer that is connected and has sent nothing."""

    def connected(listener: str = "") -> Peer:
        peer = Peer(router.ports[listener])
        peers.append(peer)
        return peer

    return connected


@pytest.fixture
def management(router: Router, connect: Connect) -> Management:
    """A management client of the shared router on its own connection."""
    return Management(connect())


_numbers = itertools.count(1)


@pytest.fixture
def fresh() -> Fresh:
    """fresh(prefix): an address that no test has used."""

    def address(prefix: str = "balanced") -> str:
        return f"{prefix}/t{next(_numbers)}"

    return address


@pytest.fixture(scope="module")
def _two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Routers A and B that are a network."""
    (port,) = ports(1)
    routers = []
    for name, listens, to in (("A", port, ()), ("B", None, (port,))):
        directory = tmp_path_factory.mktemp(f"router{name}{request.param}-")
        router = Router(directory, [*interior(name, listens, to), *SETTINGS], request.param)
        routers.append(router)
        router.start()
    two = Two(*routers)
    try:
        two.at_a.wait_nodes(B=1)
        two.at_b.wait_nodes(A=1)
        yield two
    finally:
        for router in routers:
            router.stop()


@pytest.fixture
def two(_two: Two, request: pytest.FixtureRequest) -> Iterator[Two]:
    """Two routers that are a network, shared by a test module."""
    request.node.routers = [_two.a, _two.b]
    yield _two
    _two.drop()
