"""Stall reasons of consumers and producers, one scenario for each: explain, router.link and qdstat agree."""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest

from tests.peer import message
from tests.peer.links import PeerLink, PeerSender
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.system.fixtures import CAPACITY, Connect, Fresh, Start
from tests.system.networks import RouterView, TwoRouterNetwork, connector, interior, ports
from tests.system.router import EVERYTHING, RouterProcess, Section, listener, poll
from tests.system.tools import run

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
BUFFERED = 100_000
#: Messages that a group may send in a second.
RATE = 1
SECTIONS: list[Section] = [
    listener("brokers", role="route-container"),
    listener("bounded", maxBufferedMegabytes=1),
    ("linkRoute", {"prefix": "routed", "direction": "in", "containerId": "broker"}),
    ("policy", {"enableVhostPolicy": True}),
    ("vhost", {"hostname": "$default", "groups": {"all": EVERYTHING}}),
    ("vhost", {"hostname": "quota", "maxBufferedOctets": BUFFERED, "groups": {"all": EVERYTHING}}),
    ("vhost", {"hostname": "slow", "groups": {"all": {**EVERYTHING, "maxMessagesPerSecond": RATE}}}),
]
#: Exit code of `sluice explain` for an address that accepts no messages.
UNREACHABLE = 3
#: Seconds until a stall is reported, on a busy machine.
STALL_SECONDS = 30.0
#: Octets of messages that fill a socket and the router's buffers.
LARGE = 100_000
#: Seconds without progress after which a sender counts as blocked.
BLOCKED_SECONDS = 0.5
#: Messages queued for a consumer that does not read, more than are queued for one that does.
WAITING = 5
NAMES = ("linkName", "identity", "linkDir", "stall", "stallSeconds", "stallText")


def wait_stall(management: Management, link: PeerLink, word: str | None, *, text: str = "") -> dict[str, Any]:
    """Wait until management shows the stall reason `word`, with `text` in its sentence, at a link. Return its row."""

    def shown() -> dict[str, Any] | None:
        rows = management.query("router.link", *NAMES)
        found = next((row for row in rows if (row["linkName"], row["stall"]) == (link.name, word)), None)
        return found if found is not None and text in (found["stallText"] or "") else None

    found: dict[str, Any] = poll(shown, f"link {link.name} has stall {word}", STALL_SECONDS)
    return found


def check_tools_agree(
    router: RouterProcess, address: str, row: dict[str, Any], who: str, *, code: int | None = None
) -> None:
    """Check that explain and qdstat show the same reason with the name `who`."""
    assert who in row["stallText"]
    answer = run("explain", router.port, address, "--json")
    body = json.loads(answer.out)
    text = row["stallText"][:1].upper() + row["stallText"][1:]
    (finding,) = [each for each in body["findings"] if each.startswith(text)]
    assert finding.endswith(" s")
    if code is not None:
        assert answer.code == code
    links = [link for record in body["records"] for link in (*record["consumers"], *record["producers"])]
    for link in links:
        if link["identity"] == row["identity"]:
            assert (link["stall"], link["stallText"]) == (row["stall"], row["stallText"])
            assert link["stallSeconds"] >= row["stallSeconds"]
    printed = run("explain", router.port, address).out
    assert finding.rsplit(", for ", 1)[0] in printed
    shown = next(each for each in run("stat", router.port, "-l", "-v").rows if each["id"] == row["identity"])
    assert shown["stall"] == row["stall"]
    assert shown["stalled for"] != "-"


def queue(sender: PeerSender, count: int, size: int = 10) -> None:
    for _ in range(count):
        sender.send(message.data(bytes(size)))
    sender.peer.barrier()


def connect_as(connect: Connect, name: str, listener_name: str = "", **fields: Any) -> AmqpPeer:
    return connect(listener_name, container_id=name, **fields)


