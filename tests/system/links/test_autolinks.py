"""Auto links: links that the router attaches to brokers, with a scripted container as the broker."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peer import frames, message
from tests.peer.container import Container, ScriptedBroker, accept, refuse
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.peer.types import ULong
from tests.system.fixtures import Start, bodies
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

KIND = "router.config.autoLink"
CAPACITY = 250
#: Permitted delay in s of a retry on a busy machine.
LATE = 1.5
WAYPOINT: Section = ("address", {"prefix": "q", "waypoint": True})


def auto_link(direction: str, address: str = "q.1", **attributes: Any) -> Section:
    if not attributes.keys() & {"containerId", "connection"}:
        attributes["containerId"] = "broker"
    return "autoLink", {"name": direction, "address": address, "direction": direction, **attributes}


class AutoLinkRouter:
    """A router with a listener for brokers, and a management client."""

    def __init__(self, router: RouterProcess, containers: list[Container]) -> None:
        self.router = router
        self.containers = containers
        self.port = router.ports["clients"]
        self.management = Management(self.client())

    def client(self) -> AmqpPeer:
        peer = RouteContainer.connected(self.port, "client")
        self.containers.append(peer)
        return peer

    def container(self, container_id: str = "broker", name: str = "brokers") -> RouteContainer:
        peer = RouteContainer.connected(self.router.ports[name], container_id)
        self.containers.append(peer)
        return peer

    def row(self, name: str) -> dict[str, Any]:
        return self.management.one(KIND, name=name)

    def wait(self, name: str, state: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            row = self.row(name)
            return row if row["operStatus"] == state else None

        row: dict[str, Any] = poll(found, f"auto link {name} is {state}")
        return row


@pytest.fixture
def start_router(start: Start, workers: int) -> Iterator[Callable[..., AutoLinkRouter]]:
    """Yield a function that starts a router with the given auto links."""
    containers: list[Container] = []

    def begin(*sections: Section, count: int = workers) -> AutoLinkRouter:
        own = [listener("clients"), listener("brokers", role="route-container")]
        return AutoLinkRouter(start([*own, *sections], count), containers)

    yield begin
    for container in containers:
        container.drop()


def links(container: Container, count: int = 2, answer: bool = True) -> dict[str, Any]:
    """Return the links that the router attaches to a new container, by their direction as the router sees it."""
    container.session_begun()
    found = [container.link_attached(answer) for _ in range(count)]
    return {"in" if isinstance(link, PeerSender) else "out": link for link in found}


# brokers-and-edge.md AL-5.
def test_auto_link_attaches_have_configured_termini(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router(auto_link("out"), auto_link("in", externalAddress="other"))
    found = links(host.container())
    for direction, address in (("out", "q.1"), ("in", "other")):
        attach = found[direction].remote
        assert re.fullmatch(r"qdlink\.[A-Za-z0-9+_]{15}", attach.fields["name"])
        assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (2, 0)
        near, far = ("source", "target") if direction == "out" else ("target", "source")
        end = {"durable": 0, "expiry_policy": "link-detach", "timeout": 0}
        assert getattr(found[direction], far) == {"address": address, **end}
        assert getattr(found[direction], near) == end
    for name in ("in", "out"):
        row = host.wait(name, "active")
        (link,) = [link for link in host.management.query("router.link") if link["identity"] == row["linkRef"]]
        assert (link["linkName"], link["linkDir"]) == (found[name].name, name)
        assert link["owningAddr"] == {"in": "M1q.1", "out": "M0q.1"}[name]
        host.router.wait_log(f"Auto Link Activated '{name}' on container broker")


# brokers-and-edge.md AL-11.
def test_message_passes_through_broker(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router(WAYPOINT, auto_link("out"), auto_link("in"))
    client = host.client()
    receiver = client.receiver("q.1", credit=10)
    sender = client.sender("q.1", credit=False)
    client.barrier()
    assert sender.credit == 0, "nobody to send to"
    found = links(host.container())
    found["out"].flow(5)
    sender.wait_credit()
    number = sender.send(message.message("stored"))
    delivery = found["out"].next()
    assert message.body(delivery.payload) == "stored"
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    assert receiver.deliveries == []
    back = found["in"].send(delivery.payload)
    got = receiver.next()
    assert message.body(got.payload) == "stored"
    got.settle()
    assert found["in"].outcome(back).name == "accepted"


def test_broker_message_size_limit_is_enforced(start_router: Callable[..., AutoLinkRouter]) -> None:
    """The limit is in the broker's attach (routing-semantics.md 8.11)."""
    host = start_router(WAYPOINT, auto_link("out"))
    out = links(host.container(), 1, answer=False)["out"]
    accept(out, max_message_size=ULong(500))
    out.flow(5)
    client = host.client()
    sender = client.sender("q.1", credit=False)
    sender.wait_credit()
    outcome = sender.request(message.data(bytes(1000)))
    assert (outcome.name, outcome.error and outcome.error[0]) == ("rejected", "amqp:link:message-size-exceeded")
    number = sender.send(message.message("short"))
    delivery = out.next()
    delivery.settle()
    assert message.body(delivery.payload) == "short"
    assert sender.outcome(number).name == "accepted"


