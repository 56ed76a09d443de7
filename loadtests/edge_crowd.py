"""Simulated edge routers at an interior router: connections with the links of an edge router, heartbeats and address
links. Measures their cost there, and the cost of a burst in which all connect at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import NamedTuple

import psutil

from loadtests.measuring import cpu_seconds, memory_kib
from loadtests.processes import MeasureError
from sluice.router.client.aio import AsyncConnection, aconnect
from sluice.router.client.attach import Terminus
from sluice.router.client.message import Message

LIMIT = 120.0  # seconds for any wait
PERIOD = 2.0  # seconds between heartbeats
AT_A_TIME = 50  # connections being opened concurrently, as by hosts of their own
DOWNLINK = "qd.router-edge-downlink"


class Storm(NamedTuple):
    """Time and CPU seconds of the interior router until all edge routers had attached."""

    seconds: float
    cpu: float


class Edge:
    """Simulated edge router. Owner: the crowd."""

    def __init__(self, name: str, connection: AsyncConnection) -> None:
        self._name = name
        self._connection = connection
        self._beating: asyncio.Task[None] | None = None

    @classmethod
    async def come(cls, name: str, port: int) -> Edge:
        """Connect, and attach the eight links of an edge router."""
        url = f"amqp://127.0.0.1:{port}"
        connection = await aconnect(url, timeout=LIMIT, container=name, properties={"qd.annotations-version": 1})
        edge = cls(name, connection)
        first, second = connection.session(), connection.session()
        await first.sender(None, timeout=LIMIT)
        mark = (DOWNLINK,)
        await first.receiver(
            name, source=Terminus(name, capabilities=mark), target=Terminus(capabilities=mark), timeout=LIMIT
        )
        await second.receiver("_$qd.edge_addr_tracking", timeout=LIMIT)
        for service in ("$management", "_$qd.addr_lookup"):
            await second.sender(service, timeout=LIMIT)
            await second.receiver(None, source=Terminus(dynamic=True), timeout=LIMIT)
        heart = await second.sender("_$qd.edge_heartbeat", timeout=LIMIT)

        async def beat() -> None:
            count = 0
            while True:
                await heart.send(Message(count), settled=True)
                count += 1
                await asyncio.sleep(PERIOD)

        edge._beating = asyncio.create_task(beat())
        return edge

    async def announce(self, addresses: int) -> None:
        """Attach consumers to `addresses` addresses."""
        session = self._connection.session()
        for number in range(addresses):
            await session.receiver(f"crowd/{self._name}/{number}", timeout=LIMIT)

    async def go(self) -> None:
        """Drop the connection without a close."""
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating
        await self._connection.abort()


class Crowd:
    """Simulated edge routers at one interior router."""

    def __init__(self, port: int, pid: int) -> None:
        """Prepare the crowd. port: listener for edge routers. pid: process of the interior router."""
        self._port = port
        self._pid = pid
        self._edges: list[Edge] = []

    async def come(self, count: int, addresses: int = 0) -> Storm:
        """Connect `count` edge routers at once, each with consumers of `addresses` addresses."""
        room = asyncio.Semaphore(AT_A_TIME)

        async def one(number: int) -> Edge:
            async with room:
                edge = await Edge.come(f"E{number}", self._port)
                await edge.announce(addresses)
                return edge

        began, cpu = time.monotonic(), cpu_seconds(self._pid)
        self._edges = list(await asyncio.gather(*(one(number) for number in range(count))))
        return Storm(time.monotonic() - began, cpu_seconds(self._pid) - cpu)

    async def announce(self, addresses: int) -> float:
        """Announce `addresses` addresses at each edge router. Return the interior router's CPU seconds."""
        cpu = cpu_seconds(self._pid)
        for edge in self._edges:
            await edge.announce(addresses)
        return cpu_seconds(self._pid) - cpu

    async def idle(self, seconds: float) -> float:
        """Wait. Return the interior router's CPU seconds."""
        cpu = cpu_seconds(self._pid)
        await asyncio.sleep(seconds)
        return cpu_seconds(self._pid) - cpu

    async def go(self) -> None:
        """Drop all connections."""
        edges, self._edges = self._edges, []
        await asyncio.gather(*(edge.go() for edge in edges))

    def memory(self) -> float:
        """Return the memory of the interior router's processes in KiB; shared pages are counted once."""
        try:
            return memory_kib(self._pid)
        except psutil.Error as error:
            raise MeasureError(f"memory of the router: {error}") from error
