"""The real event loop with sockets and rings of other workers, one wake at a time."""

import contextlib
import itertools
import os
import socket
import threading
import time

import pytest
import workers.testing as testing
from router.amqp.connection import Connection, Pause
from workers.loop import Loop
from workers.transport.tcp import TcpTransport

import router.testing.engine as engine
from router.ring.region import Region
from router.testing.interworker import Doorbell, RingEnd
from tests.peer.frames import AMQP_HEADER, frame_octets
from tests.unit.engine.host import LINKS, RING_OCTETS
from tests.unit.engine.talk import begin, consumer, message, producer, say, start, transfer
from workers import lingering

# The process keeps a pointer to the slot of the last loop, so the region is never released.
REGION = Region.create(1, LINKS, 16, RING_OCTETS)
EMPTY = frame_octets(b"")
EVENTS_PER_WAKE = 256
PATIENCE = 10.0
SOCKET_OCTETS = 50_000
STOP = 1000  # descriptor of a test in its poller


class OpeningHandler:
    """Handler of a connection that only opens."""

    def __init__(self):
        self.closed = False

    def refusal(self, connection, sasl):
        return None

    def on_open(self, connection, remote):
        connection.send_open("router")

    def on_begin(self, connection, channel, items):
        return None

    def on_closed(self, connection, error):
        self.closed = True

    def on_fault(self, connection, fault):
        raise fault


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


class LoopConnections:
    """Connections of one loop."""

    def __init__(self):
        self.loop = Loop(REGION, 0)
        self.far = []
        self.handlers = []
        self.transports = []

    def connect(self, pair=socket.socketpair):
        """Connect a client, which opens during the next steps of the loop."""
        near, far = pair()
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_OCTETS)  # Linux doubles this value
        handler = OpeningHandler()
        transport = TcpTransport(self.loop, near.detach(), Connection(self.loop.scheduler, handler))
        self.loop.add(transport.fd, transport)
        far.send(AMQP_HEADER + say("open", container_id="test"))
        self.far.append(far)
        self.handlers.append(handler)
        self.transports.append(transport)
        return transport

    def steps(self, count=4):
        """Run `count` wakes after those in which all clients open. One wake admits only a few clients."""
        while any(each.fd >= 0 and each.connection.remote_open is None for each in self.transports):
            self.loop.step()
        for _ in range(count):
            self.loop.step()

    def run(self, seconds):
        """Run the loop for so long."""
        self.loop.call_at(self.loop.scheduler.now + int(seconds * 1000), lambda: setattr(self.loop, "running", False))
        self.loop.run()

    def close(self):
        for far in self.far:
            far.close()
        while any(transport.fd >= 0 for transport in self.transports):
            self.loop.step()


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


class BurstConnections(LoopConnections):
    """An established client that is active in each wake, and connecting clients.

    On the clock of the test each admission step takes `STEP_NS`.
    """

    STEP_NS = 200_000
    WAKE_NS = 50_000

    def __init__(self):
        self.poller = testing.ManualPoller()
        self.loop = Loop(REGION, 0, self.poller)
        self.far, self.handlers, self.transports = [], [], []
        self.connect()
        self.wake()
        self.wake()
        self.opened: list[int] = []

    def connect_burst(self, count):
        for _ in range(count):
            self.connect()
            self.handlers[-1].on_open = self.on_open

    def on_open(self, connection, remote):
        connection.send_open("router")
        self.poller.time_ns += self.STEP_NS
        self.opened.append(self.poller.time_ns)

    def wake(self, active=True, octets=2 * EMPTY):
        readable_transports = [
            each for each in self.transports if self.poller.interest[each.fd] and not each.connection.remote_open
        ]
        if active and self.transports[0] not in readable_transports:
            self.far[0].send(octets)
            readable_transports.append(self.transports[0])
        self.poller.events = [(each.fd, 1) for each in readable_transports]
        self.loop.step()
        self.poller.time_ns += self.WAKE_NS

    def close(self):
        for each in self.transports:
            os.close(each.fd)
        for far in self.far:
            far.close()