# brokers-and-edge.md AL-12.
def test_broker_without_consumer_gets_no_credit(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router(WAYPOINT, auto_link("in"))
    sender = links(host.container(), 1)["in"]
    host.wait("in", "active")
    sender.peer.barrier()
    assert sender.credit == 0, "nobody receives"
    first = host.client().receiver("q.1", credit=1)
    assert sender.wait_credit(CAPACITY) == CAPACITY
    first.send_detach()
    sender.peer.until(lambda: sender.credit == 0, "the credit is taken back")
    assert not sender.draining, "brokers take a drain badly"
    outcome = sender.request(message.message("early"))
    assert outcome.name == "released", "it was on its way"
    receiver = host.client().receiver("q.1", credit=1)
    sender.wait_credit()
    sender.send(message.message("late"))
    assert bodies([receiver.next()]) == ["late"]


def test_connection_attribute_selects_connection_by_name(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router(auto_link("out", connection="brokers"), auto_link("in", connection="clients"))
    one, two = host.container("a"), host.container("b")
    first, second = links(one, 1), links(two, 1)
    assert list(first) == list(second) == ["out"]
    assert host.wait("out", "active")
    assert host.row("in")["operStatus"] == "inactive", "normal connections are no containers"
    host.router.wait_log("Auto Link Activated 'out' on connection brokers")
    one.drop()
    host.router.wait_log("Auto Link Deactivated 'out' on connection brokers")
    assert host.row("out")["operStatus"] == "active", "on the other connection"


@pytest.mark.parametrize("direction", ["out", "in"])
def test_refused_auto_link_is_shown_and_retried(start_router: Callable[..., AutoLinkRouter], direction: str) -> None:
    host = start_router(auto_link(direction, "dead"))
    container = host.container()
    link = links(container, 1, answer=False)[direction]
    row = host.wait(direction, "attaching")
    assert row["linkRef"] is not None
    refuse(link, "amqp:not-found", "no such queue")
    link.wait_detached()
    refused = time.monotonic()
    assert link.detached is not None
    assert link.detached.closed
    row = host.wait(direction, "failed")
    assert (row["lastError"], row["linkRef"]) == ("no such queue", None)
    host.router.wait_log(f"Auto Link Activation Failed. no such queue '{direction}' on container broker")
    again = container.link_attached(answer=False, timeout=3 + LATE)
    assert time.monotonic() - refused > 1.5
    assert again.name != link.name
    assert host.row(direction)["lastError"] == "no such queue"
    accept(again)
    assert host.wait(direction, "active")["lastError"] is None
    again.send_detach()
    again.wait_detached()
    detached = time.monotonic()
    host.wait(direction, "failed")
    wanted = PeerReceiver if direction == "out" else PeerSender
    assert isinstance(container.link_attached(timeout=6 + LATE), wanted)
    assert time.monotonic() - detached > 4


# RabbitMQ refuses links in this way.
@pytest.mark.parametrize("answer", [False, True], ids=["unanswered", "active"])
def test_auto_link_with_ended_session_shows_reason(start_router: Callable[..., AutoLinkRouter], answer: bool) -> None:
    host = start_router(auto_link("out", "q.2"), auto_link("in"))
    found = links(host.container(), answer=answer)
    found["in"].session.end(frames.error("amqp:not-found", "no queue 'q.1' in vhost '/'"))
    for direction in ("in", "out"):
        assert host.wait(direction, "failed")["lastError"] == "amqp:not-found no queue 'q.1' in vhost '/'"
    assert host.router.log.count("Auto Link Activated") == (2 if answer else 0), "logged only after the answer"


def test_auto_link_to_missing_queue_takes_no_other_auto_links_along(
    start_router: Callable[..., AutoLinkRouter],
) -> None:
    """RabbitMQ ends the whole session of a link to a queue that it does not have."""
    host = start_router(auto_link("out", "q.good"), auto_link("in", "q.missing"))
    container = host.container()
    found = links(container)
    found["in"].session.end(frames.error("amqp:not-found", "no queue"))
    missing, good = container.link_attached(), container.link_attached()
    if isinstance(missing, PeerReceiver):
        missing, good = good, missing
    assert (type(missing), type(good)) == (PeerSender, PeerReceiver)
    for _ in range(2):
        host.wait("out", "active")
        missing.session.end(frames.error("amqp:not-found", "no queue"))
        host.wait("in", "failed")
        assert host.row("out")["operStatus"] == "active"
        missing = container.link_attached()
    host.router.wait_log(r"\(warning\) Auto link 'in' on container broker is down: amqp:not-found no queue")
    assert host.router.log.count("Auto link 'out' on container broker is down") == 0, "another link was the reason"


# brokers-and-edge.md AL-13.
def test_auto_link_to_missing_queue_gets_no_messages_until_queue_exists(
    start_router: Callable[..., AutoLinkRouter],
) -> None:
    """RabbitMQ 3.10 accepts the link that sends to a missing queue, and discards its messages."""
    host = start_router(WAYPOINT, auto_link("out"), auto_link("in"))
    container = host.container()
    container.session_begun()
    container.link_attached(answer=False).session.end(frames.error("amqp:not-found", "no queue 'q.1'"))
    sender = host.client().sender("q.1", credit=False)
    container.link_attached(answer=False).session.end(frames.error("amqp:not-found", "no queue 'q.1'"))
    reason = "the broker has no 'q.1', and might discard messages for it: amqp:not-found no queue 'q.1'"
    for name, text in (("in", "amqp:not-found no queue 'q.1'"), ("out", reason)):
        assert host.wait(name, "failed")["lastError"] == text
        host.router.wait_log(rf"\(warning\) Auto link '{name}' on container broker is down: {text}")
    (row,) = [row for row in host.management.query("router.link") if row["owningAddr"] == "M0q.1"]
    assert row["creditAvailable"] == 0
    receiver, out = container.link_attached(timeout=6 + LATE), container.link_attached()
    assert (type(receiver), type(out)) == (PeerSender, PeerReceiver)
    host.wait("out", "active")
    sender.wait_credit()


def test_auto_link_with_ended_session_without_error_is_explained(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router(auto_link("out"))
    links(host.container(), 1)["out"].session.end()
    assert host.wait("out", "failed")["lastError"] == "the peer has ended the session without a reason"


def test_lost_connection_deactivates_auto_links(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router(auto_link("out", "q.2"), auto_link("in"))
    container = host.container()
    found = links(container, answer=False)
    refuse(found["out"], "amqp:not-found", "gone")
    accept(found["in"])
    host.wait("out", "failed")
    host.wait("in", "active")
    container.drop()
    for name in ("in", "out"):
        row = host.wait(name, "inactive")
        assert (row["linkRef"], row["lastError"]) == (None, None)
        host.router.wait_log(f"Auto Link Deactivated '{name}' on container broker")
    again = host.container()
    assert sorted(links(again)) == ["in", "out"]


# brokers-and-edge.md AL-9.
def test_auto_link_created_by_management_can_be_deleted(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router()
    container = host.container()
    made = host.management.create(KIND, "made", address="x", direction="out", containerId="broker", fallback=False)
    assert (made["phase"], made["dir"], made["addr"], made["operStatus"]) == (0, "out", "x", "attaching")
    link = links(container, 1)["out"]
    host.wait("made", "active")
    assert host.management.query("router")[0]["autoLinkCount"] == 1
    host.management.delete(KIND, "made")
    assert link.wait_detached() is None
    link.send_detach()
    assert host.management.query(KIND) == []
    rows = host.management.query("router.address")
    poll(lambda: "M0x" not in [row["name"] for row in rows], "the address is gone")
    host.management.create(KIND, "again", addr="x", dir="in", containerId="broker")
    assert isinstance(container.link_attached(), PeerSender)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"direction": "in"}, "address and direction fields are mandatory"),
        ({"address": "a"}, "address and direction fields are mandatory"),
        ({"address": "a", "direction": "up"}, "Invalid value for 'direction'"),
        ({"address": "a", "direction": "in", "phase": 10}, "autoLink phase must be between 0 and 9"),
        (
            {"address": "a", "direction": "in", "connection": "c", "containerId": "i"},
            "Both connection and containerId cannot be specified. Specify only one",
        ),
    ],
)
def test_invalid_auto_link_is_refused(start: Start, attributes: dict[str, Any], text: str) -> None:
    management = Management(AmqpPeer.opened(next(iter(start([listener()], 1).ports.values()))))
    with pytest.raises(ManagementStatusError) as caught:
        management.create(KIND, "x", **attributes)
    assert (caught.value.code, caught.value.description) == (400, text)


def test_phases_route_through_two_brokers(start_router: Callable[..., AutoLinkRouter]) -> None:
    """A message passes through a chain of two brokers (brokers-and-edge.md AL-10)."""
    host = start_router(
        ("address", {"prefix": "chain", "ingressPhase": 0, "egressPhase": 2}),
        auto_link("out", "chain", name="out0", phase=0, containerId="one"),
        auto_link("in", "chain", name="in1", phase=1, containerId="one"),
        auto_link("out", "chain", name="out1", phase=1, containerId="two"),
        auto_link("in", "chain", name="in2", phase=2, containerId="two"),
    )
    one, two = links(host.container("one")), links(host.container("two"))
    client = host.client()
    receiver = client.receiver("chain", credit=10)
    sender = client.sender("chain")
    sender.send(message.message("step"), settled=True)
    for broker in (one, two):
        broker["out"].flow(1)
        delivery = broker["out"].next()
        assert receiver.deliveries == []
        broker["in"].wait_credit()
        broker["in"].send(delivery.payload, settled=True)
    assert bodies([receiver.next()]) == ["step"]


def test_fallback_auto_links_use_fallback_address(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router(
        ("address", {"prefix": "f", "enableFallback": True}),
        auto_link("out", "f", fallback=True),
        auto_link("in", "f", fallback=True),
    )
    found = links(host.container())
    found["out"].flow(10)
    host.wait("out", "active")
    client = host.client()
    sender = client.sender("f")
    sender.send(message.message("kept"), settled=True)
    kept = found["out"].next()
    assert bodies([kept]) == ["kept"]
    assert found["in"].credit == 0, "what came back would only be released"
    receiver = client.receiver("f", credit=10)
    found["in"].wait_credit()
    back = found["in"].send(kept.payload)
    assert bodies([receiver.next()]) == ["kept"]
    receiver.deliveries[0].settle()
    assert found["in"].outcome(back).name == "accepted"
    sender.send(message.message("direct"), settled=True)
    assert bodies([receiver.next()]) == ["direct"]
    assert len(found["out"].deliveries) == 1
    assert {row["name"] for row in host.management.query("router.address")} >= {"M0f", "MFf"}


def test_sharded_queue_spreads_and_collects_messages(start_router: Callable[..., AutoLinkRouter]) -> None:
    """Producers spread over the shards, and one consumer drains all of them while a shard comes and goes."""
    shards = [
        auto_link(way, "q.s", name=f"{way}-{broker}", containerId=broker) for broker in "ab" for way in ("in", "out")
    ]
    host = start_router(WAYPOINT, *shards)
    first = links(host.container("a"))
    first["out"].flow(100)
    client = host.client()
    receiver = client.receiver("q.s", credit=100)
    sender = client.sender("q.s")
    sender.send(message.message("1"))
    assert bodies([first["out"].next()]) == ["1"]
    other = host.container("b")
    second = links(other)
    second["out"].flow(100)
    host.wait("out-b", "active")
    second["out"].peer.barrier()
    host.client().receiver("unrelated")
    for number in range(2, 8):
        sender.send(message.message(str(number)))
    poll(lambda: [link.peer.read_available() for link in (first["out"], second["out"])] and
         len(first["out"].deliveries) + len(second["out"].deliveries) == 7, "all have come")  # fmt: skip
    assert abs(len(first["out"].deliveries) - len(second["out"].deliveries)) <= 1
    for shard in (first, second):
        shard["in"].wait_credit()
        for delivery in shard["out"].deliveries:
            delivery.settle()
            shard["in"].send(delivery.payload, settled=True)
    assert sorted(bodies(receiver.receive(7))) == [str(number) for number in range(1, 8)]
    other.close()
    host.wait("out-b", "inactive")
    sender.send(message.message("8"))
    poll(lambda: first["out"].peer.read_available() or bodies(first["out"].deliveries)[-1] == "8", "the one that stays")


@pytest.mark.disturbs("a worker is killed")
def test_auto_link_over_connector_survives_worker_kill(start: Start) -> None:
    broker = ScriptedBroker()
    try:
        sections = [
            listener("clients"),
            ("connector", {"name": "broker", "host": "127.0.0.1", "port": broker.port, "role": "route-container"}),
            auto_link("out", connection="broker"),
        ]
        router = start(sections, 3)
        for _ in range(3):
            container = broker.serve(timeout=5)
            link = links(container, 1)["out"]
            link.flow(1)
            sender = AmqpPeer.opened(router.ports["clients"]).sender("q.1")
            sender.send(message.message("x"))
            assert bodies([link.next()]) == ["x"]
            os.kill(router.worker_of(broker.port), signal.SIGKILL)
            container.expect_end()
    finally:
        broker.close()


def test_reload_replaces_changed_auto_link_only(start_router: Callable[..., AutoLinkRouter]) -> None:
    host = start_router(auto_link("out", "a"), auto_link("in", "b"))
    container = host.container()
    found = links(container)
    own = [listener("clients"), listener("brokers", role="route-container")]
    host.router.configure([*own, auto_link("out", "a", externalAddress="c"), auto_link("in", "b")])
    plan = host.management.call("RELOAD")
    assert [(change["kind"], list(change["attributes"])) for change in plan["changes"]] == [
        ("update", ["externalAddress"])
    ]
    assert found["out"].wait_detached() is None
    found["out"].send_detach()
    assert container.link_attached().target["address"] == "c"
    assert found["in"].detached is None
