"""Connecting clients: management shows them at once; a worker is lost, or the policy changes, while they connect."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.peer.frames import error_of, source, target
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.wire import StreamEnd
from tests.system import tools
from tests.system.fixtures import Start, pair, pass_one
from tests.system.router import EVERYTHING, SETTINGS, RouterProcess, Section, listener, poll

#: Clients that connect while a worker is killed, and threads that connect them.
CLIENTS = 200
THREADS = 8
#: Pairs of established clients, so that each worker has some.
BYSTANDERS = 6
SECONDS = 60.0
CHANGED = ("amqp:connection:forced", "the policy for connections has changed")
DENIED = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")


def local_port(peer: AmqpPeer) -> int:
    return int(peer.socket.getsockname()[1])


# -- Visible at once


@pytest.mark.parametrize("workers", [1, 3])
def test_client_is_listed_as_soon_as_its_open_is_answered(start: Start, peers: list[AmqpPeer], workers: int) -> None:
    router = start([listener()], workers)
    peers.append(AmqpPeer.opened(router.port))
    management = Management(peers[0])
    for number in range(3 * workers):
        name = f"client-{number}"
        peers.append(AmqpPeer.opened(router.port, container_id=name))
        assert management.one("connection", container=name)["opened"] is True
        receiver = peers[-1].receiver(f"a{number}", 1)
        rows = management.query("router.link", "linkName", "linkDir", "owningAddr")
        assert {"linkName": receiver.name, "linkDir": "out", "owningAddr": f"M0a{number}"} in rows
        sender = peers[-1].sender(f"b{number}", credit=False)
        rows = management.query("router.link", "linkName", "linkDir", "owningAddr")
        assert {"linkName": sender.name, "linkDir": "in", "owningAddr": f"M0b{number}"} in rows


@pytest.mark.parametrize("workers", [1, 3])
def test_qdstat_shows_client_and_its_links(start: Start, peers: list[AmqpPeer], workers: int) -> None:
    router = start([listener()], workers)
    for number in range(workers):
        peers.append(AmqpPeer.opened(router.port, container_id=f"client-{number}"))
        peers[-1].receiver(f"a{number}", 1)
    shown = tools.run("stat", router.port, "-c")
    assert shown.code == 0, shown.err
    assert {f"client-{number}" for number in range(workers)} <= {row["container"] for row in shown.rows}
    links = tools.run("stat", router.port, "-l")
    assert links.code == 0, links.err
    assert {f"a{number}" for number in range(workers)} <= {row["addr"] for row in links.rows}


# -- A worker is lost


class ConnectingClient:
    """Client with two links that connects again if its connection is lost."""

    def __init__(self, router: RouterProcess, number: int) -> None:
        self.router = router
        self.container = f"client-{number}"
        self.address = f"clients/{number}"
        self.peer: AmqpPeer | None = None
        self.links: tuple[PeerReceiver, PeerSender] | None = None
        self.attempts = 0

    def connect(self) -> None:
        """Connect and attach, until both links are attached."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.attempts += 1
            try:
                self.peer = AmqpPeer.opened(self.router.port, container_id=self.container)
                self.links = self.peer.receiver(self.address, 10), self.peer.sender(self.address)
            except (StreamEnd, OSError):  # its worker was killed
                self.drop()
            else:
                return
        raise AssertionError(f"{self.container} is not connected after {self.attempts} attempts")

    def is_connected(self) -> bool:
        """Return whether a message passes over both links."""
        assert self.links is not None
        receiver, sender = self.links
        try:
            pass_one(sender, receiver, self.container)
        except (StreamEnd, OSError):
            return False
        return True

    def connect_again(self) -> None:
        """Connect again if the connection is lost."""
        if not self.is_connected():
            self.drop()
            self.connect()

    def drop(self) -> None:
        if self.peer is not None:
            self.peer.drop()
            self.peer = None


