"""Fixtures: a router for each module and worker count, which logs everything, as in Dispatch's own tests.

A module may set `SECTIONS`, which are added to the configuration.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.dispatch.node import ManagementNode
from tests.interop.dispatch.programs import QdmanageProgram, QdstatProgram
from tests.system.router import FILES, SETTINGS, RouterProcess, Section, listener

#: Log section that Dispatch's tests configure for every router.
LOG: Section = ("log", {"module": "DEFAULT", "enable": "trace+", "includeSource": True, "outputFile": "stderr"})


@pytest.fixture(scope="module", autouse=True)
def _no_certificates() -> Iterator[None]:
    """Keep proton from reading the system's certificates, 40 ms for each connection: no test here uses TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        yield


@pytest.fixture(scope="module")
def shared_router(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    """Router of this module, shared by its tests."""
    sections = [listener(idleTimeoutSeconds=120), *SETTINGS, LOG, FILES, *getattr(request.module, "SECTIONS", [])]
    router = RouterProcess(tmp_path_factory.mktemp("site"), sections, request.param)
    router.start()
    yield router
    router.stop()


@pytest.fixture
def node(shared_router: RouterProcess) -> Iterator[ManagementNode]:
    """Management client of the shared router."""
    node = ManagementNode.connect(shared_router.port)
    yield node
    node.close()


@pytest.fixture
def qdmanage(shared_router: RouterProcess) -> QdmanageProgram:
    """qdmanage for the shared router."""
    return QdmanageProgram(shared_router.port)


@pytest.fixture
def qdstat(shared_router: RouterProcess) -> QdstatProgram:
    """qdstat for the shared router."""
    return QdstatProgram(shared_router.port)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RouterProcess]]:
    """Factory start(sections, workers=1, text=None): starts a router for one test.

    The routers are stopped after the test, with all checks.
    """
    routers: list[RouterProcess] = []

    def begin(sections: list[Section] | None = None, workers: int = 1, text: str | None = None) -> RouterProcess:
        directory = tmp_path / f"router{len(routers)}"
        directory.mkdir()
        router = RouterProcess(directory, [listener()] if sections is None else sections, workers, text)
        routers.append(router)
        router.start()
        return router

    yield begin
    for router in routers:
        if router.alive:
            router.stop()
        else:
            router.kill()


_numbers = itertools.count(1)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Factory fresh(prefix): returns a name that no other test uses."""
    return lambda prefix: f"{prefix}{next(_numbers)}"
