"""Routers of which data is missing, and the times at which to request it."""

from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.nodes import RouterNode
from sluice.supervisor.network.protocol.timers import NEVER


class RequestQueue:
    """Pending requests, one for each router (inter-router-protocol.md 5.10). Owner: the engine. `Sync` sends them."""

    def __init__(self, local: LocalRouter) -> None:
        self._local = local
        self._times: dict[RouterNode, float] = {}  # NEVER: when the router is reachable
        self.due_at = NEVER

    def add(self, node: RouterNode, ours: bool, now: float) -> None:
        """Request the missing data of a router. ours: a Sluice neighbour may send it without request; wait for it."""
        self.add_at(node, now + self._local.timers.pull_grace if ours else now)

    def add_at(self, node: RouterNode, when: float) -> None:
        """Request the missing data of a router at a time; NEVER: when it is reachable."""
        when = min(when, self._times.get(node, NEVER))
        self._times[node] = when
        self.due_at = min(self.due_at, when)

    def awaits_path(self, node: RouterNode) -> bool:
        """Return whether a request waits until the router is reachable."""
        return self._times.get(node) == NEVER

    def remove(self, node: RouterNode) -> None:
        self._times.pop(node, None)

    def take_due(self, now: float) -> list[RouterNode]:
        """Remove and return the routers whose data is to be requested now."""
        due = [node for node, when in self._times.items() if when <= now]
        for node in due:
            del self._times[node]
        self.due_at = min(self._times.values(), default=NEVER)
        return due
