"""Frames of connections between edge routers, with scripted routers as peers (docs/internals/edge.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer import message
from tests.peer.container import ScriptedBroker, accept
from tests.peer.frames import coordinator, source, target
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.neighbour import properties
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.peer.types import Symbol
from tests.system.edge.test_edge_wire import ScriptedInterior, link_fields
from tests.system.edges import PEERS, EdgeView, peer_edge
from tests.system.fixtures import Start
from tests.system.networks import CONVERGENCE
from tests.system.router import SETTINGS, RouterProcess, Section, poll

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
DOWNLINK = "qd.router-edge-downlink"
SCOPE: Section = ("address", {"prefix": "here", "scope": "local"})
MARK = "0123456789abcdef"
SERVED = Symbol("x-opt-sluice.served")


def terminus_address(end: Any) -> str | None:
    """Return the address of a terminus, None without one."""
    address = None if end is None or not end.value else end.value[0]
    return None if address is None else str(address)


def open_properties(**more: Any) -> Any:
    """Return open properties; `name_of` becomes the Sluice property `sluice.name-of`."""
    return properties(**{"sluice." + name.replace("_", "-"): value for name, value in more.items()})


def peer_properties(mark: str = MARK) -> Any:
    return open_properties(edge=mark, inter_edge=1)


class InterEdgePeer:
    """Edge router P, a scripted peer that accepts the links attached by E."""

    def __init__(self, port: int, mark: str = MARK) -> None:
        self.peer = RouteContainer.connected(
            port, "P", properties=peer_properties(mark), offered_capabilities=["qd.streaming-links"]
        )
        self.heartbeat: PeerReceiver | None = None
        self.downlink: PeerSender | None = None
        while self.heartbeat is None or self.downlink is None:
            link = self.attached()
            if isinstance(link, PeerReceiver):
                self.heartbeat = link
            else:
                self.downlink = link
        self.own = self.peer.begin()

    def attached(self) -> PeerSender | PeerReceiver:
        return self.peer.link_attached(timeout=CONVERGENCE)

    def attach_receiver(self, address: str) -> PeerReceiver:
        """Attach a receiver on behalf of a client of P."""
        return self.own.receiver(address, 10)


@pytest.fixture
def edge(start: Start, workers: int) -> RouterProcess:
    return start([*peer_edge("E"), SCOPE, *SETTINGS], workers)


@pytest.fixture
def other(edge: RouterProcess, peers: list[AmqpPeer]) -> InterEdgePeer:
    made = InterEdgePeer(edge.ports[PEERS])
    peers.append(made.peer)
    return made


def test_edge_router_opens_and_attaches_as_specified(edge: RouterProcess, other: InterEdgePeer) -> None:
    remote: Any = other.peer.remote_open
    given = {str(key): value for key, value in remote.properties.pairs}
    assert (len(given["sluice.edge"]), given["sluice.inter-edge"], given["qd.annotations-version"]) == (16, 1, 1)
    heartbeat, downlink = link_fields(other.heartbeat), link_fields(other.downlink)  # type: ignore[arg-type]
    assert (terminus_address(heartbeat["source"]), terminus_address(heartbeat["target"])) == (
        None,
        "_$qd.edge_heartbeat",
    )
    assert (terminus_address(downlink["source"]), terminus_address(downlink["target"])) == ("E", None)
    client = AmqpPeer.opened(edge.port)
    local = client.receiver("here/x", 1)
    receiver = client.receiver("there/x", 1)
    link = other.attached()
    assert isinstance(link, PeerSender)
    fields = link_fields(link)
    assert (terminus_address(fields["source"]), terminus_address(fields["target"])) == ("there/x", None)
    link.wait_credit()
    link.send(message.message("x"), settled=True)
    assert message.body(receiver.next().payload) == "x"
    receiver.detach()
    link.wait_detached()
    local.detach()
    client.drop()


def test_messages_to_edge_peer_carry_annotations(edge: RouterProcess, other: InterEdgePeer) -> None:
    receiver = other.attach_receiver("balanced/x")
    client = AmqpPeer.opened(edge.port)
    sender = client.sender("balanced/x")
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    assert message.section_of(delivery.payload, message.MESSAGE_ANNOTATIONS) == {"x-opt-qd.to": "balanced/x"}
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    replies = other.own.receiver(
        None,
        10,
        source=source("P", capabilities=Symbol(DOWNLINK)),
        target=target(None, capabilities=Symbol(DOWNLINK)),
    )
    client.sender("_edge/P/temp.x").send(message.message("reply"), settled=True)
    annotations = message.section_of(replies.next().payload, message.MESSAGE_ANNOTATIONS)
    assert annotations == {"x-opt-qd.to": "_edge/P/temp.x"}
    client.drop()


HOSTILE_ATTACHES: dict[str, dict[str, Any]] = {
    "a sender": {"role": False, "target": target("balanced/x")},
    "a sender to management": {"role": False, "target": target("$management")},
    "a sender to the lookup": {"role": False, "target": target("_$qd.addr_lookup")},
    "a sender to the uplinks": {"role": False, "target": target("_$qd.sluice.uplinks")},
    "a dynamic sender": {"role": False, "target": target(None, dynamic=True)},
    "a coordinator": {"role": False, "target": coordinator()},
    "a receiver of nothing": {"role": True, "source": source(None)},
    "a receiver of management": {"role": True, "source": source("$management")},
    "a receiver of tracking": {"role": True, "source": source("_$qd.edge_addr_tracking")},
    "a dynamic receiver": {"role": True, "source": source(None, dynamic=True)},
    "a receiver of what is elsewhere": {"role": True, "source": source("_topo/0/A/x")},
    "a receiver of what is local": {"role": True, "source": source("_local/x")},
    "a receiver of what is an edge router's": {"role": True, "source": source("_edge/E/temp.x")},
    "the router's own downlink": {"role": True, "source": source("E", capabilities=Symbol(DOWNLINK))},
    "a confined address": {"role": True, "source": source("here/x")},
    "a control link": {"role": True, "source": source(None, capabilities=Symbol("qd.router"))},
}


def test_hostile_attaches_are_refused(edge: RouterProcess, other: InterEdgePeer) -> None:
    for what, fields in HOSTILE_ATTACHES.items():
        attach = other.own.receiver if fields["role"] else other.own.sender
        link = attach(None, wait=False, **({} if fields["role"] else {"credit": False}), **fields)
        error = link.wait_detached()
        assert error is not None, what
        assert error[0].startswith(("qd:", "amqp:")), what
    receiver = other.attach_receiver("balanced/x")
    client = AmqpPeer.opened(edge.port)
    client.sender("balanced/x").send(message.message("x"), settled=True)
    assert message.body(receiver.next().payload) == "x"
    view = EdgeView(edge)
    assert view.consumers("M0balanced/x") == 1
    assert view.address("HE") is None
    client.drop()


def test_hostile_messages_are_released(edge: RouterProcess, other: InterEdgePeer, peers: list[AmqpPeer]) -> None:
    """E survives malformed heartbeats and messages, and forwards none of them."""
    third = InterEdgePeer(edge.ports[PEERS], "fedcba9876543210")
    peers.append(third.peer)
    apart = third.attach_receiver("balanced/y")
    heartbeat = other.own.sender("_$qd.edge_heartbeat")
    assert heartbeat.credit == 2
    for octets in (b"\x00", message.value({"x": 1}), message.value("x" * 60_000)):
        heartbeat.wait_credit()
        heartbeat.send(octets, settled=True)
    streams = other.own.sender(None, source=source(None), target=target(None))
    for to in ("balanced/y", "_edge/X/y", "_topo/0/A/y", "_edge/P/y", "multicast/nobody"):
        number = streams.send(message.message("y", to=to))
        assert streams.outcome(number).name == "released", to
    third.peer.barrier()
    assert not apart.deliveries


def test_missing_heartbeats_end_connection(edge: RouterProcess, other: InterEdgePeer) -> None:
    other.attach_receiver("balanced/x")
    other.own.sender("_$qd.edge_heartbeat").send(message.value(0), settled=True)
    edge.wait_log(r"ROUTER_CORE \(info\) \[C\d+\] Lost heartbeat from container P, closing connection", 30.0)
    poll(lambda: EdgeView(edge).consumers("M0balanced/x") == 0, "its addresses have gone")


@pytest.mark.parametrize(
    "opens",
    [
        properties(),
        open_properties(edge=MARK),
        open_properties(edge=2),
        peer_properties(""),
        peer_properties("x" * 65),
        open_properties(edge=MARK, inter_edge=0),
        open_properties(edge=MARK, inter_edge="1"),
        open_properties(edge=MARK, inter_edge=True),
    ],
    ids=["1.19", "role edge", "interior", "no mark", "a long mark", "version 0", "text", "boolean"],
)
def test_peer_with_invalid_properties_is_refused(edge: RouterProcess, peers: list[AmqpPeer], opens: Any) -> None:
    peer = AmqpPeer(edge.ports[PEERS])
    peers.append(peer)
    peer.open(properties=opens)
    error = peer.expect_close()
    assert error is not None
    assert error[0] == "amqp:not-allowed"
    assert EdgeView(edge).peers() == []


# --- below a scripted interior router ---


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.close()


@pytest.fixture
def below(
    start: Start, workers: int, broker: ScriptedBroker, peers: list[AmqpPeer]
) -> tuple[RouterProcess, ScriptedInterior]:
    place: Section = ("connector", {"name": "up", "host": "127.0.0.1", "port": broker.port, "role": "edge"})
    router = start([*peer_edge("E"), place, *SETTINGS], workers)
    interior = ScriptedInterior(broker)
    peers.append(interior.peer)
    return router, interior


def attach(interior: ScriptedInterior, client: AmqpPeer, kind: str, address: str) -> Any:
    """Attach a client's link at E; the interior router answers the look-up: no link route."""
    link = client.receiver(address, 10, wait=False) if kind == "receiver" else client.sender(address, wait=False)
    interior.deny_lookup()
    link.wait_attached()
    return link


