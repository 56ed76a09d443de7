"""Frames of an inter-router connection, made by a connector and by a listener (inter-router.md 2)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.network.net import CONVERGE, InteropNetwork, Sluice, connector
from tests.peer import frames
from tests.peer.frames import Frame
from tests.peer.peer import AmqpPeer
from tests.peer.router19.connection import InterRouterConnection
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19
from tests.peer.types import Array, Int, Symbol, UByte
from tests.system.router import listener

LISTENER_COST, CONNECTOR_COST = 5, 3
DATA, CONTROL = "qd.router-data", "qd.router"


class ObservedConnections:
    """Connections of router S: a connector to R, and a listener to which L has connected."""

    def __init__(self, network: InteropNetwork) -> None:
        self.network = network
        self.world = network.world
        self.right: Router19 = network.router19("R")
        self.left: Router19 = network.router19("L")
        sections = [
            listener(
                "costly",
                role="inter-router",
                cost=LISTENER_COST,
                failoverUrls="amqp://h1:1111, amqps://h2:2222, h3:3333",
            )
        ]
        self.s: Sluice = network.sluice("S", [*sections, connector(self.right.listen(), CONNECTOR_COST)])
        self.incoming = self.left.connect(self.s.ports["costly"], CONNECTOR_COST)
        self.outgoing: InterRouterConnection = self.world.wait(lambda: self.right.connections, "S has connected")[0]
        for connection in (self.outgoing, self.incoming):
            self.world.wait(functools.partial(is_complete, connection), "all links are attached")

    def side(self, name: str) -> InterRouterConnection:
        """Return the connection on which S is the connector or the listener."""
        return self.outgoing if name == "connector" else self.incoming


def is_complete(connection: InterRouterConnection) -> bool:
    """True if all links are attached and have credit."""
    out = [*connection.data_out, connection.control_out]
    return len(out) == len(connection.data_in) + 1 == 11 and all(link is not None and link.credit for link in out)


@pytest.fixture(scope="module")
def observed(router19_loop: Router19Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedConnections]:
    """Connections of a router with one worker: the number makes no difference here."""
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("wire"), 1)
    try:
        yield ObservedConnections(network)
    finally:
        network.stop()


def sent_frames(connection: InterRouterConnection, name: str) -> list[Frame]:
    """Return the frames with a performative that S has sent, in order."""
    with connection.router.world.lock:
        return [frame for frame, _octets in connection.frames if frame.name == name]


@pytest.mark.parametrize("side", ["connector", "listener"])
def test_open_frame_has_router_properties(observed: ObservedConnections, side: str) -> None:
    opened = sent_frames(observed.side(side), "open")[0]
    assert opened.container_id == "S"
    assert opened.hostname == ("127.0.0.1" if side == "connector" else None)
    assert (opened.max_frame_size, opened.channel_max, opened.idle_time_out) == (16384, 32767, 8000)
    assert (opened.outgoing_locales, opened.incoming_locales) == (None, None)
    for capabilities in (opened.offered_capabilities, opened.desired_capabilities):
        assert isinstance(capabilities, Array)
        assert capabilities.items[:2] == [Symbol("ANONYMOUS-RELAY"), Symbol("qd.streaming-links")]
    pairs = opened.properties.pairs
    assert all(isinstance(key, Symbol) for key, _value in pairs)
    names = [str(key) for key, _value in pairs]
    expected = ["product", "version", "qd.conn-id", "qd.inter-router-cost", "qd.annotations-version"]
    assert names[:5] == expected
    values = opened.properties
    assert all(isinstance(values[key], Int) for key in expected[2:])
    assert values["qd.inter-router-cost"] == (CONNECTOR_COST if side == "connector" else LISTENER_COST)
    assert values["qd.annotations-version"] == 1
    assert ("failover-server-list" in names) == (side == "listener")


def test_failover_list_is_offered(observed: ObservedConnections) -> None:
    servers = sent_frames(observed.incoming, "open")[0].properties["failover-server-list"]
    assert [dict(one) for one in servers] == [
        {"network-host": "h1", "port": "1111", "scheme": "amqp"},
        {"network-host": "h2", "port": "2222", "scheme": "amqps"},
        {"network-host": "h3", "port": "3333"},
    ]
    assert all(isinstance(key, Symbol) and type(value) is str for one in servers for key, value in one.pairs)


def test_connection_cost_is_higher_of_both(observed: ObservedConnections) -> None:
    observed.world.wait(
        lambda: (node := observed.left.engine.nodes.get("S")) and {"L", "R"} <= set(node.peers),
        "S has sent its link state",
        CONVERGE,
    )
    assert observed.left.engine.nodes["S"].peers == {"L": LISTENER_COST, "R": CONNECTOR_COST}
    assert observed.left.engine.peers == {"S": LISTENER_COST}
    assert observed.right.engine.peers == {"S": CONNECTOR_COST}


def test_connector_authenticates_as_anonymous(observed: ObservedConnections) -> None:
    init = sent_frames(observed.outgoing, "sasl-init")[0]
    assert init.mechanism == "ANONYMOUS"
    assert init.initial_response.startswith(b"anonymous@")


def test_connector_begins_sessions_before_attach(observed: ObservedConnections) -> None:
    order = [
        (frame.name, frame.channel) for frame, _octets in observed.outgoing.frames if frame.name in ("begin", "attach")
    ]
    assert order[:11] == [("begin", channel) for channel in range(11)]
    assert {name for name, _channel in order[11:33]} == {"attach"}
    for begin in sent_frames(observed.outgoing, "begin")[:11]:
        assert (begin.remote_channel, begin.next_outgoing_id) == (None, 0)
        assert (begin.incoming_window, begin.outgoing_window) == (2147483647, 2147483647)
        assert (begin.handle_max, begin.offered_capabilities, begin.properties) == (None, None, None)


def test_connector_attaches_control_then_data_links(observed: ObservedConnections) -> None:
    found = sent_frames(observed.outgoing, "attach")[:22]
    assert [(one.channel, one.handle, one.role) for one in found] == [
        (channel, handle, handle == 0) for channel in range(11) for handle in (0, 1)
    ]
    assert len({one.fields["name"] for one in found}) == 22
    for one in found:
        assert re.fullmatch(r"qdlink\.[a-zA-Z0-9+_]{15}", one.fields["name"])
        check_fields(one, "link-detach")


def check_fields(attach: Frame, expiry: str) -> None:
    """Assert the fields that all attach frames of router links have."""
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (UByte(2), UByte(0))
    assert (attach.initial_delivery_count, attach.max_message_size) == (0, 0)
    assert attach.unsettled is attach.incomplete_unsettled is attach.properties is None
    assert attach.offered_capabilities is attach.desired_capabilities is None
    for terminus in (attach.source, attach.target):
        fields = frames.terminus(terminus)
        assert fields.pop("capabilities") == (CONTROL if attach.channel == 0 else DATA)
        assert fields == {"durable": 0, "expiry_policy": expiry, "timeout": 0, "dynamic": False}
        assert isinstance(frames.terminus(terminus)["capabilities"], Symbol)


def test_listener_answers_each_session_and_link(observed: ObservedConnections) -> None:
    begins = sent_frames(observed.incoming, "begin")[:11]
    assert [(begin.channel, begin.remote_channel) for begin in begins] == [(one, one) for one in range(11)]
    for begin in begins:
        assert (begin.incoming_window, begin.outgoing_window) == (2147483647, 2147483647)
    asked = {link.name: link for session in observed.incoming.sessions.values() for link in session.links}
    found = sent_frames(observed.incoming, "attach")[:22]
    assert [(one.channel, one.handle, one.role) for one in found] == [
        (channel, handle, handle == 1) for channel in range(11) for handle in (0, 1)
    ]
    for one in found:
        assert asked[one.fields["name"]].session.channel == one.channel
        check_fields(one, "session-end")


@pytest.mark.parametrize("side", ["connector", "listener"])
def test_receivers_grant_link_capacity(observed: ObservedConnections, side: str) -> None:
    connection = observed.side(side)
    links = [*connection.data_out[:10], connection.control_out]

    def granted() -> bool:
        return all(link is not None and link.credit == 250 for link in links)

    observed.world.wait(granted, "250 credits on every link, whatever has been sent")
    first: dict[tuple[int, int], int] = {}
    for flow in sent_frames(connection, "flow"):
        if flow.handle is not None:
            first.setdefault((flow.channel, int(flow.handle)), int(flow.link_credit))
    assert len(first) >= 11
    assert set(first.values()) == {250}


@pytest.mark.parametrize("side", ["connector", "listener"])
def test_control_messages_are_presettled(observed: ObservedConnections, side: str) -> None:

    def sent() -> list[Frame]:
        return [frame for frame in sent_frames(observed.side(side), "transfer") if frame.channel == 0]

    observed.world.wait(lambda: len(sent()) > 1, "control messages", CONVERGE)
    transfers = sent()
    assert all(frame.settled and not frame.more for frame in transfers)
    assert all(len(frame.delivery_tag) == 8 and frame.message_format == 0 for frame in transfers)
    tags = [int.from_bytes(frame.delivery_tag, "little") for frame in transfers]
    assert tags == sorted(set(tags))


def test_empty_frames_come_within_idle_time(observed: ObservedConnections) -> None:
    with AmqpPeer.opened(observed.s.ports["ir"], container_id="idle", idle_time_out=1000) as peer:
        peer.until(lambda: len([one for one, _at in peer.arrivals if one.name == "heartbeat"]) > 1, "empty frames", 5)


def test_listener_accepts_any_channels_and_handles(observed: ObservedConnections) -> None:
    peer = AmqpPeer.opened(observed.s.ports["ir"], container_id="odd")
    try:
        session = peer.begin(channel=77)
        receiver = session.receiver(
            source=frames.source(capabilities=CONTROL), target=capability_target(CONTROL), handle=9
        )
        sender = session.sender(
            source=frames.source(capabilities=CONTROL), target=capability_target(CONTROL), handle=31
        )
        receiver.flow(250)
        assert sender.wait_credit(250) == 250
        hello = receiver.next().payload
        assert b"HELLO" in hello
    finally:
        peer.drop()


def capability_target(capability: str) -> Any:
    """Return a target with a capability as a single symbol."""
    return frames.target(capabilities=capability)
