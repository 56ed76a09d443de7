"""Established inter-router connections: control messages both ways, loss, retries, hostile peers, limits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peer import frames, message
from tests.peer.container import ScriptedBroker
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.neighbour import DATA, RouterPeer, properties
from tests.peer.peer import AmqpPeer
from tests.peer.router19 import control
from tests.peer.types import Map, Symbol
from tests.system.fixtures import Start, pass_one
from tests.system.networks import RouterView, connector, interior
from tests.system.router import RouterProcess, free_port, poll

pytestmark = pytest.mark.adversarial

#: Seconds after which a silent neighbour is lost, far longer than any test waits.
LONG = 120
#: Seconds for the loss of a connection to be noticed.
LOSS_NOTICED = 5.0
INSTANCE = 1_700_000_000


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.close()


@pytest.fixture
def router(start: Start, workers: int) -> RouterProcess:
    return start(interior("B", helloMaxAgeSeconds=LONG), workers)


class ScriptedNeighbour:
    """Router P, a scripted neighbour of the router under test."""

    def __init__(self, links: RouterPeer, name: str = "P") -> None:
        self.links = links
        self.name = name
        self.number = 0

    def control_messages(self) -> list[control.Router19Control]:
        """Return the control messages received."""
        assert self.links.control_in is not None
        return [control.read(delivery.payload) for delivery in self.links.control_in.deliveries if delivery.complete]

    def wait_hello(self, seen: list[str] | None = None) -> control.Router19Control:
        """Wait for a HELLO and return it. seen: the router ids that it must list."""

        def found() -> control.Router19Control | None:
            hellos = [each for each in self.control_messages() if each.opcode == "HELLO"]
            return next((each for each in hellos if seen is None or each.body["seen"] == seen), None)

        message: control.Router19Control = self.links.peer.until(found, f"HELLO {seen}")
        return message

    def hello(self, *seen: str) -> None:
        self.links.send_control(control.hello(self.name, INSTANCE, list(seen)))

    def exchange_hellos(self, router_id: str = "B") -> None:
        self.hello(router_id)
        self.wait_hello([self.name])


def connect_neighbour(router: RouterProcess, name: str = "P", **fields: Any) -> ScriptedNeighbour:
    return ScriptedNeighbour(RouterPeer.connected(router.ports["net"], name, **fields), name)


def neighbours(router: RouterProcess) -> list[str]:
    """Return the neighbours in the router's link state."""
    return list(next(row for row in RouterView(router).query("router.node") if row["nextHop"] == "(self)")["linkState"])


def reachable(router: RouterProcess) -> list[str]:
    """Return the ids of reachable routers; a path is known shortly after the link state lists the first neighbour."""
    return [row["id"] for row in RouterView(router).query("router.node") if row["cost"] is not None]


# --- control messages ---------------------------------------------------------------------------------------------


def test_hellos_are_exchanged_both_ways(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router, cost=7)
    first = neighbour.wait_hello([])
    assert (first.body["id"], first.body["pv"], first.body["area"]) == ("B", 1, "0")
    assert (first.ingress, first.trace) == ("0/B", ["0/B"])
    neighbour.exchange_hellos()
    assert neighbours(router) == ["P"]
    row = RouterView(router).nodes()["P"]
    assert (row["cost"], row["nextHop"], row["instance"]) == (7, None, INSTANCE)
    assert neighbour.links.control_in is not None
    assert all(delivery.settled for delivery in neighbour.links.control_in.deliveries)
    neighbour.links.peer.drop()


def test_unsettled_control_messages_are_accepted(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router)
    assert neighbour.links.control_out is not None
    assert neighbour.links.control_out.request(control.hello("P", INSTANCE, ["B"])).name == "accepted"
    assert neighbour.links.control_out.request(b"\x00SsE" + b"nonsense").name == "accepted"
    neighbour.wait_hello(["P"])
    neighbour.links.peer.drop()


