"""Neighbourhood of the router as far as events report it: reachable routers, and the uplink of an edge router.

It is compared with its state at the last reading. A router that is lost and found again in between is no event; the
counter of path changes has it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sluice.supervisor.edge.uplink import Uplink
    from sluice.supervisor.network.adapter import Routers


class Neighbourhood:
    """Reachable routers and uplink at the last reading. Owner: the history."""

    def __init__(self, routers: "Routers | None", uplink: "Uplink | None") -> None:
        self._routers: Final = routers
        self._uplink: Final = uplink
        self._reachable: set[str] = set()
        self._interior: str | None = None

    def changes(self) -> Iterator[tuple[str, str]]:
        """Yield kind and text of each change since the last call."""
        if self._routers is not None:
            reachable = set(self._routers.reachable_ids())
            before, self._reachable = self._reachable, reachable
            for router in sorted(before - reachable):
                yield "router lost", f"Router {router} is not reachable"
            for router in sorted(reachable - before):
                yield "router found", f"Router {router} is reachable"
        if self._uplink is not None:
            there = self._uplink.connection
            interior = None if there is None else there.container
            if interior != self._interior:
                lost, self._interior = self._interior, interior
                if interior is None:
                    yield "router lost", f"No uplink; it was connected to {lost}"
                else:
                    yield "router found", f"The uplink is connected to {interior}"