@pytest.fixture
def burst():
    made = BurstConnections()
    yield made
    made.close()


def test_connecting_clients_get_small_share_beside_active_clients(burst):
    begun = burst.poller.time_ns
    burst.connect_burst(100)
    most = 0
    while burst.poller.time_ns < begun + 200_000_000:
        before = len(burst.opened)
        burst.wake()
        most = max(most, len(burst.opened) - before)
    assert most == 1, "and never two of them in a wake"
    taken = len(burst.opened) * burst.STEP_NS
    assert 0.8 / 16 < taken / 200_000_000 < 1.2 / 16


def test_connecting_clients_get_all_idle_time(burst):
    begun = burst.poller.time_ns
    burst.poller.time_ns += 200_000_000  # no established client has been active for a while
    burst.connect_burst(100)
    while len(burst.opened) < 100:
        burst.wake(active=False)
    assert burst.poller.time_ns - begun - 200_000_000 < 2 * 100 * burst.STEP_NS


def test_heartbeats_do_not_delay_connecting_clients(burst):
    """Thousands of idle connections send heartbeats all the time."""
    begun = burst.poller.time_ns = burst.poller.time_ns + 200_000_000
    burst.connect_burst(100)
    while len(burst.opened) < 100:
        burst.wake(octets=EMPTY)
    assert burst.poller.time_ns - begun < 2 * 100 * burst.STEP_NS


def test_connecting_clients_do_not_delay_each_other(burst):
    """Each client begins a session after its open."""
    begun = burst.poller.time_ns = burst.poller.time_ns + 200_000_000
    burst.connect_burst(100)
    waiting = list(zip(burst.transports[1:], burst.far[1:], strict=True))
    while len(burst.opened) < 100:
        opened_clients = [
            (transport, far) for transport, far in waiting if transport.connection.remote_open is not None
        ]
        waiting = [each for each in waiting if each not in opened_clients]
        for transport, far in opened_clients:
            far.send(begin(0))
            burst.poller.events.append((transport.fd, 1))
        burst.loop.step()
        burst.wake(active=False)
    assert burst.poller.time_ns - begun < 2 * 100 * burst.STEP_NS


def test_long_waiting_clients_are_admitted_faster(burst):
    """A client that waits for too long would abort and reconnect."""
    begun = burst.poller.time_ns
    burst.connect_burst(900)
    while burst.poller.time_ns < begun + 2_150_000_000:
        burst.wake()
    early = sum(each < begun + 2_000_000_000 for each in burst.opened)
    late = len(burst.opened) - early
    assert late < 900 - early, "some still wait"
    assert 3 < late / 0.15 / (early / 2) < 5


def test_clients_near_timeout_are_admitted_at_once(burst):
    burst.connect_burst(400)
    burst.wake()
    burst.poller.time_ns += 4_100_000_000
    begun, before = burst.poller.time_ns, len(burst.opened)
    while burst.poller.time_ns < begun + 50_000_000:
        burst.wake()
    taken = (len(burst.opened) - before) * burst.STEP_NS
    assert len(burst.opened) < 400, "some still wait"
    assert taken / 50_000_000 > 0.5


def test_loop_sleeps_until_next_admission(burst):
    burst.connect_burst(10)
    opened = -1
    while len(burst.opened) != opened:
        opened = len(burst.opened)
        burst.wake()
        burst.wake()
    burst.loop.add(STOP, lambda: setattr(burst.loop, "running", False))
    burst.poller.events = [(STOP, 1)]
    burst.loop.run()
    pause = burst.poller.waits[-1]
    assert pause > 0, "the loop does not poll"
    burst.poller.time_ns += pause * 1_000_000
    burst.wake()
    assert len(burst.opened) == opened + 1


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