def in_threads(clients: list[ConnectingClient], action: Callable[[ConnectingClient], object]) -> list[threading.Thread]:
    """Start THREADS threads that call `action` for their share of the clients."""

    def work(share: list[ConnectingClient]) -> None:
        for client in share:
            action(client)

    threads = [threading.Thread(target=work, args=(clients[number::THREADS],)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    return threads


class Records(NamedTuple):
    """Connections of the router by container, and its links by the container of their connection (empty: unknown)."""

    connections: Counter[str]
    links: Counter[str]

    @classmethod
    def of(cls, management: Management) -> Records:
        containers = {
            row["identity"]: str(row["container"]) for row in management.query("connection", "identity", "container")
        }
        links = [row["connectionId"] for row in management.query("router.link", "connectionId")]
        return cls(Counter(containers.values()), Counter(containers.get(each, "") for each in links))


@pytest.mark.timeout(180)
def test_worker_killed_while_clients_connect_leaves_no_record(start: Start, peers: list[AmqpPeer]) -> None:
    """Clients of other workers notice nothing, all clients are connected afterwards, and the router has one record of
    each connection and link."""
    router = start([listener(), *SETTINGS], 3)

    def connect(_: str = "", container: str = "bystander") -> AmqpPeer:
        peers.append(AmqpPeer.opened(router.port, container_id=container))
        return peers[-1]

    pairs = [pair(connect, f"bystanders/{number}", 100) for number in range(BYSTANDERS)]
    workers = router.workers_of({local_port(peer) for peer in peers})
    victim = max(set(workers.values()), key=list(workers.values()).count)
    staying = [links for links in pairs if victim not in {workers[local_port(link.peer)] for link in links}]
    assert staying
    while router.worker_of(local_port(connect(container="manager"))) == victim:
        pass
    management = Management(peers[-1])

    clients = [ConnectingClient(router, number) for number in range(CLIENTS)]
    try:
        connected = threading.Semaphore(0)

        def connect_client(client: ConnectingClient) -> None:
            client.connect()
            connected.release()

        threads = in_threads(clients, connect_client)
        for _ in range(CLIENTS // 4):
            assert connected.acquire(timeout=SECONDS)
        os.kill(victim, signal.SIGKILL)
        router.wait_log(rf"\(process {victim}\) crashed with")
        for links in staying:
            pass_one(*links)
        for thread in threads:
            thread.join(SECONDS)
        # Clients that the killed worker had already connected connect again.
        for thread in in_threads(clients, ConnectingClient.connect_again):
            thread.join(SECONDS)
        assert [client.container for client in clients if not client.is_connected()] == []
        for links in staying:
            pass_one(*links)
        names = [client.container for client in clients]

        def has_one_record_each() -> bool:
            found = Records.of(management)
            return all(found.connections[name] == 1 and found.links[name] == 2 for name in names)

        poll(has_one_record_each, "each client has one connection and two links", SECONDS)
        assert Records.of(management).links[""] == 0
    finally:
        for client in clients:
            client.drop()
    lost = sum(pid == victim for pid in workers.values())

    def has_bystanders_only() -> bool:
        found = Records.of(management)
        return (
            set(found.connections) == {"bystander", "manager"}
            and set(found.links) == {"bystander", "manager"}
            and found.connections["bystander"] == found.links["bystander"] == 2 * BYSTANDERS - lost
        )

    poll(has_bystanders_only, "no connection and no link of the clients or of the killed worker is left", SECONDS)


# -- The policy changes


def vhost(users: str) -> list[Section]:
    group = {**EVERYTHING, "users": users}
    return [
        listener(),
        ("policy", {"enableVhostPolicy": True}),
        ("vhost", {"hostname": "$default", "allowUnknownUser": False, "groups": {"all": group}}),
    ]


def refusal(peer: AmqpPeer) -> tuple[str, str | None] | None:
    """Attach a link and return the error of the router's close; None if the attach is answered.

    A client that its worker has admitted by an earlier decision of the supervisor may get an answer to its begin before
    the close, but none to its attach.
    """
    try:
        peer.frame("begin", next_outgoing_id=0, incoming_window=1, outgoing_window=1)
        peer.frame(
            "attach", name="a", handle=0, role=False, source=source(), target=target("a"), initial_delivery_count=0
        )
        while (frame := peer.read_frame()).name not in ("attach", "close"):
            pass
    except (StreamEnd, OSError):
        return "closed", None
    return None if frame.name == "attach" else error_of(frame.error) or ("no error", None)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("before", ["no policy", "another policy"])
def test_policy_refuses_clients_that_open_after_reload(
    start: Start, peers: list[AmqpPeer], workers: int, before: str
) -> None:
    """No client is admitted by an outdated decision once the reload is answered, whether it connects before or after
    that."""
    admitting = [listener()] if before == "no policy" else vhost("*")
    router = start(admitting, workers)
    peers.append(AmqpPeer.opened(router.port))
    management = Management(peers[0])
    stopping, reloaded = threading.Event(), threading.Event()
    found: list[tuple[bool, bool]] = []  # of each client: opened after the reload was answered, admitted

    def connect() -> None:
        while not stopping.is_set():
            after = reloaded.is_set()
            peer = AmqpPeer.opened(router.port)
            try:
                found.append((after, refusal(peer) is None))
            finally:
                peer.drop()

    threads = [threading.Thread(target=connect) for _ in range(THREADS)]
    early = [AmqpPeer(router.port) for _ in range(4 * workers)]  # connected, and not open
    peers.extend(early)
    for thread in threads:
        thread.start()
    try:
        poll(lambda: len(found) > 20, "clients are admitted")
        router.configure(vhost("somebody"))
        management.call("RELOAD")
        reloaded.set()
        count = len(found)
        for peer in early:
            peer.open()
            assert refusal(peer) in (CHANGED, DENIED)
        poll(lambda: len(found) > count + 4 * THREADS, "clients are refused")
    finally:
        stopping.set()
        for thread in threads:
            thread.join(SECONDS)
    assert (False, True) in found
    assert (True, False) in found
    assert (True, True) not in found
    peers.append(AmqpPeer.opened(router.port))
    assert refusal(peers[-1]) == DENIED
