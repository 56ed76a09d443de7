"""First messages of new producers at edge router E reach all remote consumers in every kind of edge network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peer import message
from tests.peer.frames import source
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.system.edges import EDGES, PEERS, EdgeNetwork, edge, peer_edge, with_edges
from tests.system.networks import CONVERGENCE, connector
from tests.system.router import SETTINGS, RouterProcess, Section, poll

WORKER_COUNTS = (1, 3)
FALLBACK: Section = ("address", {"prefix": "fb", "enableFallback": True})
#: Number of messages that a producer sends as soon as it has credit.
BURST = 30
#: Number of producers of new addresses.
ROUNDS = 5


@pytest.fixture(scope="module", params=["one uplink", "all uplinks", "several connections", "inter-edge"])
def kind(request: pytest.FixtureRequest) -> str:
    """Return how E is connected."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def _network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> Iterator[EdgeNetwork]:
    created = EdgeNetwork()

    def start(name: str, sections: list[Section]) -> RouterProcess:
        router = created.routers[name] = RouterProcess(
            tmp_path_factory.mktemp(f"router{name}-"), sections, request.param
        )
        router.start()
        return router

    try:
        a = start("A", [*with_edges("A"), *SETTINGS, FALLBACK])
        b = start("B", [*with_edges("B", a.ports["net"]), *SETTINGS, FALLBACK])
        if kind == "all uplinks":
            start("E", [*edge("E", a, b, uplinks="all"), *SETTINGS, FALLBACK])
        elif kind == "several connections":
            more = connector(a.ports[EDGES], role="edge", parallelConnections=3)
            start("E", [*edge("E"), more, *SETTINGS, FALLBACK])
        elif kind == "inter-edge":
            f = start("F", [*peer_edge("F", b), *SETTINGS, FALLBACK])
            start("E", [*peer_edge("E", a, to=[f.ports[PEERS]]), *SETTINGS, FALLBACK])
            created.view("E").wait_peers("F")
        else:
            start("E", [*edge("E", a), *SETTINGS, FALLBACK])
        created.wait_reached("E", *({"F"} & created.routers.keys()))
        yield created
    finally:
        created.stop()


@pytest.fixture
def network(_network: EdgeNetwork, request: pytest.FixtureRequest) -> Iterator[EdgeNetwork]:
    """Yield interior routers A and B, edge router E, and in one kind of network F, shared by this module."""
    request.node.routers = list(_network.routers.values())
    yield _network
    _network.drop()


def send_burst(client: AmqpPeer, address: str) -> PeerSender:
    """Send a burst from a new producer as soon as it has credit; all messages are accepted."""
    sender = client.sender(address)
    numbers = [sender.send(message.message(f"m{number}")) for number in range(BURST)]
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    return sender


def consume(created: EdgeNetwork, place: str, address: str, capability: str | None = None) -> PeerReceiver:
    """Attach a consumer of settled deliveries with credit for a whole burst."""
    given = {} if capability is None else {"source": source(address, capabilities=capability)}
    return created.connect(place).receiver(address, BURST, snd_settle_mode=1, **given)


def wait_known(created: EdgeNetwork, key: str) -> None:
    """Wait until A knows a consumer at B."""

    def there() -> bool:
        row = created.view("A").address(key)
        return row is not None and bool(row["remoteCount"])

    poll(there, f"A knows of a consumer of {key} at B", CONVERGENCE)


def bodies(receiver: PeerReceiver) -> list[object]:
    receiver.peer.until(lambda: len(receiver.deliveries) >= BURST, f"{BURST} messages")
    return [message.body(delivery.payload) for delivery in receiver.deliveries]


def test_first_multicast_messages_reach_each_consumer(network: EdgeNetwork) -> None:
    places = [place for place in ("E", "F", "B") if place in network.routers]
    receivers: dict[str, list[PeerReceiver]] = {}
    for _ in range(ROUNDS):
        address = network.fresh("multicast.")
        receivers[address] = [consume(network, place, address) for place in places]
    for address, there in receivers.items():
        wait_known(network, f"M0{address}")
        if "F" in network.routers:
            network.view("E").wait_consumers(f"M0{address}", 2)
        send_burst(network.connect("E"), address)
        for receiver in there:
            assert bodies(receiver) == [f"m{number}" for number in range(BURST)]


def test_local_fallback_yields_to_remote_consumer(network: EdgeNetwork) -> None:
    receivers: dict[str, tuple[PeerReceiver, PeerReceiver]] = {}
    for _ in range(ROUNDS):
        address = network.fresh("fb.")
        receivers[address] = consume(network, "E", address, "qd.fallback"), consume(network, "B", address)
    for address, (fallback, primary) in receivers.items():
        wait_known(network, f"M0{address}")
        send_burst(network.connect("E"), address)
        assert bodies(primary) == [f"m{number}" for number in range(BURST)]
        assert not fallback.deliveries
