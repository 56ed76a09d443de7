"""Attach: echoed fields, refusals, generated addresses, phases, detach (routing-semantics.md 4)."""

import re
from typing import Any

import pytest

from tests.peer import frames, message
from tests.peer.frames import coordinator, source, target
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.types import Described, Map, Symbol, ULong
from tests.system.fixtures import CAPACITY, Connect, Fresh, Start, pair, pass_one
from tests.system.router import RouterProcess, Section, listener

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [
    listener("open", stripAnnotations="no"),
    ("address", {"prefix": "way", "waypoint": True}),
    ("address", {"prefix": "phased", "ingressPhase": 2, "egressPhase": 5}),
]
TEMPORARY = r"temp\.[a-zA-Z0-9+_]{15}"
NO_ROUTE = ("qd:no-route-to-dest", "No route to the destination node")
NOT_FOUND = ("amqp:not-found", "Node not found")


# --- 4.1 fields of the router's reply -------------------------------------------------------------------------------


# brokers-and-edge.md W-4.
@pytest.mark.parametrize("modes", [(0, 0), (1, 0), (2, 1), (2, 0)])
def test_receiver_attach_reply_echoes_fields(connect: Connect, fresh: Fresh, modes: tuple[int, int]) -> None:
    address = fresh()
    receiver = connect().receiver(
        address,
        name="my name",
        snd_settle_mode=modes[0],
        rcv_settle_mode=modes[1],
        properties={"mine": 1},
        offered_capabilities=["c"],
        desired_capabilities=["d"],
    )
    reply = receiver.remote
    assert reply is not None
    assert reply.fields["name"] == "my name"
    assert reply.role in (None, False)
    assert (reply.snd_settle_mode, reply.rcv_settle_mode) == modes
    assert reply.initial_delivery_count == 0
    assert (reply.properties, reply.offered_capabilities, reply.desired_capabilities) == (None, None, None)
    assert reply.unsettled in (None, {})
    assert receiver.source["address"] == address
    assert receiver.target["address"] == "test-target"


