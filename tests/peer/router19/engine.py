"""Routing protocol of 1.19 without sockets: HELLO, link state, mobile addresses (inter-router.md 5 to 9).

Time and messages are passed in. Messages leave through `send`; changes of the tables are visible in the attributes.
The errors of 1.19 in redundant topologies (an MAR for every copy of an update, and its consequences) are repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.peer.router19 import control
from tests.peer.router19.control import MalformedControlError, Router19Control, number, text, texts
from tests.peer.router19.paths import Paths, compute


@dataclass
class Router19Timers:
    """Timer settings in seconds, with the defaults of 1.19."""

    tick: float = 1.0
    hello_interval: float = 1.0
    hello_max_age: float = 3.0
    ra_interval: float = 30.0
    ra_flux: float = 4.0
    ls_max_age: float = 60.0

    def scaled(self, factor: float) -> Router19Timers:
        """Return the timers multiplied by `factor`."""
        values = (self.tick, self.hello_interval, self.hello_max_age, self.ra_interval, self.ra_flux, self.ls_max_age)
        return Router19Timers(*(value * factor for value in values))


@dataclass
class Router19Node:
    """Record of one remote router."""

    id: str
    instance: int | None = None
    version: int = 0
    #: Key of the connection, if the router is a neighbour.
    connection: Any = None
    ls_seq: int = 0
    peers: dict[str, int] = field(default_factory=dict)
    last_seen: float = 0.0
    neighbour_refresh: float = 0.0
    next_hop: str | None = None
    cost: int = 0
    valid_origins: list[str] = field(default_factory=list)
    mobile_seq: int = 0
    need_ls: bool = True
    need_mobile: bool = False
    #: True if an MAR has been sent and no update applied since.
    requested: bool = False
    keep_alive: int = 0
    #: Hints by announced key.
    keys: dict[str, int | None] = field(default_factory=dict)

    @property
    def reachable(self) -> bool:
        """True if control messages for the router have a next hop."""
        return self.connection is not None or self.next_hop is not None


class Router19Engine:
    """Protocol state of one router. mute: opcodes that it does not send, for tests that send them instead."""

    def __init__(
        self,
        router_id: str,
        instance: int,
        timers: Router19Timers,
        send: Callable[[str, bytes], None],
        changed: Callable[[], None],
    ) -> None:
        """send(destination, octets): sends to `hello`, `all`, `all.ma` or a router id. changed: called when addresses
        have changed."""
        self.id = router_id
        self.instance = instance
        self.timers = timers
        self.mute: set[str] = set()
        #: Neighbours to report in LSUs instead of the true ones.
        self.claimed: dict[str, int] | None = None
        self.nodes: dict[str, Router19Node] = {}
        self.peers: dict[str, int] = {}
        self.ls_seq = 0
        self.mobile_seq = 0
        self.paths = Paths()
        self.heard: dict[str, float] = {}
        #: Opcodes and ids of dropped messages, with the reason.
        self.dropped: list[str] = []
        self.topology_changes = 0
        self._send = send
        self._changed = changed
        self._now = 0.0
        self._own_changed = False
        self._recompute = False
        self._last_change = 0.0
        self._next_hello = 0.0
        self._next_ra = 0.0
        #: Keys as of the last update, and the changes since, in order.
        self._announced: dict[str, int] = {}
        self._added: dict[str, int] = {}
        self._deleted: dict[str, None] = {}

    def _emit(self, opcode: str, destination: str, octets: bytes) -> None:
        if opcode not in self.mute:
            self._send(destination, octets)

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Run the periodic work of 1.19, once per second."""
        self._now = now
        self._hello()
        if now >= self._next_ra:
            self._advertise()
        self._maintain()
        self._synchronise()

    def _hello(self) -> None:
        limit = self._now - self.timers.hello_max_age
        self.heard = {one: at for one, at in self.heard.items() if at >= limit}
        if self._now >= self._next_hello:
            self._next_hello = self._now + self.timers.hello_interval
            self._emit("HELLO", "hello", control.hello(self.id, self.instance, list(self.heard)))

    def _advertise(self) -> None:
        flux = self._now - self._last_change <= 2 * self.timers.ra_flux
        self._next_ra = self._now + (self.timers.ra_flux if flux else self.timers.ra_interval)
        octets = control.router_advertisement(self.id, self.instance, self.ls_seq, self.mobile_seq)
        self._emit("RA", "all", octets)

    def _maintain(self) -> None:
        now = self._now
        for node in self.nodes.values():
            if node.connection is not None and now - node.neighbour_refresh > self.timers.hello_max_age:
                self._lose(node)
            if node.peers and now - node.last_seen > self.timers.ls_max_age:
                node.peers, node.ls_seq, self._recompute = {}, 0, True
        self._forget()
        if self._own_changed or self._recompute:
            self._last_change = now
            self.topology_changes += 1
        advertise = self._own_changed
        if self._own_changed:
            self.ls_seq += 1
            self._own_changed, self._recompute = False, True
        if self._recompute:
            self._recompute = False
            self._apply_paths()
        for node in self.nodes.values():
            if node.need_ls and node.reachable:
                node.need_ls = False
                self._request_state(node.id)
            if node.need_mobile and node.reachable:
                node.need_mobile = False
                self._request_mobile(node)
        if advertise:
            self._advertise()

    def _forget(self) -> None:
        """Drop records of routers that are no longer known by others."""
        for node in list(self.nodes.values()):
            listed = any(node.id in other.peers for other in self.nodes.values() if other is not node)
            if not node.peers and node.connection is None and not listed:
                node.keep_alive += 1
                if node.keep_alive > 2:
                    del self.nodes[node.id]
                    self._changed()

    def _apply_paths(self) -> None:
        collection = {one.id: one.peers for one in self.nodes.values()}
        self.paths = compute(self.id, {**collection, self.id: self.peers})
        for node in self.nodes.values():
            if node.id not in self.paths.costs:
                continue
            hop = self.paths.next_hops[node.id]
            node.next_hop = None if hop == node.id else hop
            node.cost = self.paths.costs[node.id]
            node.valid_origins = self.paths.valid_origins[node.id]

    def _synchronise(self) -> None:
        if not self._added and not self._deleted:
            return
        self.mobile_seq += 1
        octets = control.mobile_update(self.id, self.mobile_seq, list(self._added.items()), list(self._deleted))
        self._announced.update(self._added)
        for key in self._deleted:
            self._announced.pop(key, None)
        self._added, self._deleted = {}, {}
        self._emit("MAU", "all.ma", octets)
        self._advertise()

    # --- neighbours --------------------------------------------------------------------------------------------------

    def connection_lost(self, connection: Any) -> None:
        """Handle the loss of a connection or of its control link."""
        for node in self.nodes.values():
            if node.connection is connection:
                self._lose(node)

    def _lose(self, node: Router19Node) -> None:
        node.connection = None
        self.peers.pop(node.id, None)
        self._own_changed = True

    def _node(self, router_id: str, instance: int | None = None) -> Router19Node:
        node = self.nodes.get(router_id)
        if node is None:
            node = self.nodes[router_id] = Router19Node(router_id, instance)
        return node

    # --- messages ----------------------------------------------------------------------------------------------------

    def handle(self, message: Router19Control, connection: Any, cost: int, now: float) -> None:
        """Handle a control message that arrived on `connection`. cost: cost of the connection."""
        self._now = now
        handler = {
            "HELLO": self._on_hello,
            "RA": self._on_ra,
            "LSR": self._on_lsr,
            "LSU": self._on_lsu,
            "MAR": self._on_mar,
            "MAU": self._on_mau,
        }.get(message.opcode)
        if handler is None:
            return
        try:
            body = message.body
            if number(body, "pv", 0) > control.PROTOCOL:
                raise MalformedControlError("a later version of the protocol")
            if text(body, "id") != self.id:
                handler(body, connection, cost)
            elif message.opcode == "HELLO" and number(body, "instance", 0) != self.instance:
                self.dropped.append("HELLO: duplicate id")
        except MalformedControlError as error:
            self.dropped.append(f"{message.opcode}: {error}")

    def _on_hello(self, body: dict[str, Any], connection: Any, cost: int) -> None:
        sender, seen, instance = text(body, "id"), texts(body, "seen"), number(body, "instance", 0)
        self.heard[sender] = self._now
        if self.id not in seen:
            return
        node = self._node(sender)
        if node.connection is not connection:
            node.connection, node.next_hop, node.need_ls = connection, None, True
            if sender not in self.peers:
                self.peers[sender] = cost
                self._own_changed = True
        node.neighbour_refresh = self._now
        self._check_instance(node, instance, number(body, "pv", 0))

    def _check_instance(self, node: Router19Node, instance: int, version: int) -> None:
        if node.instance is None:
            node.instance, node.version = instance, version
        elif node.instance != instance:
            node.instance, node.version = instance, version
            node.peers, node.ls_seq, node.mobile_seq = {}, 0, 0
            node.keys.clear()
            node.need_ls, self._recompute = True, True
            self._changed()

    def _on_ra(self, body: dict[str, Any], _connection: Any, _cost: int) -> None:
        ls_seq, mobile_seq = number(body, "ls_seq"), number(body, "mobile_seq")
        node = self._node(text(body, "id"))
        self._check_instance(node, number(body, "instance", 0), number(body, "pv", 0))
        node.last_seen = self._now
        if ls_seq > node.ls_seq:
            self._request_state(node.id)
        if mobile_seq > node.mobile_seq:
            node.need_mobile = True

    def _on_lsr(self, body: dict[str, Any], _connection: Any, _cost: int) -> None:
        node = self._node(text(body, "id"))
        peers = self.peers if self.claimed is None else self.claimed
        octets = control.link_state_update(self.id, node.id, self.instance, self.ls_seq, peers)
        self._emit("LSU", node.id, octets)

    def _on_lsu(self, body: dict[str, Any], _connection: Any, _cost: int) -> None:
        number(body, "ls_seq")
        inner = body.get("ls")
        if not isinstance(inner, dict):
            raise MalformedControlError("ls is not a map")
        inner = {str(key): value for key, value in inner.items()}
        text(inner, "id")
        sequence, peers = number(inner, "ls_seq"), inner.get("peers")
        if not isinstance(peers, dict) or not all(isinstance(one, str) for one in peers):
            raise MalformedControlError("peers is not a map of strings")
        node = self._node(text(body, "id"), number(body, "instance", 0))
        if sequence <= node.ls_seq:
            return
        node.ls_seq, node.last_seen, self._recompute = sequence, self._now, True
        node.peers = {str(peer): int(cost) for peer, cost in peers.items()}
        for peer in node.peers:
            if peer != self.id:
                self._node(peer)

    def _request_state(self, router_id: str) -> None:
        self._emit("LSR", router_id, control.link_state_request(self.id, router_id))

    # --- mobile addresses --------------------------------------------------------------------------------------------

    def announce(self, key: str, hint: int) -> None:
        """Register the first local destination of a key. It is announced at the next tick."""
        if key in self._deleted:
            del self._deleted[key]
        elif key not in self._announced:
            self._added[key] = hint

    def withdraw(self, key: str) -> None:
        """Register the loss of the last local destination of a key."""
        if key in self._added:
            del self._added[key]
        elif key in self._announced:
            self._deleted[key] = None

    def _request_mobile(self, node: Router19Node) -> None:
        self._emit("MAR", node.id, control.mobile_request(self.id, node.id, node.mobile_seq))

    def _on_mar(self, body: dict[str, Any], _connection: Any, _cost: int) -> None:
        sender, have = text(body, "id"), number(body, "have_seq")
        if sender in self.nodes and have < self.mobile_seq:
            keys = list(self._announced.items())
            self._emit("MAU", sender, control.mobile_state(self.id, sender, self.mobile_seq, keys))

    def _on_mau(self, body: dict[str, Any], _connection: Any, _cost: int) -> None:
        node = self.nodes.get(text(body, "id"))
        sequence = number(body, "mobile_seq")
        lists = {name: body.get(name) for name in ("exist", "add", "del")}
        present = {name for name, value in lists.items() if value is not None}
        if present not in ({"exist"}, {"add", "del"}) or not all(isinstance(lists[name], list) for name in present):
            raise MalformedControlError(f"a MAU with {sorted(present)}")
        if node is None:
            return
        if present == {"exist"}:
            node.keys = _hinted(lists["exist"], body.get("hints"))
        elif sequence == node.mobile_seq + 1 or node.requested:
            node.keys.update(_hinted(lists["add"], body.get("hints")))
            for key in lists["del"] or []:
                node.keys.pop(str(key), None)
        else:
            self._request_mobile(node)
            node.requested = True
            return
        node.mobile_seq, node.requested = sequence, False
        self._changed()


def _hinted(keys: Any, hints: Any) -> dict[str, int | None]:
    """Return keys with their hints. Hints are ignored if their number differs."""
    fitting = hints if isinstance(hints, list) and len(hints) == len(keys) else [None] * len(keys)
    return {str(key): hint for key, hint in zip(keys, fitting, strict=True)}
