"""Link routes over several routers: clients at one router, a scripted container at another (inter-router.md 12).

Clients are spread over the workers of their router; the connections between routers are at workers chosen by chance.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.peer import message
from tests.peer.container import accept, refuse
from tests.peer.frames import ACCEPTED
from tests.peer.links import PeerLink
from tests.peer.peer import AmqpPeer
from tests.peer.types import Described, Map, Symbol, ULong
from tests.system.fixtures import Start
from tests.system.links.test_link_routes import (
    BOTH,
    LARGE,
    LOST,
    NO_ROUTE,
    attached,
    drains,
    link_route,
    place,
    receiving,
    sending,
)
from tests.system.network.broker_network import BrokerNetwork
from tests.system.router import RouterProcess, listener

pytestmark = pytest.mark.adversarial


@pytest.fixture
def network(start: Start, workers: int, peers: list[AmqpPeer]) -> BrokerNetwork:
    return BrokerNetwork(start, workers, peers)


@pytest.fixture(scope="module")
def _shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerNetwork]:
    """Network of routers A, B and C in a row; C has the link routes."""
    started: list[RouterProcess] = []

    def start(sections: Any, workers: int) -> RouterProcess:
        router = RouterProcess(tmp_path_factory.mktemp("router"), sections, workers)
        started.append(router)
        router.start()
        return router

    try:
        network = BrokerNetwork(start, request.param, [])
        network.start_chain("ABC", {"C": BOTH})
        yield network
    finally:
        for router in started:
            router.stop()


@pytest.fixture
def shared(_shared: BrokerNetwork, request: pytest.FixtureRequest) -> Iterator[BrokerNetwork]:
    """The network `_shared`, for tests that leave it as they found it."""
    request.node.routers = list(_shared.routers.values())
    yield _shared
    for router in _shared.routers.values():
        assert router.alive, f"the router died during this test; log:\n{router.tail()}"
    _shared.drop_peers()
    wait_link_routes(_shared, "AB")


def with_broker(network: BrokerNetwork) -> Any:
    """Connect a container to C and wait until all routers have its link routes."""
    broker = network.broker("C")
    wait_link_routes(network, "AB", "C")
    return broker


def chain_with_broker(network: BrokerNetwork, *sections: Any) -> Any:
    """Start routers A, B and C in a row for one test, with a container at C whose link routes all routers have."""
    network.start_chain("ABC", {"C": [*BOTH, *sections]})
    return with_broker(network)


def wait_link_routes(network: BrokerNetwork, names: str, *routers: str) -> None:
    for name in names:
        for key in ("Cq", "Dq"):
            network.wait_announced(name, key, *routers)


def test_messages_cross_three_routers_in_both_directions(shared: BrokerNetwork) -> None:
    broker = with_broker(shared)
    for name in "ABC":
        for client in shared.clients(name):
            sender, end = sending(broker, client)
            for number in range(3):
                sent = sender.send(message.message(f"there {number}"), tag=b"tag %d" % number)
                delivery = end.next()
                assert (message.body(delivery.payload), delivery.tag) == (f"there {number}", b"tag %d" % number)
                assert message.section_of(delivery.payload, message.MESSAGE_ANNOTATIONS) is None
                delivery.settle()
                assert sender.outcome(sent).name == "accepted"
            receiver, back = receiving(broker, client)
            sent = back.send(message.message("back"))
            got = receiver.next()
            assert message.body(got.payload) == "back"
            got.settle()
            assert back.outcome(sent).name == "accepted"


# brokers-and-edge.md LR-15.
def test_attach_fields_cross_routers_unchanged(shared: BrokerNetwork) -> None:
    broker = with_broker(shared)
    filters = {Symbol("selector"): Described(ULong(0x468C00000004), "colour = 'green'")}
    source = Described(ULong(0x28), ["q.a", ULong(0), None, None, None, None, None, filters])
    receiver = shared.client("A").receiver(
        wait=False, name="sub", source=source, snd_settle_mode=0, rcv_settle_mode=1,
        properties=Map([(Symbol("key"), "value")]), desired_capabilities=[Symbol("shared")],
    )  # fmt: skip
    broker.session_begun()
    end = broker.link_attached(answer=False)
    attach = end.remote
    assert attach is not None
    assert attach.fields["name"] == "sub@client"
    assert (attach.snd_settle_mode, attach.rcv_settle_mode, attach.properties) == (0, 1, {"key": "value"})
    assert (attach.source.value[7], attach.desired_capabilities) == (filters, ["shared"])
    receiver.session.peer.barrier()
    assert receiver.remote is None
    accept(end, offered_capabilities=[Symbol("shared")], max_message_size=1000, properties={Symbol("a"): 1})
    answer = receiver.wait_attached()
    assert (answer.fields["name"], answer.max_message_size, answer.properties) == ("sub", 1000, {"a": 1})
    assert (answer.source.value[7], answer.offered_capabilities) == (filters, ["shared"])
    rows = {name: shared.management(name).query("router.link") for name in "ABC"}
    for name in "ABC":
        pair = [row for row in rows[name] if row["owningAddr"] == "M0q.a"]
        assert [row["linkDir"] for row in pair] == ["out", "in"], name
        assert [row["peer"] for row in pair] == [row["identity"] for row in reversed(pair)]
        names = ["sub" if name == "A" else "sub@client", "sub@client"]
        assert [row["linkName"] for row in pair] == names


def test_flow_drain_detach_and_refusal_cross_routers(shared: BrokerNetwork) -> None:
    broker = with_broker(shared)
    for client in shared.clients("A"):
        receiver, end = receiving(broker, client, credit=0)
        receiver.flow(3, drain=True)
        broker.until(partial(drains, end), "the drain")
        end.send(message.message("one"), settled=True)
        end.session.flow(handle=end.handle, delivery_count=3, link_credit=0, drain=True)
        client.until(partial(len, receiver.flows), "the drained credit")
        assert (receiver.flows[-1].delivery_count, receiver.flows[-1].link_credit) == (3, 0)
        assert len(receiver.deliveries) == 1
        receiver.send_detach()
        end.wait_detached()
        assert not receiver.detached, "the detach is answered after the container answers"
        end.send_detach()
        receiver.wait_detached()
        refused = client.sender("q.full", wait=False)
        refuse(broker.link_attached(answer=False), "amqp:resource-limit-exceeded", "full")
        assert refused.wait_attached().target is None
        assert refused.wait_detached() == ("amqp:resource-limit-exceeded", "full")


# brokers-and-edge.md LR-19.
def test_transaction_frames_cross_routers(network: BrokerNetwork) -> None:
    broker = chain_with_broker(network, link_route("in", "$coordinator"))
    network.wait_announced("A", "C$coordinator", "C")
    for client in network.clients("A"):
        coordinator = Described(ULong(0x30), [Symbol("amqp:local-transactions")])
        control = client.sender(wait=False, target=coordinator)
        end = attached(broker, control)
        assert end.remote.target == coordinator
        end.flow(10)
        control.wait_credit()
        declare = control.send(message.message("declare"))
        state = Described(ULong(0x33), [b"txn-1"])
        end.next().settle(state)
        assert control.outcome(declare).state == state
        sender, work = sending(broker, client)
        assert work.session is end.session
        enlisted = Described(ULong(0x34), [b"txn-1"])
        number = sender.send(message.message("work"), state=enlisted)
        delivery = work.next()
        assert delivery.state == enlisted
        outcome = Described(ULong(0x34), [b"txn-1", ACCEPTED])
        delivery.settle(outcome)
        assert sender.outcome(number).state == outcome


def test_message_without_octets_is_rejected_by_first_router(shared: BrokerNetwork) -> None:
    broker = with_broker(shared)
    for client in shared.clients("A"):
        sender, end = sending(broker, client)
        outcome = sender.request(b"")
        assert outcome.name == "rejected"
        assert outcome.error == ("amqp:decode-error", "invalid message format")
        number = sender.send(message.message("x"))
        delivery = end.next()
        assert message.body(delivery.payload) == "x"
        delivery.settle()
        assert sender.outcome(number).name == "accepted"
        receiver, back = receiving(broker, client)
        assert back.request(b"").name == "rejected"
        back.send(message.message("y"), settled=True)
        assert message.body(receiver.next().payload) == "y"


# brokers-and-edge.md LR-18.
def test_dynamic_node_request_reaches_the_container(shared: BrokerNetwork) -> None:
    broker = with_broker(shared)
    wanted = Map([(Symbol("x-opt-qd.address"), "q.new")])
    source = Described(ULong(0x28), [None, None, None, None, True, wanted])
    receiver = shared.client("A").receiver(wait=False, source=source)
    broker.session_begun()
    end = broker.link_attached(answer=False)
    assert end.remote is not None
    assert (end.remote.source.value[4], end.remote.source.value[5]) == (True, {"x-opt-qd.address": "q.new"})
    accept(end, source=Described(ULong(0x28), ["made.by.broker", None, None, None, True]))
    assert receiver.wait_attached().source.value[0] == "made.by.broker"


def test_dynamic_node_of_tenant_has_the_tenant_prefix(network: BrokerNetwork) -> None:
    """A router between the tenant's router and the container gets the address with the tenant's prefix."""
    routes = [link_route(way, "acme.com") for way in ("in", "out")]
    network.start_chain("AB", {"A": [listener("tenants", multiTenant=True)], "B": routes})
    broker = network.broker("B")
    network.wait_announced("A", "Cacme.com", "B")
    network.wait_announced("A", "Dacme.com", "B")
    properties = Map([(Symbol("x-opt-qd.address"), "new"), (Symbol("other"), 1)])
    node = [None, None, None, None, True, properties]
    for code, field in ((0x28, "source"), (0x29, "target")):
        client = AmqpPeer.opened(network.routers["A"].ports["tenants"], hostname="acme.com")
        network.peers.append(client)
        asking = Described(ULong(code), node)
        link: PeerLink = (
            client.receiver(wait=False, source=asking)
            if field == "source"
            else client.sender(wait=False, target=asking)
        )
        if not broker.sessions:
            broker.session_begun()
        end = broker.link_attached(answer=False)
        seen = getattr(end.remote, field).value
        assert (seen[0], seen[4]) == (None, True)
        assert list(seen[5].items()) == [("x-opt-qd.address", "acme.com/new"), ("other", 1)]
        accept(end, **{field: Described(ULong(code), ["made.by.broker", None, None, None, True])})
        assert getattr(link.wait_attached(), field).value[0] == "made.by.broker"


def test_external_prefix_is_removed_at_the_last_router(network: BrokerNetwork) -> None:
    network.start_chain("AB", {"B": [link_route("in", delExternalPrefix="q.")]})
    broker = network.broker("B")
    network.wait_announced("A", "Cq", "B")
    sender = network.client("A").sender("q.a", wait=False)
    assert attached(broker, sender).target["address"] == "a"
    assert sender.target["address"] == "q.a"


# brokers-and-edge.md LR-6.
def test_link_route_is_announced_while_a_container_is_connected(network: BrokerNetwork) -> None:
    network.start_chain("ABC", {"A": [link_route("in", "p", pattern="p.*.x")], "C": BOTH})
    wait_link_routes(network, "A")
    message_routed = network.client("A").sender("q.a", wait=False)
    assert message_routed.wait_attached().target is not None, "no link route is announced"
    first, second = network.broker("C"), network.broker("C")
    wait_link_routes(network, "AB", "C")
    other = network.broker("A")
    network.wait_announced("C", "Ep.*.x", "A")
    sending(other, network.client("C"), "p.1.x")
    second.drop()
    sender, _ = sending(first, network.client("A"))
    first.drop()
    assert sender.wait_detached() == LOST
    wait_link_routes(network, "AB")


def selection_order(network: BrokerNetwork, at: str, routers: Iterable[str]) -> list[str]:
    """Return `routers` in the order in which router `at` chooses them: the order in which `at` first met them."""
    rows = {row["id"]: row for row in network.management(at).query("router.node")}
    return sorted(routers, key=lambda router: int(rows[router]["index"]))


def test_links_spread_over_routers_with_containers(network: BrokerNetwork) -> None:
    network.start_chain("ABC", {"A": BOTH, "C": BOTH})
    near, far = network.broker("A"), network.broker("C")
    wait_link_routes(network, "B", "A", "C")
    client = network.client("B")
    for _ in range(2):
        for router in selection_order(network, "B", "AC"):
            attached({"A": near, "C": far}[router], client.sender("q.a", wait=False))
    client = network.client("A")
    for _ in range(2):
        attached(near, client.sender("q.a", wait=False))
    near.drop()
    wait_link_routes(network, "B", "C")
    wait_link_routes(network, "C")
    network.wait_announced("A", "Cq", "C")
    attached(far, client.sender("q.a", wait=False))


def test_links_reach_the_router_that_the_first_router_chose(network: BrokerNetwork) -> None:
    """Brokers at both ends of a row: a link for one end is not sent back to the other end half way."""
    network.start_chain("ABCD", {"A": BOTH, "D": BOTH})
    brokers = {"A": network.broker("A"), "D": network.broker("D")}
    wait_link_routes(network, "BC", "A", "D")
    for name in "BC":
        client = network.client(name)
        for _ in range(3):
            for router in selection_order(network, name, brokers):
                attached(brokers[router], client.sender("q.a", wait=False))


@pytest.mark.parametrize("expiry", ["never", None])
def test_loss_of_client_or_broker_detaches_the_other_end(shared: BrokerNetwork, expiry: str | None) -> None:
    broker = with_broker(shared)
    client, other = shared.client("A"), shared.client("A")
    source = Described(ULong(0x28), ["q.a", None, Symbol(expiry) if expiry else None])
    receiver = client.receiver(wait=False, source=source)
    end = attached(broker, receiver)
    sender, _ = sending(broker, other)
    client.drop()
    assert end.wait_detached() == LOST
    assert bool(end.detached.closed) == (expiry is None)
    broker.drop()
    assert sender.wait_detached() == LOST
    assert sender.detached is not None
    assert sender.detached.closed
    wait_link_routes(shared, "AB")


def test_peer_that_does_not_read_blocks_no_other_link(network: BrokerNetwork) -> None:
    other = [link_route(direction, "r", containerId="other") for direction in ("in", "out")]
    broker = chain_with_broker(network, *other)
    second = network.broker("C", "other")
    network.wait_announced("A", "Dr", "C")
    network.wait_announced("A", "Cr", "C")
    stuck = network.client("A")
    _, flooding = receiving(broker, stuck, credit=10)
    assert not flooding.send_some(message.message(bytes(LARGE)), 2.0), "nowhere is room for all of it"
    sender, end = sending(broker, network.client("A"), "q.b", credit=10)
    end.session.flow(incoming_window=0)
    broker.barrier()
    assert not sender.send_some(message.message(bytes(LARGE)), 2.0)
    client = network.client("A")
    receiver, back = receiving(second, client, "r.a")
    sender, end = sending(second, client, "r.a")
    for number in range(5):
        back.send(message.message(number), settled=True)
        assert message.body(receiver.next().payload) == number
        sender.send(message.message(number), settled=True)
        assert message.body(end.next().payload) == number


@pytest.mark.disturbs("a worker is killed")
@pytest.mark.parametrize("workers", [3], indirect=False)
def test_killed_worker_detaches_links_across_it(network: BrokerNetwork, workers: int) -> None:
    network.start_chain("AB", {"A": BOTH})
    broker = network.broker("A")
    wait_link_routes(network, "B", "A")
    router = network.routers["B"]
    lost = router.worker_of(network.routers["A"].ports["routers"])
    clients = [each for each in network.clients("B") if router.worker_of(place(each)) != lost]
    pairs = [sending(broker, client) for client in clients]
    assert pairs
    os.kill(lost, signal.SIGKILL)
    for sender, end in pairs:
        assert sender.wait_detached() == LOST
        assert end.wait_detached() == LOST
        end.send_detach()
    wait_link_routes(network, "B", "A")
    broker.drop()
    wait_link_routes(network, "B")
    other = network.broker("A")
    wait_link_routes(network, "B", "A")
    sending(other, clients[0])


@pytest.mark.disturbs("a router is killed")
def test_lost_intermediate_router_detaches_links(network: BrokerNetwork) -> None:
    broker = chain_with_broker(network)
    sender, end = sending(broker, network.client("A"))
    receiver, back = receiving(broker, network.client("A"))
    sent = sender.send(message.message(bytes(1000)))
    network.routers["B"].kill()
    for link in (sender, receiver, end, back):
        assert link.wait_detached() == LOST
    assert sent not in sender.session.outcomes
    refused = network.client("A").sender("q.b", wait=False)
    assert refused.wait_attached().target is None
    assert refused.wait_detached() == NO_ROUTE
    assert network.routers["A"].alive