def test_copy_to_interior_lists_served_edge_routers(
    below: tuple[RouterProcess, ScriptedInterior], peers: list[AmqpPeer]
) -> None:
    router, interior = below
    other = InterEdgePeer(router.ports[PEERS])
    client = AmqpPeer.opened(router.port)
    peers += [other.peer, client]
    direct = other.attach_receiver("multicast/x")
    sender = attach(interior, client, "sender", "multicast/x")
    up = interior.peer.link_attached()
    assert isinstance(up, PeerReceiver)
    up.flow(10)
    interior.track("M0multicast/x", True)
    EdgeView(router).wait_consumers("M0multicast/x", 2)
    forged = message.annotations({SERVED: ["fedcba9876543210"], Symbol("of-client"): 1}) + message.message("x")
    for payload in (message.message("x"), forged):
        number = sender.send(payload)
        for receiver in (direct, up):
            receiver.next().settle()
        assert sender.outcome(number).name == "accepted"
    plain, with_others = (each.payload for each in up.deliveries)
    assert plain.hex() == (
        "005372c14504"
        "a313782d6f70742d736c756963652e736572766564"
        "c01301a110" + MARK.encode().hex() + "a30b782d6f70742d71642e746f"
        "a10b6d756c7469636173742f78"
        "005377a10178"
    )
    assert message.annotations_of(with_others) is not None
    assert message.annotation(with_others, "x-opt-sluice.served") == [MARK]
    assert message.annotation(with_others, "of-client") == 1


