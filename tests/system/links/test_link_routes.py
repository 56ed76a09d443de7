"""Link routes: clients' links relayed to a broker, with a scripted container as the broker.

Clients are spread over the workers: some share the broker's worker, others do not.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.peer import frames, message
from tests.peer.container import Container, accept, refuse
from tests.peer.frames import ACCEPTED
from tests.peer.links import PeerLink, PeerReceiver, PeerSender
from tests.peer.management import Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.peer.types import Described, Symbol, ULong
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
KIND = "router.config.linkRoute"
LOST = ("qd:routed-link-lost", "Connectivity to the peer container was lost")
NO_ROUTE = ("qd:no-route-to-dest", "No route to the destination node")


def link_route(direction: str, prefix: str = "q", **attributes: Any) -> Section:
    if not attributes.keys() & {"containerId", "connection"}:
        attributes["containerId"] = "broker"
    if "pattern" not in attributes:
        attributes["prefix"] = prefix
    return "linkRoute", {"name": f"{prefix}-{direction}", "direction": direction, **attributes}


LARGE = 1 << 26  # size of a message in octets

BOTH = (link_route("in"), link_route("out"))


class LinkRouteRouter:
    """A router with a listener for clients and a listener for brokers."""

    def __init__(self, router: RouterProcess, peers: list[AmqpPeer], count: int) -> None:
        self.router = router
        self.peers = peers
        self.count = count
        self.management = Management(self.client("management"))

    def client(self, container_id: str = "client") -> AmqpPeer:
        peer = AmqpPeer.opened(self.router.ports["clients"], container_id=container_id)
        self.peers.append(peer)
        return peer

    def clients(self) -> list[AmqpPeer]:
        """Open one client connection for each worker."""
        return [self.client(f"client{number}") for number in range(self.count)]

    def broker(self, container_id: str = "broker", name: str = "brokers") -> RouteContainer:
        peer = RouteContainer.connected(self.router.ports[name], container_id)
        self.peers.append(peer)
        return peer

    def link_is_up(self, name: str) -> bool:
        """Return whether a link has been answered."""
        return bool(self.management.one("router.link", linkName=name)["operStatus"] == "up")

    def active_broker(self) -> RouteContainer:
        """Connect a broker, and wait until every link route is active."""
        broker = self.broker()
        poll(
            lambda: all(row["operStatus"] == "active" for row in self.management.query(KIND)), "link routes are active"
        )
        return broker


@pytest.fixture
def start_router(start: Start, workers: int) -> Iterator[Callable[..., LinkRouteRouter]]:
    """Yield a function that starts a router with the given link routes."""
    peers: list[AmqpPeer] = []

    def begin(*sections: Section, **router: Any) -> LinkRouteRouter:
        own: list[Section] = [listener("clients"), listener("brokers", role="route-container")]
        return LinkRouteRouter(start([*own, *sections], workers), peers, workers)

    yield begin
    for peer in peers:
        peer.drop()


def drains(end: PeerSender) -> bool:
    """Return whether the receiver drains three credits."""
    return end.draining and end.credit == 3


def place(peer: AmqpPeer) -> int:
    """Return the local port of a peer's connection."""
    return int(peer.socket.getsockname()[1])


def attached(broker: Container, link: PeerLink) -> Any:
    """Answer the attach of a client's link at the broker, and return the broker's end."""
    if len(broker.sessions) == broker.own:
        broker.session_begun()
    end = broker.link_attached()
    link.wait_attached()
    return end


def sending(
    broker: Container, client: AmqpPeer, address: str = "q.a", credit: int = 10
) -> tuple[PeerSender, PeerReceiver]:
    sender = client.sender(address, wait=False)
    end = attached(broker, sender)
    end.flow(credit)
    sender.wait_credit(credit)
    return sender, end


def receiving(
    broker: Container, client: AmqpPeer, address: str = "q.a", credit: int = 10
) -> tuple[PeerReceiver, PeerSender]:
    receiver = client.receiver(address, wait=False)
    end = attached(broker, receiver)
    receiver.flow(credit)
    end.wait_credit(credit)
    return receiver, end


