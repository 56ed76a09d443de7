"""Profiles of open listeners: used after all workers have them, retired with the listener."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sluice.router.config.load import load_text
from sluice.router.control.ops import ProfileGone, ProfileOp
from sluice.supervisor.listeners.listener import Listener
from sluice.supervisor.listeners.open_listeners import OpenListeners, describe_configured
from tests.unit.supervisor.listeners.test_acceptor import AcceptorWithWorkers

TEXT = "router {\nid: A\nmode: interior\n}\nlistener {\nname: main\nhost: 127.0.0.1\nport: 0\n%s\n}\n"


def config(attributes: str = ""):
    return load_text("router.conf", TEXT % attributes).listeners[0]


class OpenedListener(AcceptorWithWorkers):
    """Router whose workers acknowledge on demand, with a listener that is added at run time."""

    def __init__(self) -> None:
        super().__init__(workers=2)
        self.core.waker.connect(self.loop, lambda: None)
        for index in self.core.workers:
            self.core.journal.join(index, 0)
        self.announced: list[Listener] = []
        self.open = OpenListeners(
            self.acceptor, self.services.http, self.core.profiles, self.core.journal, self.announced.append, self.log
        )
        self.settle()
        self.listener = Listener(config())
        self.listener.listen()

    def publish(self) -> list[type]:
        """Publish changes; return their kinds as far as they concern profiles."""
        found: list[type] = []
        while (delta := self.core.take_delta()) is not None:
            found += [type(op) for op in delta[1] if isinstance(op, ProfileOp | ProfileGone)]
        return found

    def acknowledge(self, *workers: int) -> None:
        for index in workers:
            self.core.journal.acknowledge(index, self.core.journal.epoch)
        self.core.journal.run_actions()

    def settle(self) -> list[type]:
        found = self.publish()
        self.acknowledge(0, 1)
        return found + self.publish()


def run(scenario: Callable[[OpenedListener], Awaitable[None]]) -> None:
    async def body() -> None:
        router = OpenedListener()
        try:
            await scenario(router)
        finally:
            router.listener.close()
            router.close()

    asyncio.run(body())


def test_listener_accepts_once_all_workers_have_its_profile() -> None:
    async def scenario(router: OpenedListener) -> None:
        router.open.add(router.listener)
        assert router.publish() == [ProfileOp]
        router.acknowledge(0)
        assert (router.listener.accepts_as, router.announced) == (None, [])
        router.acknowledge(1)
        assert router.listener.accepts_as is not None
        assert router.announced == [router.listener]

    run(scenario)


def test_changed_listener_keeps_old_profile_until_new_one_is_acknowledged() -> None:
    async def scenario(router: OpenedListener) -> None:
        router.open.add(router.listener)
        router.settle()
        before = router.listener.accepts_as
        new = config("linkCapacity: 7")
        router.open.change(router.listener, new)
        assert router.publish() == [ProfileOp]
        assert router.listener.accepts_as is before
        router.acknowledge(0, 1)
        assert router.listener.accepts_as is not None
        assert router.listener.accepts_as[0] is new
        assert router.publish() == [ProfileGone]
        assert router.announced == [router.listener], "announced once"

    run(scenario)


def test_listener_closed_before_acknowledgement_leaves_no_profile() -> None:
    async def scenario(router: OpenedListener) -> None:
        router.open.add(router.listener)
        router.publish()
        router.open.close(router.listener)
        assert router.settle() == [ProfileGone]
        assert router.announced == []

    run(scenario)


def test_closed_listener_retires_its_profile() -> None:
    async def scenario(router: OpenedListener) -> None:
        router.open.add(router.listener)
        router.settle()
        assert router.listener in router.open
        router.open.close(router.listener)
        assert router.settle() == [ProfileGone]
        assert router.listener not in router.open

    run(scenario)


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        ("", "proto=any, role=normal"),
        ("role: inter-router\nprotocolFamily: IPv4", "proto=IPv4, role=inter-router"),
        ("http: yes", "proto=any, role=normal, http"),
    ],
)
def test_configured_listener_is_described(attributes: str, line: str) -> None:
    assert describe_configured(config(attributes)) == f"Configured Listener: 127.0.0.1:0 {line}"
