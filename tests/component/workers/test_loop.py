"""The real event loop with sockets and rings of other workers, one wake at a time."""

import contextlib
import itertools
import os
import socket
import threading
import time

import pytest

import sluice.router.testing.engine as engine
from sluice.router.amqp.connection import Pause
from sluice.router.testing.interworker import Doorbell, RingEnd
from sluice.workers import lingering
from tests.peer.talk import consumer, message, producer, say, start, transfer
from tests.unit.workers.loop_connections import EMPTY, REGION, SOCKET_OCTETS, LoopConnections

EVENTS_PER_WAKE = 256
PATIENCE = 10.0


def read_all(far):
    """Read a socket until it is empty; return the number of octets."""
    size = 0
    with contextlib.suppress(BlockingIOError):
        while octets := far.recv(1 << 20):
            size += len(octets)
    return size


def tcp_pair():
    """Return two connected TCP sockets. Unlike a socketpair, these get a reset when octets arrive for a closed one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        return server.accept()[0], far


@pytest.fixture
def connections():
    made = LoopConnections()
    yield made
    made.close()


def test_memory_counters_are_in_slot_after_wake(connections):
    before = REGION.worker_counters(0)["given_up"]
    scheduler = connections.loop.scheduler
    for shut, given_up in ((3, 2), (1, 0)):
        scheduler.memory.windows_shut = shut
        scheduler.memory.given_up = given_up
        connections.connect()  # gives the wake something to do
        connections.steps()
        assert REGION.worker_counters(0)["windows_shut"] == shut
        assert scheduler.memory.given_up == 0
    assert REGION.worker_counters(0)["given_up"] == before + 2
    scheduler.memory.windows_shut = 0


def test_peer_with_unread_octets_is_not_silent(connections):
    """More connections are readable than one wake has events for, and the loop was held up for longer than their idle
    timeout."""
    idle = 400
    for number in range(EVENTS_PER_WAKE + 100):
        connections.connect()
        if number % 100 == 0:
            connections.steps()
    connections.steps()
    for far in connections.far:
        far.send(EMPTY)
    connections.steps()
    for transport in connections.transports:
        transport.connection.local_idle = idle
        transport.schedule()
    for far in connections.far[:-1]:
        far.send(EMPTY)
    time.sleep(1.2 * idle / 1000)
    connections.loop.step()
    assert [handler.closed for handler in connections.handlers] == [False] * (len(connections.handlers) - 1) + [True]


def test_long_wake_leaves_connections_to_next_wake(connections):
    """Output of the wake is sent, and the other connections follow in later wakes."""
    slow = 0.03

    def on_open(connection, remote):
        connection.send_open("router")
        opened.append(handlers.index(connection.handler))
        time.sleep(slow)

    opened: list[int] = []
    for _ in range(4):
        connections.connect()
    handlers = connections.handlers
    for handler in handlers:
        handler.on_open = on_open
    connections.loop.step()
    assert len(opened) == 1
    assert connections.far[opened[0]].recv(1000)  # did not wait for the others
    connections.far[opened[0]].send(EMPTY)
    connections.steps(0)
    assert sorted(opened) == [0, 1, 2, 3]


def test_paused_connection_does_not_wake_loop(connections):
    """The code that paused the connection did not notify the transport, and the socket is readable."""
    transport = connections.connect()
    connections.steps()
    transport.connection.pause(1)
    connections.far[0].send(EMPTY)
    before = REGION.worker_counters(0)["wakes"]
    connections.run(0.1)
    assert REGION.worker_counters(0)["wakes"] - before < 5
    transport.connection.resume(1)
    connections.steps()


def test_lost_peer_of_paused_connection_does_not_wake_loop(connections):
    """The socket is broken, but its octets have to be read first. epoll reports that once, not at each wait."""
    transport = connections.connect()
    connections.steps()
    transport.connection.pause(Pause.PAUSE_TURN)
    connections.far[0].send(EMPTY)
    connections.steps()
    connections.far[0].close()
    before = REGION.worker_counters(0)["wakes"]
    connections.run(0.1)
    assert REGION.worker_counters(0)["wakes"] - before < 5
    assert transport.fd >= 0
    transport.connection.resume(Pause.PAUSE_TURN)
    connections.steps()
    assert transport.fd < 0
    assert connections.handlers[0].closed


def pair_at(descriptor):
    """Return two connected sockets, the first of which has `descriptor`. The descriptor must be free."""
    near, far = socket.socketpair()
    if far.fileno() == descriptor:
        return far, near
    if near.fileno() != descriptor:
        with near:
            os.dup2(near.fileno(), descriptor, inheritable=False)
        near = socket.socket(fileno=descriptor)
    return near, far


def test_socket_shared_with_supervisor_ends_no_other_connection(connections):
    """The supervisor still holds the socket after the hand-over, and the next connection gets its descriptor."""
    gone = connections.connect()
    connections.steps()
    descriptor = gone.fd
    with socket.socket(fileno=os.dup(descriptor)):
        connections.far[0].close()
        connections.steps()
        assert gone.fd < 0
        transport = connections.connect(lambda: pair_at(descriptor))
        connections.steps()
        transport.connection.pause(Pause.PAUSE_OPEN)  # nothing is read: a broken socket ends it
        connections.steps()
        assert transport.fd == descriptor
        transport.connection.resume(Pause.PAUSE_OPEN)


def test_writing_peer_receives_reason_of_close(connections):
    transport = connections.connect(tcp_pair)
    connections.steps()
    (far,) = connections.far
    far.send(EMPTY)
    transport.connection.close("a:b", "because")
    connections.steps()
    assert transport.fd < 0
    for _ in range(3):
        far.send(EMPTY)  # fails after a reset, and earlier octets are lost
        connections.steps()
    received = b""
    while octets := far.recv(1000):
        received += octets
    assert b"because" in received
    assert len(connections.loop.lingering) == 1
    far.close()
    connections.steps()
    assert len(connections.loop.lingering) == 0


def test_lingering_socket_is_closed_after_timeout(connections, monkeypatch):
    monkeypatch.setattr(lingering, "LINGER_MS", 20)
    connections.connect(tcp_pair).connection.close()
    connections.steps()
    assert len(connections.loop.lingering) == 1
    connections.run(0.1)
    assert len(connections.loop.lingering) == 0


def test_lingering_sockets_are_bounded(connections, monkeypatch):
    monkeypatch.setattr(lingering, "MAX_SOCKETS", 2)
    for _ in range(3):
        connections.connect(tcp_pair).connection.close()
        connections.steps()
    assert len(connections.loop.lingering) == 2
    connections.far[0].send(EMPTY)  # the oldest socket was closed
    with pytest.raises(ConnectionError):
        connections.far[0].send(EMPTY)


def test_close_read_late_is_sent_before_timeout(connections):
    """The peer read while this process was held up. The timer may find that all octets have left."""
    transport = connections.connect()
    connections.steps()
    far = connections.far[0]
    far.recv(1000)
    far.setblocking(False)
    transport.connection.close("amqp:internal-error", "x" * (2 * SOCKET_OCTETS + 20_000))  # more than the socket takes
    connections.steps()
    assert transport.fd >= 0
    size = read_all(far)
    transport.give_up()
    size += read_all(far)
    assert size > 2 * SOCKET_OCTETS + 20_000
    transport.give_up()  # already closed


def test_starved_link_is_checked_before_loop_sleeps(connections):
    """A link that starves after the check of this wake is checked, too."""
    loop = connections.loop

    class StarvedLinkStub:
        def check_starved(self):
            loop.running = False
            return 0

    engine.add_starved_link(loop.scheduler, StarvedLinkStub())
    ran = threading.Thread(target=loop.run, daemon=True)
    ran.start()
    ran.join(PATIENCE)
    assert not ran.is_alive()


def readable(eventfd):
    try:
        os.eventfd_read(eventfd)
    except BlockingIOError:
        return False
    return True


def test_delivery_kept_while_paused_wakes_other_worker(routers):
    """The delivery followed a detach that waited for the decision on its attach."""
    router = routers(2)
    consuming, sending = router.connect(0), router.connect(1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    sending.feed(producer(1, "balanced.b") + say("detach", handle=1, closed=True) + transfer(0, 0, message(b"x")))
    assert router.pause_reasons(sending)
    while router.decide() and router.pause_reasons(sending):  # until the attach is answered
        for worker in router.workers:
            router.wake(worker)
    router.run(router.workers[0])  # worker 0 sleeps
    assert not readable(router.eventfds[0])
    router.wake(router.workers[1])
    assert readable(router.eventfds[0])
    router.wake(router.workers[0])


def test_producer_with_room_is_not_signalled(routers):
    router = routers(2)
    consuming, sending = router.connect(0), router.connect(1)
    consuming.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    port = router.workers[1].peers[0]
    octets = message(bytes(10_000))
    numbers = itertools.count()
    while not port.outbox.waits:
        sending.feed(transfer(0, next(numbers), octets, settled=True))
    bells, ring = Doorbell(router.region, 1), RingEnd(router.region, 1, 0)
    assert ring.producer_waits()
    assert not bells.rung(0)
    router.wake(router.workers[0])
    assert bells.rung(0)  # worker 1 is notified of room while it waits
    router.settle()
    assert not port.outbox.waits
    assert not ring.producer_waits()  # but not afterwards
