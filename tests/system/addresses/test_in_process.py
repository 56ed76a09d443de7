"""Messages to and from the router itself (routing-semantics.md 10), through the endpoints for tests (option -T).

management.md 3.2.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver
from tests.peer.peer import AmqpPeer
from tests.system.counters import Counters
from tests.system.fixtures import CAPACITY, Connect, Fresh, Start, bodies, pair, pass_one
from tests.system.router import RouterProcess, poll

OPTIONS = ["-T"]
HOOKS = "org.apache.qpid.dispatch.router/test/"
ECHO = f"{HOOKS}echo"
MAX_OCTETS = 1048576  # maximum size in octets of a message to the router itself
#: Number of flooding clients, rounds of the flood, seconds for the reply to other clients, and octets that the router
#: may grow by. Replies of 8 MiB wait for each link, and are copied while they are forwarded.
FLOODS = 8
ROUNDS = 20
POLITE = 5.0
GROWTH = FLOODS * (12 << 20)
PREFIXES = ["", "/", "amqp:/", "amqp://anything/"]


def reply_link(connect: Connect, credit: int = 10) -> PeerReceiver:
    return connect().receiver(dynamic=True, credit=credit)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("anonymous", [False, True], ids=["targeted", "anonymous"])
@pytest.mark.parametrize("settled", [None, True], ids=["unsettled", "presettled"])
def test_message_to_router_is_answered(connect: Connect, prefix: str, anonymous: bool, settled: bool | None) -> None:
    replies = reply_link(connect)
    sender = connect().sender(None if anonymous else prefix + ECHO)
    number = sender.send(
        message.message("hello", to=prefix + ECHO, reply_to=replies.address, correlation_id=7), settled=settled
    )
    if not settled:
        outcome = sender.outcome(number)
        assert (outcome.name, outcome.settled) == ("accepted", True)
    delivery = replies.next()
    assert delivery.settled
    assert message.body(delivery.payload) == "hello"
    assert message.section_of(delivery.payload, message.PROPERTIES)[2:6] == [replies.address, None, None, 7]


def test_requests_to_the_router_are_counted(router: RouterProcess, connect: Connect) -> None:
    """Requests and replies count as other deliveries, and as to and from the container (management.md 7.1)."""
    replies = reply_link(connect, 20)
    sender = connect().sender(ECHO)
    counted = {"ingress": 10, "egress": 10, "accepted": 7, "presettled": 3, "to_container": 10, "from_container": 10}
    with Counters(router) as counters, counters.expect(**counted):
        for n in range(10):
            sender.send(message.message(n, reply_to=replies.address), settled=n < 3 or None)
        assert bodies(replies.receive(10)) == list(range(10))


@pytest.mark.parametrize("size", [0, 20_000, 200_000, MAX_OCTETS - 1000])
def test_message_up_to_size_limit_is_answered(connect: Connect, size: int) -> None:
    replies = reply_link(connect)
    sender = connect().sender(ECHO)
    assert sender.request(message.message("x" * size, reply_to=replies.address)).name == "accepted"
    assert message.body(replies.next().payload) == "x" * size


def test_oversized_message_is_rejected(connect: Connect) -> None:
    replies = reply_link(connect)
    sender = connect().sender(ECHO)
    outcome = sender.request(message.message("x" * 2 * MAX_OCTETS, reply_to=replies.address))
    assert outcome.error is not None
    assert outcome.error[0] == "amqp:link:message-size-exceeded"
    assert sender.request(message.message("next", reply_to=replies.address)).name == "accepted"
    assert message.body(replies.next().payload) == "next"


@pytest.mark.parametrize(("name", "outcome"), [("sink", "accepted"), ("discard", "rejected")])
@pytest.mark.parametrize("anonymous", [False, True], ids=["targeted", "anonymous"])
def test_sink_settles_each_message(connect: Connect, name: str, outcome: str, anonymous: bool) -> None:
    sender = connect().sender(None if anonymous else HOOKS + name)
    octets = message.message("x", to=HOOKS + name, reply_to=HOOKS + name)
    for _ in range(3 * CAPACITY):
        sender.send(octets, settled=True)
    sender.wait_credit()
    for _ in range(3 * CAPACITY):
        assert sender.request(octets).name == outcome


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_link_to_denying_endpoint_is_refused(connect: Connect, role: str) -> None:
    link = getattr(connect(), role)(HOOKS + "deny", **({"credit": False} if role == "sender" else {}))
    error = link.wait_detached()
    assert error is not None
    assert error[0] == "qd:forbidden"


SOURCES = pytest.mark.parametrize(("name", "settled"), [("source", False), ("source_ps", True)])


@SOURCES
@pytest.mark.parametrize("prefix", PREFIXES)
def test_source_sends_within_credit(connect: Connect, prefix: str, name: str, settled: bool) -> None:
    receiver = connect().receiver(prefix + HOOKS + name, 3)
    seen = receiver.receive(3)
    assert [delivery.settled or False for delivery in seen] == [settled] * 3
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 3, "no more than there is credit for"
    if not settled:
        for delivery in seen:
            delivery.settle()
    receiver.flow(200)
    seen += receiver.receive(200)
    numbers = [int(message.body(delivery.payload).removeprefix("Sequence: ")) for delivery in seen]
    assert numbers == sorted(set(numbers))
    receiver.flow(20, drain=True)
    receiver.receive(20)
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 223
    receiver.send_detach()
    receiver.wait_detached()


@SOURCES
def test_source_refuses_senders(connect: Connect, name: str, settled: bool) -> None:
    error = connect().sender(HOOKS + name, credit=False).wait_detached()
    assert error == ("qd:forbidden", "Source function only accepts outgoing links")


@pytest.mark.parametrize("address", [ECHO, "$management", "_local/$management"])
def test_reply_to_router_address_ends_there(connect: Connect, address: str) -> None:
    """The router takes precedence over consumers (routing-semantics.md A-9), and ignores its own replies."""
    deaf = connect().receiver(address, 10)
    replies = reply_link(connect)
    sender = connect().sender(ECHO)
    sender.send(message.message("loop", reply_to=address))
    sender.send(message.message("end", reply_to=replies.address))
    assert message.body(replies.next().payload) == "end"
    assert not deaf.deliveries


@pytest.mark.parametrize("treatment", ["closest", "balanced", "multicast"])
def test_replies_follow_distribution_of_address(connect: Connect, fresh: Fresh, treatment: str) -> None:
    address = fresh(treatment)
    receivers = [connect().receiver(address, 50) for _ in range(6)]
    sender = connect().sender(ECHO)
    for n in range(30):
        assert sender.request(message.message(n, reply_to=address)).name == "accepted"
    end = reply_link(connect)
    sender.send(message.message("end", reply_to=end.address))
    end.next()
    if treatment == "multicast":
        for receiver in receivers:
            assert bodies(receiver.receive(30)) == list(range(30))
        return
    arrived: list[int] = []

    def all_arrived() -> bool:
        for receiver in receivers:
            receiver.peer.read_available()
            while len(receiver.deliveries) > receiver.taken:
                arrived.append(message.body(receiver.next().payload))
        return len(arrived) >= 30

    poll(all_arrived, "30 messages at 6 receivers")
    assert sorted(arrived) == list(range(30))


def test_unread_replies_cost_bounded_memory(router: RouterProcess, connect: Connect, fresh: Fresh) -> None:
    """While clients send requests and never read replies, other clients are answered and memory stays bounded."""
    producer, consumer = pair(connect, fresh(), ROUNDS)
    replies = reply_link(connect, 2 * ROUNDS)
    asking = connect().sender(ECHO)
    asking.request(message.message("", reply_to=replies.address))
    replies.next()
    floods = []
    for _ in range(FLOODS):
        peer = connect()
        own = peer.receiver(dynamic=True)
        octets = message.properties(reply_to=own.address) + message.data(bytes(20_000))
        floods.append((peer.sender(ECHO), octets))
    before = router.memory()
    sent = 0
    for _ in range(ROUNDS):
        for sender, octets in list(floods):
            for _ in range(50):
                if not sender.send_some(octets, 0.0, settled=True):
                    floods.remove((sender, octets))  # the router has stopped reading, and the socket is full
                    break
                sent += 1
        asking.send(message.message("polite", reply_to=replies.address))
        assert message.body(replies.next(POLITE).payload) == "polite"
        pass_one(producer, consumer)
        assert router.memory() - before < GROWTH
    assert sent > 10 * FLOODS


def test_killed_worker_leaves_endpoints_usable(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """Requests that the killed worker had accepted may be lost; the router, and clients that retry, continue."""
    router = start(workers=workers, options=OPTIONS)

    def opened() -> AmqpPeer:
        peer = AmqpPeer.opened(router.port)
        peers.append(peer)
        return peer

    askers = [opened() for _ in range(6)]
    for asker in askers:
        own = asker.receiver(dynamic=True)
        sender = asker.sender(ECHO)
        for _ in range(60):
            sender.send(message.message("x" * 5000, reply_to=own.address))
    victim = router.worker_of(int(askers[0].socket.getsockname()[1]))
    os.kill(victim, signal.SIGKILL)
    router.wait_log(rf"\(process {victim}\) crashed with")
    again = opened()
    replies = again.receiver(dynamic=True, credit=10)
    sender = again.sender(ECHO)
    for n in range(10):
        assert sender.request(message.message(n, reply_to=replies.address)).name == "accepted"
    assert bodies(replies.receive(10)) == list(range(10))