def test_messages_to_and_from_broker_pass(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router(*BOTH)
    broker = host.active_broker()
    for client in host.clients():
        sender, end = sending(broker, client)
        number = sender.send(message.message("there"), tag=b"a tag of the client")
        delivery = end.next()
        assert (message.body(delivery.payload), delivery.tag) == ("there", b"a tag of the client")
        delivery.settle()
        assert sender.outcome(number).name == "accepted"
        receiver, back = receiving(broker, client)
        number = back.send(message.message("back"))
        got = receiver.next()
        assert message.body(got.payload) == "back"
        got.settle()
        assert back.outcome(number).name == "accepted"


# brokers-and-edge.md LR-14.
@pytest.mark.parametrize("auto_link_first", [True, False])
def test_broker_with_one_session_shares_it_between_link_kinds(
    start_router: Callable[..., LinkRouteRouter], auto_link_first: bool
) -> None:
    host = start_router(*BOTH)
    broker = RouteContainer.connected(host.router.ports["brokers"], "broker", channel_max=0)
    host.peers.append(broker)
    poll(lambda: all(row["operStatus"] == "active" for row in host.management.query(KIND)), "link routes are active")

    def make_auto_link() -> None:
        how = {"address": "direct", "direction": "in", "containerId": "broker"}
        host.management.create("router.config.autoLink", "direct", **how)
        broker.link_attached()
        poll(lambda: host.management.one("router.config.autoLink")["operStatus"] == "active", "the auto link is active")

    if auto_link_first:
        make_auto_link()
    for client in host.clients():
        sender, end = sending(broker, client)
        number = sender.send(message.message("there"))
        end.next().settle()
        assert sender.outcome(number).name == "accepted"
    if not auto_link_first:
        make_auto_link()
    assert len(broker.sessions) == 1


# brokers-and-edge.md LR-13, LR-15, LR-16.
def test_attaches_pass_unchanged_and_management_shows_both_ends(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router(*BOTH)
    broker = host.active_broker()
    for number, client in enumerate(host.clients()):
        selector = Described(ULong(0x468C00000004), "colour = 'green'")
        filters = {Symbol("selector"): selector}
        source = Described(ULong(0x28), ["q.a", ULong(0), None, None, None, None, None, filters])
        receiver = client.receiver(
            wait=False, name=f"sub{number}", source=source, snd_settle_mode=0, properties={"key": "value"}
        )
        if len(broker.sessions) == broker.own:
            broker.session_begun()
        end = broker.link_attached(answer=False)
        asked = end.remote
        assert asked is not None
        assert asked.fields["name"] == f"sub{number}@client{number}"
        assert asked.source.value[7] == filters
        assert (asked.snd_settle_mode, asked.properties) == (0, {"key": "value"})
        client.barrier()
        assert receiver.remote is None, "the attach is answered when the broker answers"
        rows = {row["linkName"]: row for row in host.management.query("router.link")}
        near, far = rows[receiver.name], rows[asked.fields["name"]]
        assert (near["operStatus"], far["operStatus"]) == ("down", "down")
        assert (near["peer"], far["peer"]) == (far["identity"], near["identity"])
        assert (near["owningAddr"], near["linkDir"], far["linkDir"]) == ("M0q.a", "out", "in")
        accept(end, offered_capabilities=[Symbol("shared")], max_message_size=1000)
        answer = receiver.wait_attached()
        assert (answer.fields["name"], answer.max_message_size) == (receiver.name, 1000)
        assert answer.source.value[7] == filters
        for name in (f"sub{number}", f"sub{number}@client{number}"):
            poll(partial(host.link_is_up, name), f"link {name} is up")


def test_transactional_states_pass_on_one_session(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router(*BOTH, link_route("in", "$coordinator"))
    broker = host.active_broker()
    for client in host.clients():
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


def test_broker_with_closed_window_stops_sender(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router(*BOTH)
    broker = host.active_broker()
    for client in host.clients():
        sender, end = sending(broker, client)
        end.session.flow(incoming_window=0)
        broker.barrier()
        assert not sender.send_some(message.message(bytes(LARGE)), 1.0), "nowhere is room for all of it"
        client.drop()
        end.session.flow(incoming_window=0x7FFFFFFF)
        assert end.wait_detached() == LOST
        assert end.deliveries[-1].aborted


def test_detach_drain_and_refusal_are_relayed(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router(*BOTH)
    broker = host.active_broker()
    for client in host.clients():
        receiver, end = receiving(broker, client, credit=0)
        receiver.flow(3, drain=True)
        broker.until(partial(drains, end), "the drain")
        end.send(message.message("one"), settled=True)
        end.session.flow(handle=end.handle, delivery_count=3, link_credit=0, drain=True)
        client.until(partial(len, receiver.flows), "what is left of the credit")
        assert (receiver.flows[-1].delivery_count, receiver.flows[-1].link_credit) == (3, 0)
        assert len(receiver.deliveries) == 1
        receiver.send_detach()
        end.wait_detached()
        assert not receiver.detached
        end.send_detach()
        receiver.wait_detached()
        refused = client.sender("q.full", wait=False)
        refuse(broker.link_attached(answer=False), "amqp:resource-limit-exceeded", "full")
        assert refused.wait_attached().target is None
        assert refused.wait_detached() == ("amqp:resource-limit-exceeded", "full")


@pytest.mark.disturbs("a worker is killed")
@pytest.mark.parametrize("workers", [3], indirect=False)
def test_killed_worker_of_broker_detaches_links(start_router: Callable[..., LinkRouteRouter], workers: int) -> None:
    host = start_router(*BOTH)
    broker = host.active_broker()
    lost = host.router.worker_of(place(broker))
    clients = [each for each in host.clients() if host.router.worker_of(place(each)) != lost]
    senders = [sending(broker, client)[0] for client in clients]
    assert senders
    os.kill(lost, signal.SIGKILL)
    for sender in senders:
        assert sender.wait_detached() == LOST


def test_session_error_of_broker_reaches_client_and_log(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router(*BOTH)
    broker = host.active_broker()
    for number, client in enumerate(host.clients()):
        sender, end = sending(broker, client)
        end.session.end(frames.error("amqp:not-found", f"no queue {number}"))
        condition, description = LOST
        assert sender.wait_detached() == (condition, f"{description}: amqp:not-found no queue {number}")
        said = rf"SERVER \(warning\) \[C\d+\] The peer has ended a session: amqp:not-found no queue {number}$"
        host.router.wait_log(said)


def test_lost_broker_or_client_detaches_links(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router(*BOTH)
    for _ in range(host.count):
        broker = host.active_broker()
        first, second = host.client(), host.client()
        sender, _ = sending(broker, first)
        _, end = sending(broker, second)
        second.drop()
        assert end.wait_detached() == LOST
        broker.drop()
        assert sender.wait_detached() == LOST
        poll(lambda: host.management.query(KIND)[0]["operStatus"] == "inactive", "the link route is inactive")
        refused = first.sender("q.b", wait=False)
        assert refused.wait_attached().target is None
        assert refused.wait_detached() == NO_ROUTE


# brokers-and-edge.md LR-4, LR-5.
def test_link_routes_are_shown_in_rows_and_log(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router(
        link_route("in"), link_route("out", "p", pattern="a.*.b"), link_route("in", "n", connection="brokers")
    )
    before = {row["key"]: row for row in host.management.query("router.address")}
    assert (before["Cq"]["containerCount"], before["Cq"]["distribution"]) == (0, "linkBalanced")
    broker = host.active_broker()
    host.router.wait_log("Link Route Activated 'q-in' on container broker")
    host.router.wait_log("Link Route Activated 'n-in' on connection brokers")
    rows = {row["key"]: row["containerCount"] for row in host.management.query("router.address")}
    assert {key: rows[key] for key in ("Cq", "Fa.*.b", "Cn")} == {"Cq": 1, "Fa.*.b": 1, "Cn": 1}
    assert host.management.query("router")[0]["linkRouteCount"] == 3
    broker.drop()
    host.router.wait_log("Link Route Deactivated 'q-in' on container broker")


# brokers-and-edge.md LR-1, LR-2, LR-7.
def test_link_route_created_by_management_can_be_deleted(start_router: Callable[..., LinkRouteRouter]) -> None:
    host = start_router()
    broker = host.broker()
    manage = host.management
    row = manage.create(KIND, "mine", prefix="q", direction="in", containerId="broker", delExternalPrefix="q.")
    assert (row["operStatus"], row["prefix"]) == ("active", "q")
    sender = host.client().sender("q.a", wait=False)
    assert attached(broker, sender).target["address"] == "a"
    assert sender.target["address"] == "q.a"
    manage.delete(KIND, "mine")
    assert manage.query(KIND) == []
    end = broker.sessions[0].links[0]
    assert isinstance(end, PeerReceiver)
    end.flow(1)
    assert sender.wait_credit() == 1, "links that are attached stay"
    manage.create(KIND, "twice", prefix="r", direction="in")
    for attributes, text in (
        ({"direction": "in"}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        ({"direction": "in", "prefix": "a", "pattern": "b"},
         "Cannot specify both a 'prefix' and a 'pattern' attribute"),
        ({"prefix": "a"}, "No 'direction' attribute provided - it is mandatory"),
        ({"prefix": "a", "direction": "up"}, "Invalid value for 'direction'"),
        ({"prefix": "a", "direction": "in", "distribution": "closest"}, "Invalid value for 'distribution'"),
        ({"prefix": "a", "direction": "in", "containerId": "c", "connection": "d"},
         "Both connection and containerId cannot be specified. Specify only one"),
        ({"pattern": "", "direction": "in"}, "Pattern must be a non-empty string type"),
    ):  # fmt: skip
        answer = manage.ask("CREATE", attributes, type=f"org.apache.qpid.dispatch.{KIND}", name="bad")
        assert answer.outcome == (400, text)
    with pytest.raises(ManagementStatusError, match="Name conflicts with an existing entity"):
        manage.create(KIND, "twice", prefix="s", direction="in")
