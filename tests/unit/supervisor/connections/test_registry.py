"""Lifetime of the records of connections and links."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from tests.unit.supervisor.core_with_replicas import CoreWithReplicas


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def records() -> int:
    return sum(isinstance(each, (RegisteredConnection, RegisteredLink)) for each in gc.get_objects())


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("end", ["closed", "detached and closed", "worker lost"])
def test_ended_connection_is_freed_without_collector(workers: int, end: str) -> None:
    router = CoreWithReplicas(workers)
    before = records()
    conn = router.connect(0)
    links = [router.attach(0, conn, direction, "a") for direction in ("in", "out")]
    router.settle()
    assert records() == before + 3
    if end == "worker lost":
        router.kill(0)
    else:
        if end == "detached and closed":
            for link in links:
                router.detach(0, conn, link)
        router.close(0, conn)
    router.settle()
    assert records() == before
