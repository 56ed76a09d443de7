"""Mobile addresses: our own announced, those of others kept in step (chapter 9)."""

from collections.abc import Callable
from typing import Final

from supervisor.network import messages
from supervisor.network.flooding import Flooding
from supervisor.network.memo import Memo
from supervisor.network.messages import MobileChange, MobileRequest, MobileState
from supervisor.network.neighbours import Link
from supervisor.network.nodes import NO_KEYS, Keys, Node, Nodes, Own
from supervisor.network.outbox import DEBUG, ERROR, Outbox
from supervisor.network.outputs import KeysChanged
from supervisor.network.timers import Limits, Timers

NEVER: Final = float("inf")
_NEVER_YET: Final = -1e9


class Mobile:
    """Owner: the engine. `advertise(now)`: our sequence is another. `pull(node, when)`: ask for what is missing."""

    def __init__(
        self,
        own: Own,
        timers: Timers,
        limits: Limits,
        nodes: Nodes,
        flooding: Flooding,
        outbox: Outbox,
        memo: Memo,
    ) -> None:
        self._own = own
        self.timers = timers
        self._limits = limits
        self._nodes = nodes
        self._flooding = flooding
        self._outbox = outbox
        self._memo = memo
        self.advertise: Callable[[float], None] = lambda now: None
        self.pull: Callable[[Node, float], None] = lambda node, when: None
        self.seq = 0
        self.send_at = NEVER
        self._sent = _NEVER_YET
        self._announced: dict[str, int] = {}  # key -> treatment, as of `seq`
        self._added: dict[str, int] = {}  # since then
        self._removed: dict[str, None] = {}
        self._held = 0  # keys of all other routers

    # -- our own

    def announce(self, key: str, treatment: int, now: float) -> None:
        if key in self._removed:
            del self._removed[key]
            self._announced[key] = treatment
        elif key in self._announced:
            self._announced[key] = treatment
        else:
            self._added[key] = treatment
        self._plan(now)

    def withdraw(self, key: str, now: float) -> None:
        if key in self._added:
            del self._added[key]
        elif key in self._announced:
            self._removed[key] = None
        self._plan(now)

    def _plan(self, now: float) -> None:
        if not self._added and not self._removed:
            self.send_at = NEVER
        elif self.send_at == NEVER:
            self.send_at = max(now + self.timers.mobile_first, self._sent + self.timers.mobile_gap)

    def send(self, now: float) -> None:
        """9.1"""
        self.send_at = NEVER
        self._sent = now
        self.seq += 1
        self._flooding.to_all(messages.encode_mobile_change(self._own.id, self.seq, self._added, self._removed))
        self._announced.update(self._added)
        for key in self._removed:
            del self._announced[key]
        self._added, self._removed = {}, {}
        self.advertise(now)

    def request(self, message: MobileRequest) -> None:
        """MAR (9.2)"""
        node = self._nodes.by_id.get(message.id)
        if node is not None and message.have_seq < self.seq:
            self._flooding.to_router(
                node,
                messages.encode_mobile_state(
                    self._own.id, self.seq, self._announced, messages.to_router_mobile(node.id)
                ),
            )

    def push_own(self, link: int) -> None:
        """All of our addresses, unasked, to a neighbour of ours."""
        if self.seq:
            tail = messages.encode_mobile_state(
                self._own.id, self.seq, self._announced, messages.TO_NEIGHBOUR_MOBILE, self._own.instance
            )
            self._flooding.to_link(link, tail)

    # -- those of others

    def ask(self, node: Node, now: float) -> None:
        """MAR, if more are known to exist."""
        if node.wanted_mobile > node.mobile_seq:
            node.asked = now
            self._flooding.to_router(
                node, messages.encode_mobile_request(self._own.id, node.mobile_seq, messages.to_router_mobile(node.id))
            )

    def change(self, message: MobileChange, ours: bool, now: float) -> None:
        """MAU, differential (9.4). Copies, and what is older than what is known, are ignored."""
        node = self._nodes.by_id.get(message.id)
        if node is None or message.mobile_seq <= node.mobile_seq:
            return
        if message.mobile_seq == node.mobile_seq + 1:
            self._apply(node, message)
            return
        node.wanted_mobile = max(node.wanted_mobile, message.mobile_seq)
        if now - node.asked >= self.timers.request_timeout:
            self.pull(node, now + self.timers.pull_grace if ours else now)

    def state(self, message: MobileState, link: Link, tail: bytes, now: float) -> None:
        """MAU, absolute. tail: the message."""
        node = self._nodes.by_id.get(message.id)
        if node is None:
            return
        pushed = link.ours and message.instance is not None
        if pushed and (message.instance != node.instance or message.mobile_seq <= node.mobile_seq):
            return
        if message.mobile_seq < node.mobile_seq:
            if link.ours:
                return  # overtaken by a differential one
            node.wanted_mobile = message.mobile_seq  # from 1.19 it counts (9.4); RAs correct what was overtaken
        news = message.mobile_seq != node.mobile_seq
        if not self._apply(node, message) or not news or node.instance is None:
            return
        if not pushed:
            tail = self.encode(node, node.instance)
        self._flooding.to_ours(tail, link.peer)

    def encode(self, node: Node, instance: int) -> bytes:
        """All addresses of another router, for a neighbour of ours."""
        return messages.encode_mobile_state(node.id, node.mobile_seq, node.keys, messages.TO_NEIGHBOUR_MOBILE, instance)

    def _apply(self, node: Node, update: MobileChange | MobileState) -> bool:
        keys, added, removed = self._memo.apply(node.keys, update)
        held = self._held + len(keys) - len(node.keys)
        if held > self._limits.keys and len(keys) > len(node.keys):
            self._outbox.log_once(
                "ROUTER_MA",
                ERROR,
                f"Addresses of {node.id} are ignored: the network has more than {self._limits.keys}",
            )
            return False
        self._held = held
        node.keys = keys
        node.mobile_seq = update.mobile_seq
        node.wanted_mobile = max(node.wanted_mobile, update.mobile_seq)
        node.asked = _NEVER_YET
        if added or removed:
            self._outbox.change(KeysChanged(node.index, added, removed))
        return True

    def reset(self, node: Node) -> None:
        """It has restarted: nothing is known of its addresses."""
        removed = tuple(node.keys)
        self.forget(node)
        node.mobile_seq = node.wanted_mobile = 0
        node.asked = _NEVER_YET
        if removed:
            self._outbox.log("ROUTER_MA", DEBUG, f"{len(removed)} addresses of {node.id} are forgotten")
            self._outbox.change(KeysChanged(node.index, {}, removed))

    def forget(self, node: Node) -> None:
        """Its record is removed."""
        self._held -= len(node.keys)
        node.keys = NO_KEYS

    def own_keys(self) -> Keys:
        """As of our sequence: without what has not been said yet."""
        return dict(self._announced)

    def count(self) -> int:
        return len(self._announced)
