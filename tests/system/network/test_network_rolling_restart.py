"""Rolling restart of three routers with an edge router below, while a thousand clients use them."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from sluice.router.client import (
    Accepted,
    Backoff,
    ClientError,
    LinkDetachedError,
    Message,
    StaleDeliveryError,
    UnsettledError,
    aconnect,
)
from sluice.router.client.aio import AsyncConnection, AsyncReceiver, AsyncSender
from tests.system.edges import EDGES, edge
from tests.system.fixtures import Start
from tests.system.networks import RouterView, interior, ports
from tests.system.router import RouterProcess, Section, listener

WORKER_COUNTS = (1, 3)
PATIENCE = 120.0
ADDRESSES = 20
#: Clients of each kind: at the interior routers, and at the edge router. Receivers are several for each address.
RECEIVERS, SENDERS, IDLE = (200, 20), (40, 10), (700, 30)
PACE = 100  # connections that a draining router closes in a second
#: Connections closed in a second of the router's log: the token bucket of a step, and the time for writing lines.
MOST_A_SECOND = 1.3 * PACE
SEND_EVERY = 0.05  # seconds between two messages of a sender, so that a thousand clients share a core
BACK = Backoff(first=0.05, most=1.0)


class Load:
    """Clients of a network, and what has become of their messages. Owner: the test."""

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.received: Counter[int] = Counter()
        self.others: Counter[str] = Counter()  # outcomes and errors of messages that were not accepted
        self.errors: list[str] = []
        self.ending = asyncio.Event()
        self._numbers = itertools.count()
        self._senders: list[asyncio.Task[None]] = []
        self._receivers: list[asyncio.Task[None]] = []
        self._connections: list[AsyncConnection] = []

    async def begin(self, urls: list[list[str]], receivers: int, senders: int, idle: int) -> None:
        """Connect clients; each has another first choice. Receivers come before senders."""
        choices = itertools.cycle(urls)
        for at in range(receivers):
            connection = await self._connect(next(choices))
            receiver = await connection.receiver(f"q/{at % ADDRESSES}", timeout=PATIENCE)
            self._receivers.append(asyncio.create_task(self._receive(receiver)))
        for _ in range(idle):
            await self._connect(next(choices))
        for at in range(senders):
            connection = await self._connect(next(choices))
            sender = await connection.sender(f"q/{at % ADDRESSES}", timeout=PATIENCE)
            self._senders.append(asyncio.create_task(self._send(sender, at_edge=len(urls) == 1)))

    async def _connect(self, urls: list[str]) -> AsyncConnection:
        connection = await aconnect(urls, timeout=PATIENCE, reconnect=BACK)
        self._connections.append(connection)
        return connection

    async def _receive(self, receiver: AsyncReceiver) -> None:
        while True:
            try:
                delivery = await receiver.receive()
                self.received[delivery.message.body] += 1
                delivery.accept()
            except StaleDeliveryError:
                self.others["stale"] += 1
            except ClientError as error:
                self.errors.append(repr(error))
                return

    async def _send(self, sender: AsyncSender, *, at_edge: bool) -> None:
        while not self.ending.is_set():
            number = next(self._numbers)
            try:
                outcome = await sender.send(Message(number), timeout=PATIENCE)
            except UnsettledError as error:
                self.others["unknown" if error.sent else "not sent"] += 1
            except (LinkDetachedError, TimeoutError) as error:
                self.errors.append(repr(error))
                return
            else:
                if isinstance(outcome, Accepted):
                    self.accepted.add(number)
                else:
                    self.others[f"{type(outcome).__name__} at {'edge' if at_edge else 'interior'}"] += 1
            await asyncio.sleep(SEND_EVERY)

    async def progress(self) -> None:
        """Wait until further messages have been accepted."""
        wanted = len(self.accepted) + 10 * ADDRESSES
        async with asyncio.timeout(PATIENCE):
            while len(self.accepted) < wanted and not self.errors:
                await asyncio.sleep(SEND_EVERY)

    async def end(self) -> None:
        """Let the senders end, and close all connections."""
        self.ending.set()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self._senders)
        for task in self._receivers:
            task.cancel()
        await asyncio.gather(*self._receivers, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._connections), return_exceptions=True)


def sections(name: str, at: dict[str, int], to: list[int], **attributes: Any) -> list[Section]:
    """Return the sections of an interior router with fixed ports."""
    made = interior(name, at["net"], to, shutdownGraceSeconds=60, shutdownConnectionsPerSecond=PACE, **attributes)
    made[1] = listener(port=at["clients"])
    return [*made, listener(EDGES, role="edge", port=at["edges"])]


def most_closed_in_a_second(router: RouterProcess, since: int) -> int:
    """Return the most connections that a router has closed in any second, by its log."""
    times = [
        datetime.fromisoformat(line[:26]).timestamp()
        for line in router.lines[since:]
        if "the router is about to exit" in line
    ]
    return max((sum(first <= each < first + 1 for each in times) for first in times), default=0)


async def restart(router: RouterProcess, load: Load) -> None:
    """Drain and start one router while the load goes on, and check the pace."""
    run = asyncio.to_thread
    seen = len(router.lines)
    os.kill(router.pid, signal.SIGTERM)
    assert await run(router.wait_exit, PATIENCE) == 0
    assert "The time for draining is over" not in "\n".join(router.lines[seen:])
    assert most_closed_in_a_second(router, seen) <= MOST_A_SECOND
    await run(router.start)
    await load.progress()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_rolling_restart_under_load_loses_no_message(start: Start, workers: int) -> None:
    names = "ABC"
    numbers = iter(ports(9))
    at = {name: {kind: next(numbers) for kind in ("clients", "net", "edges")} for name in names}
    routers = {
        name: start(sections(name, at[name], [at[other]["net"] for other in names if other < name]), workers)
        for name in names
    }
    below = start(edge("E", *routers.values(), routerAbsenceSeconds=60), workers)
    for name in names:
        RouterView(routers[name]).wait_nodes(**dict.fromkeys([other for other in names if other != name], 1))

    async def test() -> Load:
        load = Load()
        clients = [f"127.0.0.1:{at[name]['clients']}" for name in names]
        rotated = [clients[first:] + clients[:first] for first in range(len(clients))]
        await load.begin([[f"127.0.0.1:{below.port}"]], RECEIVERS[1], 0, IDLE[1])
        await load.begin(rotated, RECEIVERS[0], SENDERS[0], IDLE[0])
        await load.begin([[f"127.0.0.1:{below.port}"]], 0, SENDERS[1], 0)
        await load.progress()
        for name in names:
            await restart(routers[name], load)
            others = dict.fromkeys([other for other in names if other != name], 1)
            await asyncio.to_thread(RouterView(routers[name]).wait_nodes, **others)
        await load.end()
        return load

    check(asyncio.run(test()))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_restart_of_router_between_clients_releases_no_message(start: Start, workers: int) -> None:
    """In a line A-B-C, senders at A, receivers at C and further clients at B: B restarts twice."""
    numbers = iter(ports(9))
    at = {name: {kind: next(numbers) for kind in ("clients", "net", "edges")} for name in "ABC"}
    routers = {
        name: start(sections(name, at[name], [at[other]["net"] for other in others], routerAbsenceSeconds=60), workers)
        for name, others in (("A", ""), ("C", ""), ("B", "AC"))
    }

    def wait_line() -> None:
        RouterView(routers["A"]).wait_nodes(B=1, C=2)
        RouterView(routers["C"]).wait_nodes(B=1, A=2)

    async def test() -> Load:
        load = Load()
        clients = {name: f"127.0.0.1:{at[name]['clients']}" for name in "ABC"}
        await load.begin([[clients["C"]]], RECEIVERS[0], 0, 0)
        await load.begin([[clients["B"], clients["A"]]], 0, 0, IDLE[0])
        await load.begin([[clients["A"]]], 0, SENDERS[0], 0)
        await load.progress()
        for _ in range(2):
            await restart(routers["B"], load)
            await asyncio.to_thread(wait_line)
        await load.end()
        return load

    wait_line()
    check(asyncio.run(test()))


def check(load: Load) -> None:
    """Check that each message was accepted and received."""
    assert load.errors == []
    assert load.accepted - load.received.keys() == set()
    # A message that the client had not sent yet when the router closed the connection is in nobody's hands.
    del load.others["not sent"]
    assert load.others == {}, "what waits for a router that drains leaves when it, or another uplink, is back"
