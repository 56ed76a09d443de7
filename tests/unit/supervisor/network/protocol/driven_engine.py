"""Protocol engine with a manual clock, and messages from scripted peers."""

from typing import NamedTuple

from sluice.supervisor.network.protocol import annotations, messages
from sluice.supervisor.network.protocol.engine import Engine
from sluice.supervisor.network.protocol.local_router import node_id
from sluice.supervisor.network.protocol.messages import Message
from sluice.supervisor.network.protocol.outputs import Change, EngineLogLine, PathChanged
from sluice.supervisor.network.protocol.timers import ProtocolLimits, Timers


class EngineMessage(NamedTuple):
    """Message that the engine has sent."""

    link: int
    to: str | None
    message: Message | None
    ingress: str | None
    trace: list[str]


class DrivenEngine:
    """Protocol engine of router `me`, instance 100, with everything that it has sent, changed and logged."""

    def __init__(
        self, me: str = "A", timers: Timers | None = None, limits: ProtocolLimits | None = None, process: int = 0
    ) -> None:
        self.me = me
        self.now = 1000.0
        self.engine = Engine(me, 100, timers or Timers(), self.now, limits, process=process)
        self.sent: list[EngineMessage] = []
        self.changes: list[Change] = []
        self.log: list[EngineLogLine] = []
        self.octets: list[tuple[int, bytes]] = []
        self.settle()

    def settle(self) -> None:
        """Run the engine until no deadline is due, and collect its output."""
        while self.engine.deadline() <= self.now:
            self.engine.tick(self.now)
            self._take()
        self._take()

    def _take(self) -> None:
        for link, octets in self.engine.take_sends():
            envelope = annotations.read(octets)
            to = messages.address(octets, envelope.tail_at)
            message = messages.decode(envelope.tail())
            self.sent.append(EngineMessage(link, to, message, envelope.ingress_id(), envelope.trace_ids()))
            self.octets.append((link, octets))
        self.changes += self.engine.take_changes()
        self.log += self.engine.take_log()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self.engine.deadline() <= until:
            self.now = max(self.now, self.engine.deadline())
            self.settle()
        self.now = until

    def clear(self) -> None:
        self.sent, self.changes, self.log, self.octets = [], [], [], []

    def up(self, link: int, cost: int = 1, ours: bool = False, only: str | None = None) -> None:
        self.engine.link_up(link, cost, ours, self.now, only)
        self.settle()

    def down(self, link: int) -> None:
        self.engine.link_down(link, self.now)
        self.settle()

    def receive(self, link: int, tail: bytes, path: str | list[str] = "B") -> None:
        """Pass a message from a peer to the engine. `path`: the routers that it has passed, its origin first."""
        path = [path] if isinstance(path, str) else path
        octets = annotations.originated_head(node_id(path[0])) + tail
        for router in path[1:]:
            octets = annotations.relayed(annotations.read(octets), node_id(router))
        self.engine.receive(link, octets, self.now)
        self.settle()

    # -- Messages of peers

    def hello(self, link: int, peer: str = "B", seen: str = "A", instance: int = 50, process: int = 0) -> None:
        self.receive(link, messages.encode_hello(peer, instance, list(seen), process), peer)

    def neighbour(self, link: int, peer: str = "B", cost: int = 1, ours: bool = False, instance: int = 50) -> None:
        self.up(link, cost, ours)
        self.hello(link, peer, self.me, instance)
        self.run(0.1)

    def link_state(
        self,
        link: int,
        router: str,
        ls_seq: int,
        peers: dict[str, int],
        instance: int = 50,
        path: list[str] | None = None,
    ) -> None:
        """Pass an LSU to the engine that answers its request."""
        tail = messages.encode_link_state(router, instance, ls_seq, peers.items(), messages.to_router_ls(self.me))
        self.receive(link, tail, path or [router])

    def advertise(
        self,
        link: int,
        router: str = "B",
        ls_seq: int = 0,
        mobile_seq: int = 0,
        instance: int = 50,
        path: list[str] | None = None,
    ) -> None:
        self.receive(link, messages.encode_advertisement(router, instance, ls_seq, mobile_seq), path or [router])

    # -- Output of the engine

    def of(self, kind: type[Message]) -> list[EngineMessage]:
        return [sent for sent in self.sent if isinstance(sent.message, kind)]

    def paths(self) -> dict[str, PathChanged]:
        """Return the paths to the reachable routers, by router id."""
        found = {row.id: self.engine.path(row.id) for row in self.engine.routers()[1:]}
        return {router: path for router, path in found.items() if path is not None}

    def links(self) -> dict[str, tuple[int, ...]]:
        return {router: path.links for router, path in self.paths().items()}


def line() -> DrivenEngine:
    """Return router A of the line A - B - C after it has announced everything. B is a router of 1.19."""
    a = DrivenEngine()
    a.neighbour(1)
    a.link_state(1, "B", 1, {"A": 1, "C": 2})
    a.link_state(1, "C", 1, {"B": 2}, path=["C", "B"])
    a.run(0.1)
    return a