def test_sender_attach_reply_echoes_fields(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    sender = connect().sender(address, credit=False, snd_settle_mode=0, rcv_settle_mode=1)
    reply = sender.remote
    assert reply is not None
    assert reply.role is True
    assert (reply.snd_settle_mode, reply.rcv_settle_mode) == (0, 1)
    assert reply.max_message_size in (None, 0)
    assert sender.target["address"] == address
    assert sender.source["address"] == "test-source"


# routing-semantics.md A-2.
def test_termini_are_copied_to_reply(connect: Connect, fresh: Fresh) -> None:
    given: dict[str, Any] = {"durable": 2, "expiry_policy": "never", "timeout": 30, "capabilities": ["queue"]}
    address = "amqp://elsewhere/" + fresh()
    found = connect().receiver(
        source=source(address, distribution_mode="move", outcomes=["amqp:accepted:list"], **given)
    )
    assert found.source["address"] == address
    assert (found.source["durable"], found.source["expiry_policy"], found.source["timeout"]) == (2, "never", 30)
    assert found.source["distribution_mode"] == "move"
    sender = connect().sender(target=target(address, **given))
    assert (sender.target["durable"], sender.target["expiry_policy"], sender.target["timeout"]) == (2, "never", 30)


def test_filters_are_neither_confirmed_nor_applied(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    selector = Map([(Symbol("sel"), Described(Symbol("apache.org:selector-filter:string"), "colour = 'red'"))])
    receiver = connect().receiver(source=source(address, filter=selector), credit=5)
    assert not receiver.source.get("filter")
    pass_one(connect().sender(address), receiver)


# routing-semantics.md A-5.
def test_initial_delivery_count_is_honoured(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect().receiver(address, 5)
    sender = connect().sender(address, initial_delivery_count=4294967295)
    assert sender.flows[0].delivery_count == 4294967295
    assert sender.credit == 250
    for number in range(3):
        pass_one(sender, receiver, number)


# routing-semantics.md A-6.
def test_unsettled_map_is_ignored(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    again = sender.peer.sender(receiver.address, unsettled=Map([(b"tag", frames.ACCEPTED)]))
    pass_one(again, receiver)


# --- 4.2, 4.4 refusals ----------------------------------------------------------------------------------------------


def expect_refusal(peer: AmqpPeer, role: str, **fields: Any) -> tuple[str, str | None] | None:
    """Attach, expect a refusal, and return its error. The reply's requested terminus is null, the other a copy."""
    link: Any
    if role == "receiver":
        link = peer.session.receiver(wait=True, **fields)
        assert link.remote.source is None
        assert link.target.get("address") == "test-target"
    else:
        link = peer.session.sender(wait=True, credit=False, **fields)
        assert link.remote.target is None
        assert link.source.get("address") == "test-source"
    error: tuple[str, str | None] | None = link.wait_detached()
    assert link.detached.closed is True
    link.send_detach()
    peer.barrier()
    return error


@pytest.mark.parametrize("terminus", [None, source(), source("")], ids=["null source", "no address", "empty address"])
def test_receiver_without_address_is_refused(connect: Connect, terminus: Described | None) -> None:
    assert expect_refusal(connect(), "receiver", source=terminus) == NO_ROUTE


@pytest.mark.parametrize("role", ["receiver", "sender"])
@pytest.mark.parametrize("capability", ["qd.router", "qd.router-data"])
def test_router_capability_of_client_is_refused(connect: Connect, fresh: Fresh, role: str, capability: str) -> None:
    make = source if role == "receiver" else target
    side = "source" if role == "receiver" else "target"
    error = expect_refusal(connect(), role, **{side: make(fresh(), capabilities=capability)})
    assert error == ("qd:forbidden", "Connectivity to the node is forbidden")


@pytest.mark.parametrize("role", ["receiver", "sender"])
def test_unavailable_address_is_refused(connect: Connect, router: RouterProcess, role: str) -> None:
    assert expect_refusal(connect(), role, address=f"unavailable/{role}") == NOT_FOUND
    router.wait_log(rf"\[C\d+\] Link refused: dir=\w+ .*unavailable/{role}.*: amqp:not-found Node not found")


@pytest.mark.parametrize("address", ["_topo/0/OTHER/x", "_topo/all/x"])
def test_receiver_of_remote_router_address_is_refused(connect: Connect, address: str) -> None:
    assert expect_refusal(connect(), "receiver", address=address) == NO_ROUTE


def test_sender_to_remote_router_address_waits_for_credit(connect: Connect) -> None:
    sender = connect().sender("_topo/0/OTHER/x", credit=False)
    sender.peer.barrier()
    assert not sender.flows
    assert sender.detached is None


def test_coordinator_without_link_route_is_refused(connect: Connect) -> None:
    assert expect_refusal(connect(), "sender", target=coordinator()) == (
        "amqp:precondition-failed",
        "The router can't coordinate transactions by itself, a linkRoute to a coordinator must be configured to use"
        " transactions.",
    )


@pytest.mark.parametrize("role", ["receiver", "sender"])
def test_dynamic_node_of_unknown_link_route_is_refused(connect: Connect, role: str) -> None:
    make = source if role == "receiver" else target
    side = "source" if role == "receiver" else "target"
    wanted = make(None, dynamic=True, dynamic_node_properties={"x-opt-qd.address": "no.such.route"})
    assert expect_refusal(connect(), role, **{side: wanted}) == NO_ROUTE


def test_refused_attach_keeps_session_and_links(connect: Connect, fresh: Fresh) -> None:
    peer = connect()
    receiver = peer.receiver(fresh(), 5)
    expect_refusal(peer, "receiver", address="unavailable/y")
    expect_refusal(peer, "sender", address="unavailable/y")
    pass_one(peer.sender(receiver.address), receiver)


def test_default_distribution_unavailable_refuses_unknown_addresses(
    start: Start, workers: int, peers: list[AmqpPeer]
) -> None:
    sections: list[Section] = [
        listener(),
        ("router", {"defaultDistribution": "unavailable"}),
        ("address", {"prefix": "known", "distribution": "balanced"}),
    ]
    router = start(sections, workers)
    peer = AmqpPeer.opened(router.port)
    peers.append(peer)
    for role in ("receiver", "sender"):
        assert expect_refusal(peer, role, address="anything") == NOT_FOUND
        assert expect_refusal(peer, role, address="_local/anything") == NOT_FOUND
    assert expect_refusal(peer, "sender", target=coordinator())[0] == "amqp:precondition-failed"  # type: ignore[index]
    receiver = peer.receiver("known.a", 5)
    pass_one(peer.sender("known.a"), receiver)
    dynamic = peer.receiver(dynamic=True, credit=5)
    pass_one(peer.sender(), dynamic, to=dynamic.address)
    outcome = peer.sender().request(message.message(to="anything"))
    assert outcome.error == ("amqp:not-found", "Deliveries cannot be sent to an unavailable address")
    assert peer.sender("$management").credit == CAPACITY


# --- 4.2 anonymous links, 4.3 generated addresses -------------------------------------------------------------------


# routing-semantics.md A-3.
@pytest.mark.parametrize("terminus", [None, target(), target("")], ids=["null", "no address", "empty"])
def test_anonymous_link_gets_credit(connect: Connect, terminus: Described | None) -> None:
    sender = connect().sender(target=terminus)
    assert sender.credit == 250
    assert not sender.target.get("address")
    assert sender.detached is None


def test_dynamic_source_address_is_routed(connect: Connect) -> None:
    receiver = connect().receiver(dynamic=True, credit=5)
    assert re.fullmatch(r"amqp:/_topo/0/QDR/" + TEMPORARY, receiver.address), receiver.address
    assert receiver.source["dynamic"] is True
    anonymous, targeted = connect().sender(), connect().sender(receiver.address)
    pass_one(anonymous, receiver, to=receiver.address)
    pass_one(anonymous, receiver, to=receiver.address.removeprefix("amqp:/"))
    pass_one(targeted, receiver)


def test_dynamic_source_ignores_given_address(connect: Connect, fresh: Fresh) -> None:
    receiver = connect().receiver(fresh(), dynamic=True)
    assert re.fullmatch(r"amqp:/_topo/0/QDR/" + TEMPORARY, receiver.address), receiver.address


def test_dynamic_addresses_are_unique(connect: Connect) -> None:
    peer = connect()
    found = {peer.receiver(dynamic=True).address for _ in range(20)}
    assert len(found) == 20


def test_dynamic_address_ends_with_its_link(connect: Connect) -> None:
    receiver = connect().receiver(dynamic=True, credit=5)
    address = receiver.address
    sender = connect().sender()
    pass_one(sender, receiver, to=address)
    receiver.detach()
    assert sender.request(message.message(to=address)).name == "released"


def test_dynamic_target_address_is_routed(connect: Connect) -> None:
    sender = connect().sender(target=target(None, dynamic=True), credit=False)
    address = sender.target["address"]
    assert re.fullmatch(r"amqp:/_\$" + TEMPORARY, address), address
    assert sender.target["dynamic"] is True
    receiver = connect().receiver(address, 5)
    sender.wait_credit(250)
    pass_one(sender, receiver)


# --- 4.5 capabilities and phases ------------------------------------------------------------------------------------


def test_waypoint_setting_and_capability_select_phases(connect: Connect, fresh: Fresh) -> None:
    """Route: producer -> phase 0 -> waypoint -> phase 1 -> consumer."""
    address = fresh("way")
    final = connect("open").receiver(address, 5)
    waypoint = connect()
    taken = waypoint.receiver(source=source(address, capabilities="qd.waypoint_1"), credit=5)
    returned = waypoint.sender(target=target(address, capabilities=["other", "qd.waypoint"]))
    sender = connect().sender(address)
    number = sender.send(message.message("through"))
    first = taken.next()
    onward = returned.send(first.payload)
    last = final.next()
    assert message.annotation(last.payload, "x-opt-qd.phase") == 1
    last.settle()
    assert returned.outcome(onward).name == "accepted"
    first.settle()
    assert sender.outcome(number).name == "accepted"


def test_phases_are_separate_addresses(connect: Connect, fresh: Fresh, management: Management) -> None:
    address = fresh("way")
    peer = connect()
    peer.receiver(address)
    peer.sender(address, credit=False)
    keys = {row["key"] for row in management.query("router.address", "key")}
    assert {f"M0{address}", f"M1{address}"} <= keys


def test_explicit_phases_are_routed_separately(connect: Connect, fresh: Fresh) -> None:
    address = fresh("phased")
    final = connect().receiver(address, 5)  # phase 5
    sender = connect().sender(address, credit=False)  # phase 2
    sender.peer.barrier()
    assert not sender.flows
    middle = connect()
    second = middle.receiver(source=source(address, capabilities="qd.waypoint_3"), credit=5)
    onward = middle.sender(target=target(address, capabilities="qd.waypoint_5"))
    sender.wait_credit()
    number = sender.send(message.message("x"), settled=True)
    assert number == 0
    onward.send(second.next().payload, settled=True)
    final.next()


# routing-semantics.md A-4.
@pytest.mark.parametrize("capability", ["qd.waypoint_0", "qd.waypoint_10", "qd.way"])
def test_unknown_capabilities_are_ignored(connect: Connect, fresh: Fresh, capability: str) -> None:
    address = fresh()
    receiver = connect().receiver(source=source(address, capabilities=capability), credit=5)
    pass_one(connect().sender(address), receiver)


# --- 4.6 detach -----------------------------------------------------------------------------------------------------


# routing-semantics.md A-17.
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("role", ["receiver", "sender"])
def test_detach_reply_repeats_closed_flag(connect: Connect, fresh: Fresh, role: str, closed: bool) -> None:
    peer, address = connect(), fresh()
    other = connect().receiver(address, 5)
    link: Any = peer.receiver(address, name="again") if role == "receiver" else peer.sender(address, name="again")
    answer = link.detach(closed)
    assert bool(answer.closed) is closed
    assert answer.error is None
    if role == "receiver":
        again = peer.receiver(address, name="again", credit=5)
        other.detach()
        pass_one(peer.sender(address), again)
    else:
        pass_one(peer.sender(address, name="again"), other)


def test_detached_consumer_gets_no_transfers(connect: Connect, fresh: Fresh) -> None:
    """Deliveries queued for a consumer without credit end with its detach, and are not sent to it.

    routing-semantics.md A-19.
    """
    sender, receiver = pair(connect, fresh(), credit=0)
    numbers = [sender.send(message.message(n)) for n in range(3)]
    sender.peer.barrier()
    receiver.flow(10)
    receiver.send_detach()
    receiver.wait_detached()
    seen = len(receiver.deliveries)
    receiver.peer.barrier()
    assert len(receiver.deliveries) == seen
    assert {sender.outcome(number).name for number in numbers} <= {"released", "modified"}


def test_detach_error_is_not_relayed_to_peers(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    receiver.send_detach(error=frames.error("amqp:internal-error", "mine"))
    receiver.wait_detached()
    assert sender.request(message.message("x")).name == "released"
    assert sender.detached is None


# routing-semantics.md A-18.
def test_transfers_before_detach_are_delivered(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=100)
    for number in range(50):
        sender.send(message.message(number), settled=True)
    sender.send_detach()
    assert [message.body(one.payload) for one in receiver.receive(50)] == list(range(50))


def test_symbolic_descriptor_of_terminus_is_accepted(connect: Connect, fresh: Fresh) -> None:
    """A terminus with a symbolic descriptor is treated as one with a numeric descriptor."""
    address = fresh()
    terminus = Described(Symbol("amqp:source:list"), [address])
    receiver = connect().receiver(source=terminus, credit=5)
    pass_one(connect().sender(address), receiver)
    assert receiver.remote is not None
    assert receiver.remote.source.descriptor in (ULong(0x28), Symbol("amqp:source:list"))


def test_attach_replies_keep_order_of_attaches(connect: Connect) -> None:
    """A client that attaches for a reply address and for credit has the address when the credit arrives."""
    session = connect().session
    for _ in range(20):
        receiver = session.receiver(dynamic=True, credit=1, wait=False)
        sender = session.sender("$management", wait=False)
        sender.wait_credit()
        assert receiver.remote is not None, "the answer came before the credit"
        receiver.send_detach()
        sender.send_detach()
