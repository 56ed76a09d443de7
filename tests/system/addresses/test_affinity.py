"""Placement of a reconnecting client on the worker with the other ends of its addresses (decision 0043)."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.peer import message
from tests.peer.frames import AMQP_HEADER, Performative, frame_octets, source, target
from tests.peer.management import Management
from tests.peer.peer import WIDE, AmqpPeer
from tests.peer.types import Symbol
from tests.system.fixtures import Start, pass_one
from tests.system.http import scrape
from tests.system.router import SETTINGS, RouterProcess, listener, poll

WORKERS = 2
ADDRESS = "closest/a"


class AffinityClients:
    """Clients of a router by their container ids."""

    def __init__(self, router: RouterProcess) -> None:
        self.router = router
        self.management = Management(AmqpPeer.opened(router.port, container_id="manager"))
        self.peers: dict[str, AmqpPeer] = {}

    def connect(self, name: str, port: str = "", **fields: Any) -> AmqpPeer:
        self.peers[name] = AmqpPeer.opened(self.router.ports[port], container_id=name, **fields)
        return self.peers[name]

    def worker(self, name: str) -> int:
        """Return the pid of the worker that owns a client's connection."""
        return self.router.worker_of(int(self.peers[name].socket.getsockname()[1]))

    def share_worker(self) -> bool:
        """Return whether all clients are on one worker."""
        return len({self.worker(name) for name in self.peers}) == 1

    def wait_shared_worker(self) -> None:
        """Wait until all clients are on one worker.

        A worker that hands a connection over may still hold it when the other worker answers.
        """
        poll(self.share_worker, "all are on one worker")

    def disconnect_all(self) -> None:
        """Close all clients, and wait until the router has closed their connections."""
        for peer in self.peers.values():
            peer.close()
            peer.drop()
        self.peers.clear()
        poll(lambda: len(self.management.query("connection")) == 1, "all connections are closed")

    def connect_pair_once(self, port: str = "", **fields: Any) -> None:
        """Connect a producer and a consumer for the first time, on two workers, and disconnect them."""
        producer, consumer = self.connect("producer", port, **fields), self.connect("consumer", port, **fields)
        assert not self.share_worker()
        consumer.receiver(ADDRESS, 1)
        producer.sender(ADDRESS)
        self.disconnect_all()

    @property
    def moved(self) -> int:
        return int(self.management.query("router", "connectionsMoved")[0]["connectionsMoved"])


@pytest.fixture
def clients(start: Start) -> Iterator[AffinityClients]:
    web = listener("web", http=True, metrics=True)
    found = AffinityClients(start([listener(), listener("second"), web, *SETTINGS], WORKERS))
    yield found
    for peer in found.peers.values():
        peer.drop()


@pytest.mark.parametrize("sasl", [False, True])
def test_reconnecting_pair_shares_worker(clients: AffinityClients, sasl: bool) -> None:
    clients.connect_pair_once(sasl=sasl)
    for order in (("producer", "consumer"), ("consumer", "producer")):
        for name in order:
            clients.connect(name, sasl=sasl)
        clients.wait_shared_worker()
        receiver = clients.peers["consumer"].receiver(ADDRESS, 10)
        pass_one(clients.peers["producer"].sender(ADDRESS), receiver)
        clients.disconnect_all()
    assert clients.moved == 2
    page = scrape(clients.router.ports["web"])
    assert page.sum("sluice_connections_moved_total") == 2
    assert page.sum("sluice_containers_remembered") == 2


def test_moved_connection_ends_no_other_connection(clients: AffinityClients) -> None:
    """A moved connection's descriptor is reused by a connection that may still wait for the reply to its open."""
    clients.connect_pair_once()
    clients.connect("producer")

    def connect_and_reset() -> int:
        for _ in range(40):
            AmqpPeer.opened(clients.router.port, container_id="consumer").drop(reset=True)
        return 1

    with ThreadPoolExecutor(8) as threads:
        assert sum(each.result() for each in [threads.submit(connect_and_reset) for _ in range(8)]) == 8
    assert clients.moved > 0


