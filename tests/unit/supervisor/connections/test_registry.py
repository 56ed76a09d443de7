"""Lifetime of the records of connections and links."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from enum import EnumType

import pytest

from sluice.router.config.entities import ListenerConfig
from sluice.supervisor.configuration.change import ConfigurationChange
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


def test_worker_admits_is_decided_once_for_a_profile_until_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    router = CoreWithReplicas(1)
    connections, decisions = router.core.connections, []

    def decide(listener: ListenerConfig) -> bool:
        decisions.append(listener.name)
        return len(decisions) == 1

    monkeypatch.setattr(connections._opens, "admits_all", decide)
    first, second = (router.replicas[0].worker.connections[router.connect(0)] for _ in range(2))
    assert connections.worker_admits(first)
    assert connections.worker_admits(second)
    assert len(decisions) == 1
    connections.commit(ConfigurationChange(router.configuration, router.configuration))
    assert not connections.worker_admits(first)
    assert not connections.worker_admits(second)
    assert len(decisions) == 2


def test_client_causes_no_read_of_a_member_from_an_enum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 takes 17 times as long for it as for a global."""
    router = CoreWithReplicas(3)
    read: list[str] = []

    def count(kind: EnumType, name: str) -> object:
        read.append(name)
        return type.__getattribute__(kind, name)

    def play() -> None:
        conn = router.connect(0)
        for direction in ("in", "out"):
            router.attach(0, conn, direction, "a")
        router.settle()
        router.close(0, conn)
        router.settle()

    play()  # work that is done once may read members
    monkeypatch.setattr(EnumType, "__getattribute__", count, raising=False)
    play()
    monkeypatch.undo()
    assert read == []


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
