"""Connections with their links, in slices between which other events are handled."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from typing import Final

from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink

SLICE: Final = 1000  # records or links read without a pause, which takes under a millisecond

# A connection and some of its links. The collection is valid until the next pause.
LinkedConnection = tuple[RegisteredConnection, Collection[RegisteredLink]]


async def linked(
    core: RouterCore, pause: Callable[[], Awaitable[None]]
) -> AsyncIterator[tuple[int, list[LinkedConnection]]]:
    """Yield all connections with their links, by number of the worker, about SLICE links at a time.

    A connection with more links comes several times in succession. pause: awaited after each slice.
    """
    for worker in list(core.workers.values()):
        found: list[LinkedConnection] = []
        size = 0
        for connection in list(worker.connections.values()):
            size += 1
            for links in _parts(connection.links):
                found.append((connection, links))
                size += len(links)
                if size >= SLICE:
                    yield worker.index, found
                    found, size = [], 0
                    await pause()
        yield worker.index, found
        await pause()


def _parts(links: dict[int, RegisteredLink]) -> Iterator[Collection[RegisteredLink]]:
    """Yield the links of a connection, at most SLICE at a time. Links may change between two slices."""
    if len(links) <= SLICE:
        yield links.values()
        return
    every = list(links.values())
    for start in range(0, len(every), SLICE):
        yield every[start : start + SLICE]
