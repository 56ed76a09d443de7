"""Synchronisation of Sluice neighbours: each sends, without request, what the other lacks.

inter-router-protocol.md 5.5, 5.6, 5.8.

1.19 requests link state and addresses of every router through the whole network, which is expensive with hundreds of
routers. When two Sluice routers become neighbours, they exchange summaries of their state, and each sends what the
other lacks. A router relays news to its other Sluice neighbours, in the messages of 1.19 (LSU and absolute MAU) with
an additional entry in each. Routers of 1.19 never receive these messages, and send requests as always.
"""

from supervisor.network.protocol import messages
from supervisor.network.protocol.flooding import Flooding
from supervisor.network.protocol.link_state import LinkStates
from supervisor.network.protocol.local_router import LocalRouter
from supervisor.network.protocol.messages import Summary
from supervisor.network.protocol.mobile import Mobile
from supervisor.network.protocol.neighbours import ControlLink, Neighbour
from supervisor.network.protocol.nodes import RouterNodes


class Sync:
    """Exchange of state with Sluice neighbours. Owner: the engine."""

    def __init__(
        self,
        local: LocalRouter,
        nodes: RouterNodes,
        link_state: LinkStates,
        mobile: Mobile,
        flooding: Flooding,
    ) -> None:
        self._local = local
        self._nodes = nodes
        self._link_state = link_state
        self._mobile = mobile
        self._flooding = flooding

    def greet(self, neighbour: Neighbour) -> None:
        """Send a summary of the known state to a new neighbour."""
        known = {
            node.id: (node.instance, node.ls_seq, node.mobile_seq)
            for node in self._nodes
            if node.instance is not None and (node.ls_seq or node.mobile_seq)
        }
        local = self._local
        known[local.id] = (local.instance, self._local.ls_seq, self._local.mobile_seq)
        self._flooding.to_link(neighbour.links[0], messages.encode_summary(local.id, local.instance, known))

    def answer(self, message: Summary, link: ControlLink, now: float) -> None:
        """Answer a summary by sending the neighbour what it lacks."""
        instance, ls_seq, mobile_seq = message.routers.get(self._local.id, (0, -1, 0))
        if instance != self._local.instance:
            ls_seq, mobile_seq = -1, 0
        if ls_seq < self._local.ls_seq:
            self._link_state.push_own(link.number)
        if mobile_seq < self._local.mobile_seq:
            self._mobile.push_own(link.number)
        for node in self._nodes:
            if node.instance is None or node.id == message.id:
                continue
            instance, ls_seq, mobile_seq = message.routers.get(node.id, (0, 0, 0))
            if instance > node.instance:
                continue
            if instance < node.instance:
                ls_seq = mobile_seq = 0
            if node.ls_seq > ls_seq:
                self._flooding.to_link(link.number, self._link_state.encode(node, node.instance, now))
            if node.mobile_seq > mobile_seq:
                for tail in self._mobile.encode(node, node.instance):
                    self._flooding.to_link(link.number, tail)
