"""Mobile addresses: announcement of the local ones, and storage of those of other routers (inter-router.md 9)."""

from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from sluice.supervisor.network.protocol import messages
from sluice.supervisor.network.protocol.advertisements import Advertisements
from sluice.supervisor.network.protocol.flooding import Flooding
from sluice.supervisor.network.protocol.keys import NO_KEYS, Keys, apply
from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.messages import MobileChange, MobileRequest, MobileState
from sluice.supervisor.network.protocol.neighbour_table import ControlLink
from sluice.supervisor.network.protocol.nodes import RouterNode, RouterNodes
from sluice.supervisor.network.protocol.outbox import DEBUG, ERROR, WARNING, EngineOutbox
from sluice.supervisor.network.protocol.outputs import KeysChanged
from sluice.supervisor.network.protocol.requests import RequestQueue
from sluice.supervisor.network.protocol.timers import NEVER

_NEVER_YET: Final = -1e9
# limit of a message's octets besides its addresses, including the annotations of all its hops
_ENVELOPE: Final = 65_536


class _IncompleteState(Struct):
    """Incomplete list of all addresses of a router. `tails`: its messages, to be relayed."""

    instance: int | None
    mobile_seq: int
    parts: int
    at: float = 0.0  # time of the last part
    keys: dict[str, int | None] = field(default_factory=dict)
    tails: list[bytes] = field(default_factory=list)