def test_frames_after_open_move_with_connection(clients: AffinityClients) -> None:
    """A moved connection neither loses nor repeats frames after open, as Proton sends them: all in one write."""
    clients.connect_pair_once()
    sender = clients.connect("producer").sender(ADDRESS, credit=False)
    consumer = clients.peers["consumer"] = AmqpPeer(clients.router.port)
    frames = [
        Performative("open", container_id="consumer", max_frame_size=65536),
        Performative("begin", next_outgoing_id=0, incoming_window=WIDE, outgoing_window=WIDE),
        Performative("attach", name="one", handle=0, role=True, source=source(ADDRESS), target=target("test")),
        Performative("flow", next_incoming_id=0, incoming_window=WIDE, next_outgoing_id=0, outgoing_window=WIDE,
                     handle=0, delivery_count=0, link_credit=5),
    ]  # fmt: skip
    consumer.raw(AMQP_HEADER + b"".join(frame_octets(each.encode()) for each in frames))
    consumer.on_frame = None
    assert consumer.read_octets(len(AMQP_HEADER)) == AMQP_HEADER
    for name in ("open", "begin", "attach"):
        consumer.expect(name)
    clients.wait_shared_worker()
    sender.wait_credit()
    sender.send(message.message("x"), settled=True)
    assert message.body(consumer.expect("transfer").payload) == "x"
    assert clients.moved == 1


def test_connection_with_too_much_input_stays(clients: AffinityClients) -> None:
    """If a client sends more after its open than a hand-over carries, the connection stays on its worker."""
    clients.connect_pair_once()
    clients.connect("consumer").receiver(ADDRESS, 10)
    producer = clients.peers["producer"] = AmqpPeer(clients.router.port)
    hello = Performative("open", container_id="producer", max_frame_size=65536)
    begin = Performative("begin", next_outgoing_id=0, incoming_window=WIDE, outgoing_window=WIDE,
                         properties={Symbol("filler"): "x" * 15000})  # fmt: skip
    begins = b"".join(frame_octets(begin.encode(), channel=channel) for channel in range(3))
    producer.raw(AMQP_HEADER + frame_octets(hello.encode()) + begins)
    producer.on_frame = None
    assert producer.read_octets(len(AMQP_HEADER)) == AMQP_HEADER
    for name in ("open", "begin", "begin", "begin"):
        producer.expect(name)
    assert not clients.share_worker()
    assert clients.moved == 0


def test_placement_takes_precedence_over_affinity(clients: AffinityClients) -> None:
    clients.connect_pair_once("second")
    clients.management.create("placement", "here", listener="second", worker=1)
    clients.connect("consumer").receiver(ADDRESS, 1)
    first = clients.worker("consumer")
    for name in ("producer", "another"):
        clients.connect(name, "second")
    assert clients.worker("producer") == clients.worker("another")
    assert clients.moved == 0 or first != clients.worker("producer")


def test_affinity_without_memory_is_off(start: Start) -> None:
    router = start([listener(), ("router", {"rememberedContainers": 0}), *SETTINGS], WORKERS)
    clients = AffinityClients(router)
    clients.connect_pair_once()
    for name in ("producer", "consumer"):
        clients.connect(name)
    assert not clients.share_worker()
    assert clients.moved == 0


def test_reconnecting_pairs_keep_workers_balanced(start: Start) -> None:
    """Most of many pairs that reconnect at once, in two orders, share a worker, and the workers stay balanced."""
    pairs, workers = 40, 4
    clients = AffinityClients(start([listener(), *SETTINGS], workers))
    for turn in range(2):
        for side in ("producer", "consumer"):
            for number in range(pairs):
                # The second time, consumers connect in another order than producers.
                own = number if turn == 0 or side == "producer" else number * 7 % pairs
                peer = clients.connect(f"{side}{own}")
                if side == "producer":
                    peer.sender(f"closest/{own}", credit=False)
                else:
                    peer.receiver(f"closest/{own}", 1)
        if turn == 0:
            clients.disconnect_all()
    places = {name: clients.worker(name) for name in clients.peers}
    apart = sum(places[f"producer{number}"] != places[f"consumer{number}"] for number in range(pairs))
    assert apart <= pairs * (1 - 1 / workers) / 2
    assert max(Counter(places.values()).values()) <= 2 * pairs / workers + 3
