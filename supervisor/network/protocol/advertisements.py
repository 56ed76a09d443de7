"""Advertisements (RA): the present sequences of this router, sent to all (inter-router.md 7)."""

from sluice.supervisor.network.protocol.flooding import Flooding
from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.messages import encode_advertisement
from sluice.supervisor.network.protocol.nodes import RouterNodes
from sluice.supervisor.network.protocol.timers import NEVER


class Advertisements:
    """Periodic and early RAs. Owner: the engine.

    They are early, and more frequent for a while, only if a router needs them to request news: one that is not Sluice.
    """

    def __init__(self, local: LocalRouter, nodes: RouterNodes, flooding: Flooding) -> None:
        self._local = local
        self._nodes = nodes
        self._flooding = flooding
        self._sent = local.started
        self.send_at = local.started
        self.last_change: float | None = None  # time of the last change of the topology

    def topology_changed(self, now: float) -> None:
        self.last_change = now
        if not self._nodes.only_ours:
            self.send_at = min(self.send_at, max(now, self._sent + self._local.timers.ra_interval_flux))

    def sequence_changed(self, now: float) -> None:
        """Send an RA in this tick after a local sequence has changed, if a router needs it."""
        if not self._nodes.only_ours:
            self.send_at = now

    def instance_raised(self, now: float) -> None:
        self.send_at = now

    def send(self, now: float) -> None:
        """Send an RA to all."""
        local, timers = self._local, self._local.timers
        self._sent = now
        self._flooding.to_all(encode_advertisement(local.id, local.instance, local.ls_seq, local.mobile_seq))
        changed = self.last_change if self.last_change is not None else -NEVER
        in_flux = now + timers.ra_interval_flux - changed <= 2 * timers.ra_interval_flux and not self._nodes.only_ours
        self.send_at = now + (timers.ra_interval_flux if in_flux else timers.ra_interval)