def test_copy_already_served_is_dropped(below: tuple[RouterProcess, ScriptedInterior], peers: list[AmqpPeer]) -> None:
    router, interior = below
    client = AmqpPeer.opened(router.port)
    peers.append(client)
    receiver = attach(interior, client, "receiver", "multicast/x")
    down = interior.peer.link_attached(answer=False)
    assert isinstance(down, PeerSender)
    remote: Any = interior.peer.remote_open
    own = dict(remote.properties.pairs)[Symbol("sluice.edge")]
    accept(down)
    down.wait_credit()
    bad: list[Any] = [[MARK], [], "text", [1, 2], [own + "x"], [own[:-1]], [[own]], None]
    for number, served in enumerate([[own], [MARK, own], *bad]):
        payload = message.annotations({SERVED: served}) + message.message(number)
        sent = down.send(payload)
        if number >= 2:
            delivery = receiver.next()
            assert message.body(delivery.payload) == number
            assert message.annotations_of(delivery.payload) is None, "clients do not see it"
            delivery.settle()
        assert down.outcome(sent).name == ("accepted" if number >= 2 else "released")
    anonymous = interior.downlink
    assert isinstance(anonymous, PeerSender)
    sent = anonymous.send(message.annotations({SERVED: [own]}) + message.message("x", to="multicast/x"))
    assert anonymous.outcome(sent).name == "released"
    client.barrier()
    assert len(receiver.deliveries) == len(bad)
