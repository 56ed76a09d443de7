"""Between neighbours that are both Sluice: each tells the other unasked what it lacks.

1.19 asks every router for its link state and its addresses, through the whole network; with hundreds of routers that is
what costs. When two of ours become neighbours they exchange a summary of what they know, and each then sends what the
other does not have. What is news to a router it passes on to its other neighbours of ours, in the messages of 1.19 (LSU
and absolute MAU) with one more entry each. Routers of 1.19 never get any of this and ask as ever.
"""

from supervisor.network import messages
from supervisor.network.flooding import Flooding
from supervisor.network.link_state import LinkState
from supervisor.network.messages import Summary
from supervisor.network.mobile import Mobile
from supervisor.network.neighbours import Link, Neighbour
from supervisor.network.nodes import Nodes, Own


class Sync:
    """Owner: the engine."""

    def __init__(
        self,
        own: Own,
        nodes: Nodes,
        link_state: LinkState,
        mobile: Mobile,
        flooding: Flooding,
    ) -> None:
        self._own = own
        self._nodes = nodes
        self._link_state = link_state
        self._mobile = mobile
        self._flooding = flooding

    def greet(self, neighbour: Neighbour) -> None:
        """It has become a neighbour."""
        known = {
            node.id: (node.instance, node.ls_seq, node.mobile_seq)
            for node in self._nodes
            if node.instance is not None and (node.ls_seq or node.mobile_seq)
        }
        own = self._own
        known[own.id] = (own.instance, self._link_state.ls_seq, self._mobile.seq)
        self._flooding.to_link(neighbour.links[0], messages.encode_summary(own.id, own.instance, known))

    def answer(self, message: Summary, link: Link, now: float) -> None:
        """Send a neighbour what it lacks."""
        instance, ls_seq, mobile_seq = message.routers.get(self._own.id, (0, -1, 0))
        if instance != self._own.instance:
            ls_seq, mobile_seq = -1, 0
        if ls_seq < self._link_state.ls_seq:
            self._link_state.push_own(link.number)
        if mobile_seq < self._mobile.seq:
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
