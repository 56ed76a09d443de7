"""Links refused because of the role of their connection, and mismatched roles (inter-router.md 2.8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.network.net import CONVERGE, InteropNetwork, Sluice, connector
from tests.peer import frames, message
from tests.peer.container import ScriptedBroker, accept
from tests.peer.links import PeerReceiver
from tests.peer.peer import AmqpPeer, PeerSession
from tests.peer.router19 import control
from tests.peer.types import Array, Described, Symbol

FORBIDDEN = ("qd:forbidden", "Connectivity to the node is forbidden")
ROLE = ("qd:connection-role", "Link attach forbidden on inter-router connection")
CONTROL, DATA = "qd.router", "qd.router-data"


def source(capability: str) -> Described:
    """Return a source with one capability as a single symbol."""
    return frames.source(capabilities=capability)


def target(capability: str) -> Described:
    """Return a target with one capability as a single symbol."""
    return frames.target(capabilities=capability)


@pytest.mark.parametrize("listener", ["", "rc"])
@pytest.mark.parametrize("capability", [CONTROL, DATA])
@pytest.mark.parametrize("receiver", [True, False], ids=["receiver", "sender"])
def test_router_link_of_client_is_refused(solo: Sluice, listener: str, capability: str, receiver: bool) -> None:
    peer = solo.client(listener)
    if receiver:
        attached = peer.receiver(source=source(capability), target=target(capability))
        assert attached.wait_detached() == FORBIDDEN
        assert attached.detached is not None
        assert attached.detached.closed
    else:
        sender = peer.session.sender(source=source(capability), target=target(capability), credit=False)
        assert sender.wait_detached() == FORBIDDEN
    assert peer.sender(None).credit > 0


def test_ordinary_link_on_inter_router_port_is_refused(solo: Sluice) -> None:
    peer = solo.client("ir")
    assert peer.session.sender("balanced/x", credit=False).wait_detached() == ROLE
    assert peer.session.sender(None, credit=False).wait_detached() == ROLE
    assert peer.receiver("balanced/x").wait_detached() == ROLE
    assert peer.receiver(dynamic=True).wait_detached() == ROLE
    assert peer.session.sender("$management", credit=False).wait_detached() == ROLE


def attach_control_links(peer: AmqpPeer) -> PeerSession:
    """Attach both control links on the default session."""
    session = peer.session
    receiver = session.receiver(source=source(CONTROL), target=target(CONTROL))
    receiver.flow(250)
    sender = session.sender(source=source(CONTROL), target=target(CONTROL))
    assert sender.credit == 250
    return session


def test_anonymous_sender_beside_control_links_is_accepted(solo: Sluice) -> None:
    peer = solo.client("ir", container_id="anonymous-sender")
    attach_control_links(peer)
    sender = peer.begin().sender(None)
    assert sender.credit == 250
    receiver = solo.client().receiver("closest/through-anonymous", credit=1)
    sender.send(message.message("x", to="closest/through-anonymous"), settled=True)
    assert message.body(receiver.next().payload) == "x"


def test_ordinary_link_beside_control_links_is_looked_up(solo: Sluice) -> None:
    peer = solo.client("ir", container_id="lookup")
    attach_control_links(peer)
    link = peer.begin().sender("nothing/to/route", credit=False)
    assert link.wait_detached() == ("qd:no-route-to-dest", "No route to the destination node")


def test_capability_in_array_makes_no_router_link(solo: Sluice) -> None:
    peer = solo.client("ir", container_id="array")
    symbols = Array([Symbol(CONTROL)])
    receiver = peer.receiver(source=frames.source(capabilities=symbols), target=frames.target(capabilities=symbols))
    assert receiver.wait_detached() == ROLE


@pytest.fixture
def normal_listener() -> Iterator[ScriptedBroker]:
    """Container that behaves like a listener with role normal."""
    broker = ScriptedBroker()
    yield broker
    broker.close()


def test_connector_refused_by_peer_makes_no_neighbour(network: InteropNetwork, normal_listener: ScriptedBroker) -> None:
    """The peer refuses all router links, as a 1.19 listener of role normal does."""
    sluice = network.sluice("S", [connector(normal_listener.port)])
    container = normal_listener.serve(container_id="X", timeout=CONVERGE)
    for _ in range(11):
        container.session_begun()
    for _ in range(22):
        link = container.link_attached(answer=False)
        accept(link, **{"source" if link.remote and link.remote.role else "target": None})
        link.send_detach(error=frames.error(*FORBIDDEN))
    container.until(lambda: len([one for one in container.frames if one.name == "detach"]) == 22, "all are answered")
    other = network.router19("Y")
    other.connect(sluice.ports["ir"])
    other.wait_neighbour("S")
    rows = sluice.rows("router.node")
    assert "X" not in {row["id"] for row in rows}


def test_reattached_control_link_works_again(network: InteropNetwork) -> None:
    """A control link that is detached and attached again on the same connection works again."""
    sluice = network.sluice("S")
    peer = sluice.client("ir", container_id="P")
    session = attach_control_links(peer)
    first = session.links[0]
    assert isinstance(first, PeerReceiver)
    assert control.read(first.next(CONVERGE).payload).opcode == "HELLO"
    first.detach()
    second = session.receiver(source=source(CONTROL), target=target(CONTROL))
    second.flow(250)
    assert control.read(second.next(CONVERGE).payload).opcode == "HELLO"