def test_control_message_with_many_addresses_is_processed(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    keys = [(f"M0address/with/a/name/{number}", 3) for number in range(20_000)]
    neighbour.links.send_control(control.router_advertisement("P", INSTANCE, 1, 5))
    neighbour.links.peer.until(
        lambda: any(each.opcode == "MAR" for each in neighbour.control_messages()), "a request for addresses"
    )
    neighbour.links.send_control(control.mobile_state("P", "B", 5, keys))
    with AmqpPeer.opened(router.port) as peer:
        for key in (keys[0], keys[-1]):
            assert peer.sender(key[0].removeprefix("M0")).credit == 250
    neighbour.links.peer.drop()


def test_oversized_control_message_is_discarded(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    neighbour.links.send_control(control.hello("P", INSTANCE, ["x" * 1000] * 9000))
    neighbour.links.send_control(control.hello("P", INSTANCE, ["B"]))
    assert neighbour.links.control_out is not None
    neighbour.links.peer.until(
        lambda: neighbour.links.control_out and neighbour.links.control_out.credit == 250, "credit"
    )
    assert neighbours(router) == ["P"]
    neighbour.links.peer.drop()


def test_control_messages_overtake_data_on_slow_network(router: RouterProcess) -> None:
    """While P does not read megabytes of data, a HELLO of B precedes most of the data."""
    neighbour = connect_neighbour(router, receive_buffer=65536)
    neighbour.exchange_hellos()
    neighbour.links.send_control(control.router_advertisement("P", INSTANCE, 1, 1))
    neighbour.links.peer.until(
        lambda: any(each.opcode == "MAR" for each in neighbour.control_messages()), "a request for addresses"
    )
    neighbour.links.send_control(control.mobile_state("P", "B", 1, [("M0closest/x", 2)]))
    for link in neighbour.links.ins:
        link.flow(10_000)
    with AmqpPeer.opened(router.port) as client:
        sender = client.sender("closest/x")
        for _ in range(400):
            if not sender.credit:
                client.read_available()
            if not sender.credit:
                break
            sender.send(message.message(bytes(16_000)), settled=True)
        client.idle_until(time.monotonic() + 2.5)  # two HELLO intervals
        before = len(neighbour.control_messages())
        start_at = len(neighbour.links.peer.frames)
        neighbour.links.peer.until(lambda: len(neighbour.control_messages()) > before, "a HELLO")
        ahead = sum(frame.size for frame in neighbour.links.peer.frames[start_at:])
        neighbour.links.peer.until(
            lambda: sum(len(link.deliveries) for link in neighbour.links.ins) >= 240, "all data", 30.0
        )
        assert ahead < 1 << 20
    neighbour.links.peer.drop()


# --- loss ---------------------------------------------------------------------------------------------------------


def drop(neighbour: ScriptedNeighbour, router: RouterProcess) -> None:
    neighbour.links.peer.drop()


def close(neighbour: ScriptedNeighbour, router: RouterProcess) -> None:
    neighbour.links.peer.close()


def detach_control_link(neighbour: ScriptedNeighbour, router: RouterProcess) -> None:
    assert neighbour.links.control_in is not None
    neighbour.links.control_in.detach()


def end_session(neighbour: ScriptedNeighbour, router: RouterProcess) -> None:
    neighbour.links.peer.sessions[0].end()


def kill_worker(neighbour: ScriptedNeighbour, router: RouterProcess) -> None:
    os.kill(router.worker_of(neighbour.links.peer.socket.getsockname()[1]), signal.SIGKILL)


KILLS = pytest.mark.disturbs("a worker is killed")


@pytest.mark.parametrize("way", [drop, close, detach_control_link, end_session, pytest.param(kill_worker, marks=KILLS)])
def test_neighbour_loss_is_noticed_at_once(
    router: RouterProcess, way: Callable[[ScriptedNeighbour, RouterProcess], None]
) -> None:
    """The HELLOs received before would keep the neighbour for minutes."""
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    poll(lambda: neighbours(router) == ["P"], "the neighbour is known")
    way(neighbour, router)
    router.wait_log("Node P is not reachable", LOSS_NOTICED)
    neighbour.links.peer.drop()


def test_silent_connection_is_closed(start: Start, workers: int) -> None:
    sections = interior("B", helloMaxAgeSeconds=LONG)
    sections[2][1]["idleTimeoutSeconds"] = 1
    router = start(sections, workers)
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    assert neighbour.links.peer.expect_close() == ("amqp:resource-limit-exceeded", "local-idle-timeout expired")
    poll(lambda: neighbours(router) == [], "the neighbour is lost", LOSS_NOTICED)


def test_neighbour_returns_on_same_connection(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    detach_control_link(neighbour, router)
    poll(lambda: neighbours(router) == [], "the neighbour is lost", LOSS_NOTICED)
    neighbour.links.control_in = neighbour.links.receiver(neighbour.links.peer.sessions[0], "qd.router")
    neighbour.exchange_hellos()
    poll(lambda: neighbours(router) == ["P"], "the neighbour is back")
    neighbour.links.peer.drop()


def test_detached_data_link_leaves_others_attached(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    with AmqpPeer.opened(router.port) as peer:
        management = Management(peer)
        before = len(management.query("router.link"))
        neighbour.links.ins[5].detach()
        neighbour.links.outs[3].detach()
        poll(lambda: len(management.query("router.link")) == before - 2, "two links are gone")
    assert neighbours(router) == ["P"]
    neighbour.links.peer.drop()


@KILLS
def test_connector_reconnects_after_loss(start: Start, workers: int, broker: ScriptedBroker) -> None:
    router = start(interior("B", to=[broker.port], helloMaxAgeSeconds=LONG), workers)
    for loss in (drop, kill_worker, close, drop):
        container = broker.serve(container_id="P", properties=properties())
        neighbour = ScriptedNeighbour(RouterPeer.served(container))
        neighbour.exchange_hellos()
        poll(lambda: reachable(router) == ["P"], "there is a way to the neighbour")
        lines = len(router.lines)
        if loss is kill_worker:
            os.kill(router.worker_of(broker.port), signal.SIGKILL)
        else:
            loss(neighbour, router)
        router.wait_log("Node P is not reachable", LOSS_NOTICED, after=lines)


# inter-router-protocol.md 3.5.
@pytest.mark.parametrize("way", [detach_control_link, end_session])
def test_connector_without_control_link_reconnects(
    start: Start, workers: int, broker: ScriptedBroker, way: Callable[[ScriptedNeighbour, RouterProcess], None]
) -> None:
    router = start(interior("B", to=[broker.port]), workers)
    neighbour = ScriptedNeighbour(RouterPeer.served(broker.serve(container_id="P", properties=properties())))
    neighbour.exchange_hellos()
    way(neighbour, router)
    assert neighbour.links.peer.expect_close() == ("amqp:not-allowed", "the peer detached a control link")
    again = ScriptedNeighbour(RouterPeer.served(broker.serve(container_id="P", properties=properties())))
    again.exchange_hellos()
    poll(lambda: neighbours(router) == ["P"], "the neighbour is back")


# inter-router.md 2.4.
def test_connector_uses_failover_list_of_peer(start: Start, workers: int) -> None:
    first, second = ScriptedBroker(), ScriptedBroker()
    try:
        start(interior("B", to=[first.port]), workers)
        alternative = Map(
            [(Symbol("network-host"), "127.0.0.1"), (Symbol("port"), str(second.port)), (Symbol("scheme"), "amqp")]
        )
        pairs = [*properties().pairs, (Symbol("failover-server-list"), [alternative])]
        neighbour = ScriptedNeighbour(RouterPeer.served(first.serve(container_id="P", properties=Map(pairs))))
        neighbour.wait_hello([])
        first.refuse()
        neighbour.links.peer.drop()
        again = ScriptedNeighbour(RouterPeer.served(second.serve(container_id="Q", properties=properties())))
        again.wait_hello([])
    finally:
        first.close()
        second.close()


# --- several connections ------------------------------------------------------------------------------------------


# inter-router.md 2.10.
def test_second_connection_keeps_neighbour(router: RouterProcess) -> None:
    one, two = connect_neighbour(router), connect_neighbour(router)
    one.exchange_hellos()
    two.exchange_hellos()
    assert neighbours(router) == ["P"]
    one.links.peer.drop()
    before = len(two.control_messages())
    two.hello("B")
    two.links.peer.until(lambda: len(two.control_messages()) > before + 1, "HELLOs go on")
    poll(lambda: neighbours(router) == ["P"], "the neighbour is still there")
    two.links.peer.drop()


def test_parallel_connections_form_a_bundle(start: Start, workers: int) -> None:
    """Producers are spread over the connections, keep their order, and move when a connection is closed."""
    listens = start(interior("A"), workers)
    port = listens.ports["net"]
    sections = interior("B")
    sections += [("connector", {**connector(port)[1], "name": f"way{number}"}) for number in range(3)]
    dials = start(sections, workers)
    RouterView(dials).wait_nodes(A=1)
    with (
        AmqpPeer.opened(listens.port) as receiving,
        AmqpPeer.opened(dials.port) as sending,
        AmqpPeer.opened(dials.port) as asking,
    ):
        management = Management(asking)
        receiver = receiving.receiver("closest/x", 100_000)
        RouterView(dials).wait_remote("M0closest/x", "A")
        poll(lambda: len(deliveries_by_connection(management)) == 3, "three connections")
        senders = [sending.sender("closest/x") for _ in range(12)]
        poll(lambda: all_connections_used(senders, receiver, management), "all three are used")
        management.delete("connector", name="way1")
        poll(lambda: len(deliveries_by_connection(management)) == 2, "one connection less")
        exchange_messages(senders, receiver, 5)
        assert RouterView(dials).nodes()["A"]["cost"] == 1


def all_connections_used(senders: list[PeerSender], receiver: PeerReceiver, management: Management) -> bool:
    """Exchange messages, and return whether all connections carry some: a worker may learn of a connection late."""
    exchange_messages(senders, receiver, 5)
    return all(count > 0 for count in deliveries_by_connection(management).values())


def deliveries_by_connection(management: Management) -> dict[str, int]:
    """Return the number of deliveries sent on data links, by connection."""
    found: dict[str, int] = {}
    for row in management.query("router.link"):
        if row["linkType"] == "inter-router" and row["linkDir"] == "out":
            found[row["connectionId"]] = found.get(row["connectionId"], 0) + row["deliveryCount"]
    return found


def exchange_messages(senders: list[PeerSender], receiver: PeerReceiver, rounds: int) -> None:
    """Send messages from each sender, and check that all are accepted, and in order for each sender."""
    sent = [(s, s.send(message.message([n, r]))) for r in range(rounds) for n, s in enumerate(senders)]
    orders: dict[int, list[int]] = {}
    for _ in sent:
        delivery = receiver.next()
        number, turn = message.body(delivery.payload)
        orders.setdefault(number, []).append(turn)
        delivery.settle()
    assert all(sender.outcome(number).name == "accepted" for sender, number in sent)
    assert orders == {number: list(range(rounds)) for number in range(len(senders))}


def test_connection_to_itself_is_harmless(start: Start, workers: int) -> None:
    port = free_port()
    router = start(interior("B", port, [port]), workers)
    with AmqpPeer.opened(router.port) as peer:
        management = Management(peer)
        poll(lambda: len([r for r in management.query("connection") if r["role"] == "inter-router"]) == 2, "both ends")
        wait = time.monotonic() + 2.5  # two HELLO intervals
        peer.idle_until(wait)
        assert [row["id"] for row in management.query("router.node")] == ["B"]
        rows = [row for row in management.query("router.link") if row["linkType"] == "router-control"]
        poll(lambda: sum(r["deliveryCount"] for r in management.query("router.link")
                         if r["linkType"] == "router-control") > 0, "HELLOs")  # fmt: skip
        assert len(rows) == 4
        receiver = peer.receiver("closest/x", 10)
        pass_one(peer.sender("closest/x"), receiver)


def test_connections_are_spread_over_workers(start: Start) -> None:
    router = start(interior("B"), 3)
    busy = [AmqpPeer.opened(router.port) for _ in range(4)]
    scripted_peers = [connect_neighbour(router, f"P{number}") for number in range(3)]
    pids = {router.worker_of(neighbour.links.peer.socket.getsockname()[1]) for neighbour in scripted_peers}
    assert len(pids) == 3
    for each in [*busy, *(neighbour.links.peer for neighbour in scripted_peers)]:
        each.drop()


# --- management at run time ---------------------------------------------------------------------------------------


def test_connectors_and_listeners_created_at_run_time_work(start: Start, workers: int, broker: ScriptedBroker) -> None:
    router = start(interior("B"), workers)
    with AmqpPeer.opened(router.port) as peer:
        management = Management(peer)
        attributes = connector(broker.port)[1]
        management.create("connector", attributes.pop("name"), **{**attributes, "port": str(broker.port), "cost": 4})
        neighbour = ScriptedNeighbour(RouterPeer.served(broker.serve(container_id="P", properties=properties())))
        neighbour.exchange_hellos()
        assert RouterView(router).nodes()["P"]["cost"] == 4
        management.delete("connector", name=f"to{broker.port}")
        assert neighbour.links.peer.expect_close() is None
        poll(lambda: neighbours(router) == [], "the neighbour is lost", LOSS_NOTICED)
        assert broker.quiet(3)
        management.create("listener", "more", host="127.0.0.1", port="0", role="inter-router", cost=2)
        line = router.wait_log(r"Listening on 127.0.0.1:(\d+) \(more\)")
        links = RouterPeer.connected(int(line[1]), "Q")
        also = ScriptedNeighbour(links, "Q")
        also.exchange_hellos()
        assert RouterView(router).nodes()["Q"]["cost"] == 2
        links.peer.drop()


# --- hostile peers ------------------------------------------------------------------------------------------------


def test_connection_storm_leaves_no_neighbours(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    descriptors = router.descriptors()
    for number in range(60):
        storm = RouterPeer(AmqpPeer.opened(router.ports["net"], container_id=f"S{number % 3}", properties=properties()))
        storm.attach_control()
        storm.attach_data()
        storm.send_control(control.hello(f"S{number % 3}", INSTANCE + number, ["B"]))
        storm.peer.drop(reset=number % 2 == 0)
    neighbour.hello("B")
    poll(lambda: neighbours(router) == ["P"], "only the neighbour is left")
    poll(lambda: router.descriptors() <= descriptors, "all descriptors are closed")
    neighbour.links.peer.drop()


def test_data_links_beyond_limit_are_refused(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router, links=1)
    neighbour.exchange_hellos()
    session = neighbour.links.peer.sessions[1]
    most = 1034
    attached = [neighbour.links.sender(session, DATA) for _ in range(most - 1)]
    beyond = neighbour.links.sender(session, DATA, credit=False)
    assert beyond.wait_detached() == ("amqp:resource-limit-exceeded", "too many inter-router links")
    attached[-1].detach()
    assert neighbour.links.sender(session, DATA).credit == 250
    assert neighbours(router) == ["P"]
    neighbour.links.peer.drop()


def test_incomplete_control_messages_cost_bounded_memory(router: RouterProcess) -> None:
    """Incomplete control messages use bounded memory, and control messages of other neighbours are processed."""
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    floods = [connect_neighbour(router, f"F{number}", links=0) for number in range(12)]
    memory = router.memory()
    for flood in floods:
        assert flood.links.control_out is not None
        flood.links.control_out.send_some(bytes(7 << 20), 10.0, settled=True, more=True)
    assert router.memory() < memory + (160 << 20)
    neighbour.hello("B")
    before = len(neighbour.control_messages())
    neighbour.links.peer.until(lambda: len(neighbour.control_messages()) > before, "HELLOs go on")
    for flood in floods:
        flood.links.peer.drop()
    neighbour.links.peer.drop()


def test_malformed_attaches_end_their_connection_only(router: RouterProcess) -> None:
    neighbour = connect_neighbour(router)
    neighbour.exchange_hellos()
    bad = RouterPeer(AmqpPeer.opened(router.ports["net"], container_id="X", properties=properties()))
    session = bad.peer.begin()
    session.frame("attach", name="a", handle=0, role=True, source=frames.target("x"), target=frames.source("y"))
    session.frame("attach", name="b", handle=1, role=False, source=None, target=None, initial_delivery_count=0)
    session.frame("attach", name="c", handle=0, role=True, source=None, target=None)
    bad.peer.expect_end()
    assert neighbours(router) == ["P"]
    neighbour.links.peer.drop()


# --- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "attributes",
    [
        {"maxFrameSize": 512},
        {"maxSessions": 3},
        {"maxSessionFrames": 4, "maxFrameSize": 1024},
        {"linkCapacity": 1},
        {"maxSessions": 1, "maxFrameSize": 512},
    ],
    ids=str,
)
def test_narrow_limits_on_either_side_pass_messages(start: Start, workers: int, attributes: dict[str, Any]) -> None:
    for narrow in ("listener", "connector"):
        wide = interior("A")
        if narrow == "listener":
            wide[2][1].update(attributes)
        listens = start(wide, workers)
        dials_sections = interior("B", to=[listens.ports["net"]])
        if narrow == "connector":
            dials_sections[3][1].update(attributes)
        dials = start(dials_sections, workers)
        RouterView(dials).wait_nodes(A=1)
        RouterView(listens).wait_nodes(B=1)
        with AmqpPeer.opened(listens.port) as receiving, AmqpPeer.opened(dials.port) as sending:
            receiver = receiving.receiver("closest/x", 10)
            RouterView(dials).wait_remote("M0closest/x", "A")
            sender = sending.sender("closest/x")
            for size in (10, 5_000, 300_000):
                number = sender.send(message.message(bytes(size)))
                delivery = receiver.next()
                assert len(delivery.payload) > size
                delivery.settle()
                assert sender.outcome(number).name == "accepted"
