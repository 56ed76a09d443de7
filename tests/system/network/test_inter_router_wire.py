"""Frames of inter-router connections: open, sessions, links of both sides (inter-router.md 2.1, 2.2, 2.6, 16.1, 16.2;
inter-router-protocol.md 2.1, 2.3)."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peer import frames
from tests.peer.container import Container, ScriptedBroker, refuse
from tests.peer.frames import FRAME_HEADER
from tests.peer.management import Management
from tests.peer.neighbour import CAPABILITIES, CONTROL, DATA, RouterPeer, answer, properties, terminus
from tests.peer.peer import AmqpPeer
from tests.peer.types import Int, Symbol
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, listener, poll

pytestmark = pytest.mark.adversarial

# Examples of inter-router.md 16.2. Link names are random.
BEGIN = "005311c00d044043707fffffff707fffffff"
BEGUN = "005311c00f0460{channel}43707fffffff707fffffff"
VECTORS = {
    (CONTROL, 0): (
        "005312c0700ea11671646c696e6b2e4c675445706865516f3869466f4d31434150025000005328c0220b4043a30b6c69"
        "6e6b2d64657461636843424040404040a30971642e726f75746572005329c01e074043a30b6c696e6b2d646574616368"
        "434240a30971642e726f7574657240404344404040"
    ),
    (CONTROL, 1): (
        "005312c0710ea11671646c696e6b2e6b62386e59345165664a4a684c307152014250025000005328c0220b4043a30b6c"
        "696e6b2d64657461636843424040404040a30971642e726f75746572005329c01e074043a30b6c696e6b2d6465746163"
        "68434240a30971642e726f7574657240404344404040"
    ),
    (DATA, 0): (
        "005312c07a0ea11671646c696e6b2e48475f5f2b49617747494d75465734434150025000005328c0270b4043a30b6c69"
        "6e6b2d64657461636843424040404040a30e71642e726f757465722d64617461005329c023074043a30b6c696e6b2d64"
        "6574616368434240a30e71642e726f757465722d6461746140404344404040"
    ),
}
ANSWER = (
    "005312c0700ea11671646c696e6b2e4c675445706865516f3869466f4d31434250025000005328c0220b4043a30b7365"
    "7373696f6e2d656e6443424040404040a30971642e726f75746572005329c01e074043a30b73657373696f6e2d656e64"
    "434240a30971642e726f7574657240404344404040"
)
NAME = re.compile(rb"qdlink\.[a-zA-Z0-9+_]{15}")


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.close()


@pytest.fixture
def dialled(start: Start, workers: int, broker: ScriptedBroker) -> Callable[..., RouterProcess]:
    """Return a function that starts router A with a connector to the broker; keywords are connector attributes."""

    def begin(**attributes: Any) -> RouterProcess:
        connector = ("connector", {"name": "r", "host": "127.0.0.1", "port": broker.port, "role": "inter-router"})
        connector[1].update(attributes)
        return start([("router", {"mode": "interior", "id": "A"}), connector, listener()], workers)

    return begin


@pytest.fixture
def listening(start: Start, workers: int) -> Callable[..., RouterProcess]:
    """Return a function that starts router B with an inter-router listener `net`; keywords are its attributes."""

    def begin(**attributes: Any) -> RouterProcess:
        sections = [("router", {"mode": "interior", "id": "B"}), listener(), listener("net", role="inter-router")]
        sections[2][1].update(attributes)
        return start(sections, workers)

    return begin


def serve(broker: ScriptedBroker, **fields: Any) -> Container:
    """Accept the connector as a 1.19 router named P."""
    return broker.serve(container_id="P", **{"properties": properties(), **fields})


def next_frame_body(wire: AmqpPeer) -> tuple[int, bytes]:
    """Return channel and octets behind the header of the next frame that is not a heartbeat."""
    while True:
        size, doff, _, channel = struct.unpack("!IBBH", wire.read_octets(FRAME_HEADER))
        octets = wire.read_octets(size - FRAME_HEADER)[4 * doff - FRAME_HEADER :]
        if octets:
            return channel, octets


def mask_name(octets: bytes) -> bytes:
    assert len(NAME.findall(octets)) == 1
    return NAME.sub(b"qdlink.!", octets)


def vector(capability: str, handle: int) -> bytes:
    """Return the expected attach of a connector, with its link name masked."""
    if (capability, handle) in VECTORS:
        return mask_name(bytes.fromhex(VECTORS[capability, handle]))
    octets = bytearray(mask_name(bytes.fromhex(VECTORS[capability, 0])))  # the sender of a data pair
    at = octets.index(b"qdlink.!") + len(b"qdlink.!")
    octets[at : at + 2] = b"\x52\x01\x42"
    octets[4] += 1
    return bytes(octets)


# --- the connector side -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [1, 3, 300])
def test_connector_open_has_expected_fields(
    dialled: Callable[..., RouterProcess], broker: ScriptedBroker, cost: int
) -> None:
    dialled(cost=cost)
    container = serve(broker)
    said = container.remote_open
    assert said is not None
    assert (said.container_id, said.hostname) == ("A", "127.0.0.1")
    assert (said.max_frame_size, said.channel_max, said.idle_time_out) == (16384, 32767, 8000)
    assert [str(each) for each in said.offered_capabilities] == list(CAPABILITIES)
    assert [str(each) for each in said.desired_capabilities] == list(CAPABILITIES)
    costs = [("qd.inter-router-cost", cost)] if cost > 1 else []
    found = [(str(key), value) for key, value in said.properties.items()]
    assert [key for key, _ in found[:3]] == ["product", "version", "qd.conn-id"]
    assert found[3:] == [*costs, ("qd.annotations-version", 1), ("sluice.bundle", 2)]
    assert all(isinstance(key, Symbol) for key, _ in said.properties.items())
    assert all(type(value) is Int for _, value in list(said.properties.items())[2:])


def test_connector_begins_and_attaches_match_vectors(
    dialled: Callable[..., RouterProcess], broker: ScriptedBroker
) -> None:
    dialled()
    container = serve(broker)
    for channel in range(11):
        assert next_frame_body(container) == (channel, bytes.fromhex(BEGIN))
    names = set()
    for channel in range(11):
        for handle in (0, 1):
            at, octets = next_frame_body(container)
            names.update(NAME.findall(octets))
            assert (at, mask_name(octets)) == (channel, vector(DATA if channel else CONTROL, handle))
    assert len(names) == 22


def test_connector_links_have_expected_rows(dialled: Callable[..., RouterProcess], broker: ScriptedBroker) -> None:
    router = dialled()
    container = serve(broker)
    links = RouterPeer.served(container)
    for sender in (links.control_out, *links.outs):
        assert sender is not None
        assert sender.wait_credit(250) == 250
    rows = rows_of(router)
    assert [row["linkType"] for row in rows] == ["router-control"] * 2 + ["inter-router"] * 20
    assert [row["linkDir"] for row in rows] == ["in", "out"] * 11
    assert [row["priority"] for row in rows] == [9, 9, *(p for p in range(10) for _ in range(2))]
    assert [row["owningAddr"] for row in rows] == [None, "Lqdhello", *[None] * 20]
    assert {(row["capacity"], row["operStatus"], row["ingressHistogram"]) for row in rows} == {(250, "up", None)}


def rows_of(router: RouterProcess, count: int = 22) -> list[dict[str, Any]]:
    """Wait for `count` links between routers, and return their rows."""
    with AmqpPeer.opened(router.port) as peer:
        management = Management(peer)

        def found() -> tuple[list[dict[str, Any]]] | None:
            rows = [row for row in management.query("router.link") if row["linkType"] != "endpoint"]
            return (rows,) if len(rows) == count else None

        rows: list[dict[str, Any]] = poll(found, f"{count} links between routers")[0]
        return rows


def test_link_priorities_follow_order_of_replies(dialled: Callable[..., RouterProcess], broker: ScriptedBroker) -> None:
    router = dialled()
    container = serve(broker)
    for _ in range(11):
        container.session_begun()
    links = [container.link_attached(answer=False) for _ in range(22)]
    for link in [*links[:2], *reversed(links[2:])]:
        answer(link)
    rows = rows_of(router)
    by_name = {row["linkName"]: row["priority"] for row in rows}
    assert [by_name[link.name] for link in links[2:]] == [p for p in reversed(range(10)) for _ in range(2)]


def test_peer_with_fewer_channels_gets_fewer_sessions(
    dialled: Callable[..., RouterProcess], broker: ScriptedBroker
) -> None:
    """A router of 1.19 begins sessions of its own, and fails without a channel for them: two are left to it."""
    router = dialled()
    container = serve(broker, channel_max=4)
    links = RouterPeer.served(container, sessions=3)
    channels = [link.session.remote_channel for link in links.ins]
    assert channels == [1, *[2] * 9]
    assert [row["priority"] for row in rows_of(router)][2:] == [p for p in range(10) for _ in range(2)]


def test_peer_refusing_router_links_is_logged(dialled: Callable[..., RouterProcess], broker: ScriptedBroker) -> None:
    router = dialled()
    container = broker.serve(container_id="P")
    for _ in range(11):
        container.session_begun()
    for _ in range(22):
        refuse(container.link_attached(answer=False), "qd:forbidden", "Connectivity to the node is forbidden")
    router.wait_log("ROUTER .warning. .*The peer refuses inter-router links: qd:forbidden Connectivity to the node")
    assert rows_of(router, 0) == []


# --- the listener side --------------------------------------------------------------------------------------------


def test_listener_open_has_expected_fields(listening: Callable[..., RouterProcess], workers: int) -> None:
    router = listening(cost=5, failoverUrls="amqp://h1:1111,h2:2222")
    peer = AmqpPeer.opened(router.ports["net"], properties=properties(3))
    said = peer.remote_open
    assert said is not None
    assert (said.container_id, said.hostname) == ("B", None)
    found = {str(key): value for key, value in said.properties.items()}
    assert list(found)[2:] == [
        "qd.conn-id", "qd.inter-router-cost", "qd.annotations-version", "failover-server-list", "sluice.bundle",
    ]  # fmt: skip
    assert (found["qd.inter-router-cost"], found["qd.annotations-version"]) == (5, 1)
    peer.drop()


def test_listener_replies_match_vectors(listening: Callable[..., RouterProcess]) -> None:
    router = listening()
    with AmqpPeer.opened(router.ports["net"], container_id="P", properties=properties()) as peer:
        peer.raw(frames.frame_octets(bytes.fromhex(BEGIN), 0))
        assert next_frame_body(peer) == (0, bytes.fromhex(BEGUN.format(channel="0000")))
        peer.raw(frames.frame_octets(bytes.fromhex(VECTORS[CONTROL, 0]), 0))
        assert next_frame_body(peer) == (0, bytes.fromhex(ANSWER))
        peer.raw(frames.frame_octets(bytes.fromhex(VECTORS[CONTROL, 1]), 0))
        expected = bytes.fromhex(VECTORS[CONTROL, 1]).replace(b"link-detach", b"session-end")
        expected = expected.replace(b"\x52\x01\x42", b"\x52\x01\x41", 1)
        assert next_frame_body(peer) == (0, expected)
        flow = frames.parse_frame(frames.frame_octets(next_frame_body(peer)[1]))
        assert (flow.name, flow.handle, flow.link_credit) == ("flow", 1, 250)
        peer.raw(frames.frame_octets(bytes.fromhex(BEGIN), 7))
        assert next_frame_body(peer) == (7, bytes.fromhex(BEGUN.format(channel="0007")))


def test_termini_with_address_are_echoed_unchanged(listening: Callable[..., RouterProcess]) -> None:
    router = listening()
    with AmqpPeer.opened(router.ports["net"], properties=properties()) as peer:
        source = frames.source("x", expiry_policy="link-detach", capabilities=Symbol(CONTROL))
        link = peer.receiver(None, source=source, target=terminus(frames.target, CONTROL))
        assert (link.source["address"], str(link.source["expiry_policy"])) == ("x", "link-detach")
        assert str(link.target["expiry_policy"]) == "session-end"
        assert link.target["capabilities"] == CONTROL


def test_listener_links_have_expected_rows(listening: Callable[..., RouterProcess]) -> None:
    router = listening()
    links = RouterPeer.connected(router.ports["net"])
    assert {sender.credit for sender in links.outs} == {250}
    rows = rows_of(router)
    assert [row["linkDir"] for row in rows] == ["out", "in"] * 11
    assert [row["priority"] for row in rows] == [9, 9, *(p for p in range(10) for _ in range(2))]
    assert [row["owningAddr"] for row in rows] == ["Lqdhello", *[None] * 21]
    session = links.peer.sessions[-1]
    links.sender(session, DATA)
    links.receiver(session, DATA)
    extra = rows_of(router, 24)[22:]
    assert [(row["linkType"], row["linkDir"]) for row in extra] == [("inter-router", "in"), ("inter-router", "out")]
    links.peer.drop()
    rows_of(router, 0)


def test_data_links_get_priorities_in_order(listening: Callable[..., RouterProcess]) -> None:
    router = listening()
    links = RouterPeer.connected(router.ports["net"], links=3)
    assert [row["priority"] for row in rows_of(router, 8)][2:] == [0, 0, 1, 1, 2, 2]
    links.attach_data()
    assert [row["priority"] for row in rows_of(router, 10)][8:] == [3, 3]
    links.peer.drop()


# --- refusals -----------------------------------------------------------------------------------------------------

WRONG_ROLE = ("qd:connection-role", "Link attach forbidden on inter-router connection")
FORBIDDEN = ("qd:forbidden", "Connectivity to the node is forbidden")


@pytest.mark.parametrize("capability", [CONTROL, DATA])
def test_router_links_on_client_connection_are_refused(
    listening: Callable[..., RouterProcess], capability: str
) -> None:
    router = listening()
    links = RouterPeer(AmqpPeer.opened(router.port))
    session = links.peer.begin()
    refused = [
        links.receiver(session, capability, credit=0),
        links.sender(session, capability, credit=False),
    ]
    for link in refused:
        assert link.wait_detached() == FORBIDDEN
        assert link.detached is not None
        assert link.detached.closed
    links.peer.drop()


def test_client_links_on_inter_router_connection_are_refused(listening: Callable[..., RouterProcess]) -> None:
    router = listening()
    with AmqpPeer.opened(router.ports["net"]) as peer:
        refused = [
            peer.sender("a", credit=False),
            peer.receiver("a"),
            peer.sender(None, credit=False),
            peer.receiver(None, source=frames.source("a", capabilities=[CONTROL])),  # an array: not a control link
        ]
        for link in refused:
            assert link.wait_detached() == WRONG_ROLE


def test_anonymous_link_beside_control_links_is_accepted(listening: Callable[..., RouterProcess]) -> None:
    router = listening()
    links = RouterPeer.connected(router.ports["net"], links=1)
    assert links.peer.begin().sender(None).wait_credit(250) == 250
    row = next(row for row in all_links(router) if row["linkType"] == "endpoint" and row["linkDir"] == "in"
               and row["owningAddr"] is None)  # fmt: skip
    assert row["priority"] == 4
    links.peer.drop()


def all_links(router: RouterProcess) -> list[dict[str, Any]]:
    with AmqpPeer.opened(router.port) as peer:
        rows: list[dict[str, Any]] = Management(peer).query("router.link")
        return rows


def test_second_control_link_is_refused(listening: Callable[..., RouterProcess]) -> None:
    router = listening()
    links = RouterPeer.connected(router.ports["net"], links=1)
    second = links.receiver(links.peer.sessions[0], CONTROL, credit=0)
    assert second.wait_detached() == ("amqp:resource-limit-exceeded", "too many inter-router links")
    assert links.control_in is not None
    assert links.control_in.detached is None
    links.control_in.detach()
    again = links.receiver(links.peer.sessions[0], CONTROL)
    assert again.detached is None
    assert len(rows_of(router, 4)) == 4
    links.peer.drop()


# --- configuration ------------------------------------------------------------------------------------------------


def test_connection_row_shows_inter_router_role(listening: Callable[..., RouterProcess]) -> None:
    router = listening(multiTenant=True)
    links = RouterPeer.connected(router.ports["net"], name="far", links=1, hostname="tenant")
    with AmqpPeer.opened(router.port) as peer:
        row = next(row for row in Management(peer).query("connection") if row["role"] != "normal")
    wanted = {
        "role": "inter-router",
        "container": "far",
        "dir": "in",
        "tenant": None,
        "sasl": "ANONYMOUS",
        "user": "anonymous",
    }
    assert {key: row[key] for key in wanted} == wanted
    assert row["properties"]["qd.annotations-version"] == 1
    links.peer.drop()


def test_link_priorities_agree_at_both_ends(start: Start, workers: int) -> None:
    net = listener("net", role="inter-router", cost=3)
    listens = start([("router", {"mode": "interior", "id": "B"}), listener(), net], workers)
    connector = ("connector", {"host": "127.0.0.1", "port": listens.ports["net"], "role": "inter-router", "cost": 5})
    dials = start([("router", {"mode": "interior", "id": "A"}), connector, listener()], workers)
    ours, theirs = rows_of(dials), rows_of(listens)
    assert {row["linkName"]: row["priority"] for row in ours} == {row["linkName"]: row["priority"] for row in theirs}