class Mobile:
    """Mobile addresses of all routers. Owner: the engine."""

    def __init__(
        self,
        local: LocalRouter,
        nodes: RouterNodes,
        flooding: Flooding,
        outbox: EngineOutbox,
        requests: RequestQueue,
        advertisements: Advertisements,
    ) -> None:
        self._local = local
        self._nodes = nodes
        self._flooding = flooding
        self._outbox = outbox
        self._requests = requests
        self._advertisements = advertisements
        self.send_at = NEVER
        self._sent = _NEVER_YET
        self._announced: dict[str, int] = {}  # key -> treatment, as of the local sequence
        self._added: dict[str, int] = {}  # later changes
        self._removed: dict[str, None] = {}
        self._held = 0  # number of keys of all other routers
        self._coming: dict[tuple[str, int], _IncompleteState] = {}  # by router and link

    # -- local addresses

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
            self.send_at = max(now + self._local.timers.mobile_first, self._sent + self._local.timers.mobile_gap)

    def send(self, now: float) -> None:
        """Announce changes in one update of limited size (inter-router.md 9.1). The rest follows soon."""
        removed = next(messages.in_parts(self._removed, self._local.limits.part_octets))
        room = len(removed) == len(self._removed)
        added = next(messages.in_parts(self._added, self._local.limits.part_octets)) if room else {}
        self._sent = now
        self._local.mobile_seq += 1
        self._flooding.to_all(messages.encode_mobile_change(self._local.id, self._local.mobile_seq, added, removed))
        self._announced.update(added)
        for key in added:
            del self._added[key]
        for key in removed:
            del self._announced[key], self._removed[key]
        self.send_at = now + self._local.timers.mobile_part if self._added or self._removed else NEVER
        self._advertisements.sequence_changed(now)

    def request(self, message: MobileRequest) -> None:
        """Answer a MAR with all addresses in one message, as 1.19 requires (inter-router.md 9.2)."""
        node = self._nodes.by_id.get(message.id)
        if node is None or message.have_seq >= self._local.mobile_seq:
            return
        to = messages.to_router_mobile(node.id)
        tail = messages.encode_mobile_state(self._local.id, self._local.mobile_seq, self._announced, to)
        most = self._local.limits.message_octets - _ENVELOPE
        if len(tail) > most:
            listed = next(messages.in_parts(self._announced, most - _ENVELOPE))
            self._outbox.log_once(
                "ROUTER_MA",
                ERROR,
                "The addresses of this router do not fit into one message of "
                f"{self._local.limits.message_octets} octets, so routers of Dispatch 1.19, and routers behind them, "
                "learn only some of them",
            )
            tail = messages.encode_mobile_state(self._local.id, self._local.mobile_seq, listed, to)
        self._flooding.to_router(node, tail)

    def push_own(self, link: int) -> None:
        """Send all local addresses to a Sluice neighbour."""
        if self._local.mobile_seq:
            for tail in self._state(self._local.id, self._local.instance, self._local.mobile_seq, self._announced):
                self._flooding.to_link(link, tail)

    def _state(self, router_id: str, instance: int, mobile_seq: int, keys: Keys) -> list[bytes]:
        """Return all addresses of a router, as messages for a Sluice neighbour."""
        parts = list(messages.in_parts(keys, self._local.limits.part_octets))
        to = messages.TO_NEIGHBOUR_MOBILE
        return [
            messages.encode_mobile_state(router_id, mobile_seq, part, to, instance, number, len(parts))
            for number, part in enumerate(parts, 1)
        ]

    # -- addresses of others

    def ask(self, node: RouterNode, now: float) -> None:
        """Send a MAR if more addresses are known to exist."""
        if node.wanted_mobile > node.mobile_seq:
            node.asked = now
            self._flooding.to_router(
                node,
                messages.encode_mobile_request(self._local.id, node.mobile_seq, messages.to_router_mobile(node.id)),
            )

    def change(self, message: MobileChange, ours: bool, now: float) -> None:
        """Handle a differential MAU (inter-router.md 9.4). Copies and outdated updates are ignored."""
        node = self._nodes.by_id.get(message.id)
        if node is None or message.mobile_seq <= node.mobile_seq:
            return
        if message.mobile_seq == node.mobile_seq + 1:
            self._apply(node, message)
            return
        node.wanted_mobile = max(node.wanted_mobile, message.mobile_seq)
        if now - node.asked >= self._local.timers.request_timeout:
            self._requests.add(node, ours, now)

    def state(self, message: MobileState, link: ControlLink, tail: bytes, now: float) -> None:
        """Handle an absolute MAU. tail: of the message."""
        node = self._nodes.by_id.get(message.id)
        if node is None:
            return
        pushed = link.ours and message.instance is not None
        if pushed and (message.instance != node.instance or message.mobile_seq <= node.mobile_seq):
            self._coming.pop((node.id, link.number), None)
            return
        tails = [tail]
        if message.parts > 1:
            whole = self._join(message, link, tail, now)
            if whole is None:
                return
            message, tails = whole
        if message.mobile_seq < node.mobile_seq:
            if link.ours:
                return  # superseded by a differential update
            node.wanted_mobile = message.mobile_seq  # accepted from 1.19 (inter-router.md 9.4); RAs correct it
        news = message.mobile_seq != node.mobile_seq
        if not self._apply(node, message) or not news or node.instance is None:
            return
        if not pushed:
            tails = self.encode(node, node.instance)
        for each in tails:
            self._flooding.to_ours(each, link.peer)

    def _join(
        self, message: MobileState, link: ControlLink, tail: bytes, now: float
    ) -> tuple[MobileState, list[bytes]] | None:
        """Add a part of an absolute MAU. Returns the joined message and all its tails after the last part, None
        before.

        Parts arrive in order.
        """
        place = (message.id, link.number)
        coming = self._coming.pop(place, None)
        if message.part == 1:
            coming = _IncompleteState(message.instance, message.mobile_seq, message.parts)
        elif (
            coming is None
            or (coming.instance, coming.mobile_seq, coming.parts)
            != (message.instance, message.mobile_seq, message.parts)
            or len(coming.tails) + 1 != message.part
        ):
            return None
        coming.at = now
        coming.keys.update(message.keys)
        coming.tails.append(tail)
        if message.part == message.parts:
            return replace(message, keys=coming.keys, part=1, parts=1), coming.tails
        if (
            self._held + sum(len(other.keys) for other in self._coming.values()) + len(coming.keys)
            > self._local.limits.keys
        ):
            self._too_many(message.id)
            return None
        self._coming[place] = coming
        return None

    def is_arriving(self, node: RouterNode, now: float) -> bool:
        """Return whether the addresses of a router are arriving in parts."""
        return any(
            router_id == node.id and now - coming.at < self._local.timers.request_timeout
            for (router_id, _), coming in self._coming.items()
        )

    def link_down(self, link: int) -> None:
        """Drop incomplete lists from a lost link."""
        for place in [place for place in self._coming if place[1] == link]:
            del self._coming[place]

    def encode(self, node: RouterNode, instance: int) -> list[bytes]:
        """Return all addresses of another router, as messages for a Sluice neighbour."""
        return self._state(node.id, instance, node.mobile_seq, node.keys)

    def _too_many(self, router_id: str) -> None:
        most = self._local.limits.keys
        text = f"Addresses of router {router_id} are ignored: the network has more than {most} addresses"
        self._outbox.log_once("ROUTER_MA", ERROR, text)

    def _short(self, update: MobileChange | MobileState) -> MobileChange | MobileState:
        """Return the update without keys that are too long."""
        most = self._local.limits.key_octets
        keys = update.keys if isinstance(update, MobileState) else update.added
        long = {key for key in keys if len(key) > most // 4 and len(key.encode()) > most}
        if not long:
            return update
        text = f"Addresses of router {update.id} with more than {most} octets are ignored"
        self._outbox.log_once("ROUTER_MA", WARNING, text)
        short = {key: hint for key, hint in keys.items() if key not in long}
        return replace(update, keys=short) if isinstance(update, MobileState) else replace(update, added=short)

    def _apply(self, node: RouterNode, update: MobileChange | MobileState) -> bool:
        update = self._short(update)
        keys, added, removed = apply(node.keys, update)
        held = self._held + len(keys) - len(node.keys)
        if held > self._local.limits.keys and len(keys) > len(node.keys):
            self._too_many(node.id)
            return False
        self._held = held
        node.keys = keys
        node.mobile_seq = update.mobile_seq
        node.wanted_mobile = max(node.wanted_mobile, update.mobile_seq)
        node.asked = _NEVER_YET
        if added or removed:
            self._outbox.change(KeysChanged(node.index, added, removed))
        return True

    def reset(self, node: RouterNode) -> None:
        """Remove the addresses of a restarted router, and report them as removed."""
        removed = tuple(node.keys)
        self.forget(node)
        node.mobile_seq = node.wanted_mobile = 0
        node.asked = _NEVER_YET
        if removed:
            self._outbox.log("ROUTER_MA", DEBUG, f"{len(removed)} addresses of router {node.id} are removed")
            self._outbox.change(KeysChanged(node.index, {}, removed))

    def forget(self, node: RouterNode) -> None:
        """Remove the addresses of a router whose record is removed."""
        self._held -= len(node.keys)
        node.keys = NO_KEYS

    def own_keys(self) -> Keys:
        """Return the announced keys, as of the local sequence."""
        return dict(self._announced)

    def count(self) -> int:
        return len(self._announced)