def test_closed_session_window_is_the_stall_reason(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    """The consumer grants credit, but its session window of 5 is never opened again."""
    address = fresh()
    consuming = connect_as(connect, "shut")
    receiver = consuming.begin(incoming_window=5).receiver(address, name=f"{address}.out", credit=100)
    sender = connect_as(connect, "sends").sender(address, name=f"{address}.in")
    queue(sender, 40)
    receiver.receive(5)
    row = wait_stall(management, receiver, "window")
    check_tools_agree(router, address, row, "client 'shut'", code=UNREACHABLE)
    assert "messages so far: 40 in, 5 out; 35 wait for consumers" in run("explain", router.port, address).out
    receiver.session.incoming_window = 1000
    receiver.session.flow()
    receiver.receive(35)
    wait_stall(management, receiver, None)
    assert run("explain", router.port, address).code == 0


def test_unread_connection_is_the_stall_reason(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    address = fresh()
    receiver = connect_as(connect, "deaf").receiver(address, name=f"{address}.out", credit=1000)
    sender = connect_as(connect, "sends").sender(address, name=f"{address}.in")
    for _ in range(CAPACITY):  # more than the socket and the write buffer hold
        sender.send(message.data(bytes(LARGE)), settled=True)
        if management.one("router.link", linkName=receiver.name)["undeliveredCount"] > WAITING:
            break
    row = wait_stall(management, receiver, "unread")
    check_tools_agree(router, address, row, "client 'deaf'", code=UNREACHABLE)
    receiver.peer.barrier()
    wait_stall(management, receiver, None)


def test_missing_credit_is_the_stall_reason(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    address = fresh()
    receiver = connect_as(connect, "frugal").receiver(address, name=f"{address}.out", credit=2)
    sender = connect_as(connect, "sends").sender(address, name=f"{address}.in")
    queue(sender, 5)
    receiver.receive(2)
    check_tools_agree(router, address, wait_stall(management, receiver, "credit"), "client 'frugal'", code=UNREACHABLE)
    receiver.flow(10)
    receiver.receive(3)
    wait_stall(management, receiver, None)


def test_missing_credit_of_broker_is_the_stall_reason(router: RouterProcess, management: Management) -> None:
    """The sender on a link route waits for credit of the container at the other end."""
    broker = RouteContainer.connected(router.ports["brokers"])
    client = AmqpPeer.opened(router.port, container_id="routed-client")
    try:
        sender = client.sender("routed.q", name="routed.in", wait=False)
        broker.link_attached()
        sender.wait_attached()
        row = wait_stall(management, sender, "broker")
        check_tools_agree(router, "routed.q", row, "container 'broker'")
        assert "at the other end of its link route, grants no credit" in row["stallText"]
    finally:
        client.drop()
        broker.drop()


def test_broker_as_consumer_is_the_stall_reason(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    """The container receives messages as an ordinary consumer, in a session whose window is closed."""
    address = fresh()
    receiver = (
        connect("brokers", container_id="waypoint")
        .begin(incoming_window=0)
        .receiver(address, name=f"{address}.out", credit=10)
    )
    # Until its flow has arrived, the container grants no credit, which has the same word.
    row = wait_stall(management, receiver, "broker", text="window")
    check_tools_agree(router, address, row, "container 'waypoint'", code=UNREACHABLE)


def test_unsettled_deliveries_are_the_stall_reason(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    address = fresh()
    receiver = connect_as(connect, "keeps").receiver(address, name=f"{address}.out", credit=1000)
    sender = connect_as(connect, "sends").sender(address, name=f"{address}.in")
    queue(sender, CAPACITY)
    deliveries = receiver.receive(CAPACITY)
    row = wait_stall(management, sender, "unsettled")
    check_tools_agree(router, address, row, f"{CAPACITY} deliveries of client 'sends'")
    for delivery in deliveries:
        delivery.settle()
    wait_stall(management, sender, None)


def test_missing_consumer_is_the_stall_reason(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    address = fresh()
    sender = connect_as(connect, "alone").sender(address, name=f"{address}.in", credit=False)
    row = wait_stall(management, sender, "no-consumer")
    assert "client 'alone'" in row["stallText"]
    done = run("explain", router.port, address)
    assert (done.code, "no consumer" in done.out) == (UNREACHABLE, True)


def fill_window(sender: PeerSender, size: int) -> None:
    """Send messages of one frame each until the router's session window is closed."""
    client, session = sender.peer, sender.session
    for _ in range(CAPACITY):
        client.barrier()
        if session.remote_window <= 0 or sender.credit <= 0:
            return
        sender.send(message.data(bytes(size)))


def test_memory_bound_is_the_stall_reason(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    """The connection holds as many octets as it may, and its sender respects the window.

    Octets in another worker do not count for this connection, so the consumer is on the same connection.
    """
    address = fresh()
    both = connect_as(connect, "fills", "bounded")
    receiver = both.receiver(address, name=f"{address}.out", credit=0)
    sender = both.sender(address, name=f"{address}.in", credit=True)
    fill_window(sender, 15_000)
    check_tools_agree(router, address, wait_stall(management, sender, "memory"), "client 'fills'", code=UNREACHABLE)
    wait_stall(management, receiver, "credit")


def test_quota_reached_is_the_stall_reason(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    address = fresh()
    connect_as(connect, "frugal", hostname="quota").receiver(address, name=f"{address}.out", credit=0)
    sender = connect_as(connect, "fills", hostname="quota").sender(address, name=f"{address}.in", credit=True)
    fill_window(sender, 15_000)
    check_tools_agree(router, address, wait_stall(management, sender, "quota"), "client 'fills'", code=UNREACHABLE)


def test_rate_limit_is_explained_although_messages_pass(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    """A sender that its group's rate slows down is not stalled, because a message passes each second."""
    address = fresh()
    receiver = connect().receiver(address, credit=10 * CAPACITY)
    sender = connect_as(connect, "slowed", hostname="slow").sender(address, name=f"{address}.in", credit=True)
    bystander = connect().sender(address, name=f"{address}.free", credit=True)
    expected = f"Group 'all' of vhost 'slow' has used up maxMessagesPerSecond ({RATE}): 1 sender to this address waits"
    assert not any("used up" in each for each in management.call("EXPLAIN", address=address)["findings"])

    def throttled() -> bool:
        """Return whether the rate is used up right after a message; on a busy machine the second may be over."""
        queue(sender, 1)
        receiver.next().settle()
        found = management.call("EXPLAIN", address=address)
        assert found["reachable"]
        return f"{expected} for credit" in found["findings"]

    poll(throttled, "the limit is named", STALL_SECONDS)
    queue(bystander, CAPACITY)
    receiver.receive(CAPACITY)


def test_next_hop_is_the_stall_reason(two_routers: TwoRouterNetwork) -> None:
    """The producer is at A; the consumer at B receives deliveries and does not settle them."""
    address = two_routers.fresh()
    receiver = two_routers.connect(two_routers.b).receiver(address, name=f"{address}.out", credit=1000)
    two_routers.at_a.wait_remote(f"M0{address}", "B")
    sender = two_routers.connect(two_routers.a).sender(address, name=f"{address}.in")
    queue(sender, CAPACITY)
    receiver.receive(CAPACITY)
    management = Management(two_routers.connect(two_routers.a))
    row = wait_stall(management, sender, "hop")
    check_tools_agree(two_routers.a, address, row, "")


def test_stall_beyond_a_hop_is_explained(two_routers: TwoRouterNetwork) -> None:
    """The consumer at B has a closed session window; explain at A reports that, and exits with UNREACHABLE."""
    address = two_routers.fresh()
    receiver = (
        two_routers.connect(two_routers.b).begin(incoming_window=0).receiver(address, name=f"{address}.out", credit=10)
    )
    two_routers.at_a.wait_remote(f"M0{address}", "B")
    row = wait_stall(Management(two_routers.connect(two_routers.b)), receiver, "window")
    done = run("explain", two_routers.a.port, address)
    assert done.code == UNREACHABLE
    assert row["stallText"][1:] in done.out


def connect_to_worker(router: RouterProcess, peers: list[AmqpPeer], pid: int, name: str) -> AmqpPeer:
    """Return a connection of worker `pid`. Each new connection goes to the worker that has the fewest."""
    for _ in range(2 * router.workers):
        one = AmqpPeer.opened(router.port, container_id=name)
        peers.append(one)
        if router.worker_of(one.socket.getsockname()[1]) == pid:
            return one
    raise AssertionError(f"no connection has come to worker {pid}")


@pytest.mark.disturbs
@pytest.mark.parametrize("workers", [3], indirect=True)
def test_full_ring_is_the_stall_reason(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """The consumer's worker is stopped, and the producer's worker fills the ring to it."""
    router = start([listener()], workers)
    address = "balanced/ring"
    stopped, sending, asking = router.worker_pids()
    connect_to_worker(router, peers, stopped, "takes").receiver(address, credit=10_000)
    sender = connect_to_worker(router, peers, sending, "sends").sender(address, name="ring.in")
    management = Management(connect_to_worker(router, peers, asking, "asks"))
    process = psutil.Process(stopped)
    process.suspend()
    try:
        while sender.send_some(message.data(bytes(LARGE)), BLOCKED_SECONDS, settled=True):
            pass
        row = wait_stall(management, sender, "ring")
    finally:
        process.resume()
    assert "client 'sends'" in row["stallText"]


@pytest.mark.disturbs
def test_next_hop_that_reads_nothing_is_the_stall_reason(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """The next hop is stopped and reads nothing. Explain is not called: it may have no path to the hop."""
    (port,) = ports(1)
    a, b = start(interior("A", port), workers), start(interior("B", to=[port]), workers)
    RouterView(a).wait_nodes(B=1)
    peers += [AmqpPeer.opened(b.port), AmqpPeer.opened(a.port, container_id="sends"), AmqpPeer.opened(a.port)]
    peers[0].receiver("far", credit=1000)
    RouterView(a).wait_remote("M0far", "B")
    sender = peers[1].sender("far", name="far.in")
    family = b.family()
    for process in family:
        process.suspend()
    try:
        for _ in range(CAPACITY):
            if not sender.send_some(message.data(bytes(LARGE)), BLOCKED_SECONDS):
                break
        management = Management(peers[2])

        def unread() -> bool:
            rows = management.query("router.link", "linkType", "stall", "stallText")
            return any(
                row["linkType"] == "inter-router"
                and row["stall"] == "hop"
                and row["stallText"].endswith("does not read its connection")
                for row in rows
            )

        poll(unread, "a link to the next hop is not read", STALL_SECONDS)
    finally:
        for process in family:
            process.resume()


# Octets passed to another worker do not count for the connection.
@pytest.mark.parametrize("workers", [1], indirect=True)
def test_window_of_next_hop_is_explained_at_both_routers(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """The next hop holds as many octets from this router as it may; explain names it at both routers."""
    (port,) = ports(1)
    a = start(interior("A", port), workers)
    b = start([*interior("B"), connector(port, maxBufferedMegabytes=1)], workers)
    RouterView(a).wait_nodes(B=1)
    peers += [AmqpPeer.opened(b.port, container_id="frugal"), AmqpPeer.opened(a.port, container_id="sends")]
    peers[0].receiver("far", credit=0)
    RouterView(a).wait_remote("M0far", "B")
    sender = peers[1].sender("far", name="far.in")
    for _ in range(CAPACITY):
        if not sender.send_some(message.data(bytes(15_000)), BLOCKED_SECONDS):
            break

    def named() -> bool:
        findings = json.loads(run("explain", a.port, "far", "--json", "--alone").out)["findings"]
        return any(each.startswith("Router 'B' (") and "takes no transfers" in each for each in findings)

    poll(named, "explain names the next hop", STALL_SECONDS)
    done = run("explain", a.port, "far", "--alone")
    assert done.code == UNREACHABLE
    assert "stalled: no path to another router accepts messages (hop)" in done.out
    assert run("explain", b.port, "far", "--alone").code == UNREACHABLE
    row = wait_stall(Management(connect_to_router(peers, a)), sender, "hop")
    assert "wait for router 'B'" in row["stallText"]


def connect_to_router(peers: list[AmqpPeer], router: RouterProcess) -> AmqpPeer:
    peers.append(AmqpPeer.opened(router.port))
    return peers[-1]
