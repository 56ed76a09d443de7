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
from router.interworker.region import Region
from router.testing.interworker import Doorbell, RingEnd
from tests.peer.frames import AMQP_HEADER, frame_octets
from tests.unit.engine.host import LINKS, RING_OCTETS
from tests.unit.engine.talk import begin, consumer, message, producer, say, start, transfer
from workers import lingering

# The process keeps a pointer to the slot of the last loop, so the region is never released.
REGION = Region.create(1, LINKS, 16, RING_OCTETS)
EMPTY = frame_octets(b"")
EVENTS_A_WAKE = 256
PATIENCE = 10.0
SOCKET_OCTETS = 50_000
STOP = 1000  # descriptor of a test in its poller


class Handler:
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


class Crowd:
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
        handler = Handler()
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
def crowd():
    made = Crowd()
    yield made
    made.close()


def test_what_the_protocol_counts_is_in_the_slot_after_a_wake(crowd):
    before = REGION.worker_counters(0)["given_up"]
    scheduler = crowd.loop.scheduler
    for shut, given_up in ((3, 2), (1, 0)):
        scheduler.memory.windows_shut = shut
        scheduler.memory.given_up = given_up
        crowd.connect()  # gives the wake something to do
        crowd.steps()
        assert REGION.worker_counters(0)["windows_shut"] == shut
        assert scheduler.memory.given_up == 0
    assert REGION.worker_counters(0)["given_up"] == before + 2
    scheduler.memory.windows_shut = 0


def test_who_has_said_something_unread_is_not_called_silent(crowd):
    """More connections are readable than one wake has events for, and the loop was held up for longer than their idle
    timeout."""
    idle = 400
    for number in range(EVENTS_A_WAKE + 100):
        crowd.connect()
        if number % 100 == 0:
            crowd.steps()
    crowd.steps()
    for far in crowd.far:
        far.send(EMPTY)
    crowd.steps()
    for transport in crowd.transports:
        transport.connection.local_idle = idle
        transport.schedule()
    for far in crowd.far[:-1]:
        far.send(EMPTY)
    time.sleep(1.2 * idle / 1000)
    crowd.loop.step()
    assert [handler.closed for handler in crowd.handlers] == [False] * (len(crowd.handlers) - 1) + [True]


def test_a_long_wake_ends_before_all_have_had_their_turn(crowd):
    """Output of the wake is sent, and the other connections follow in later wakes."""
    slow = 0.03

    def on_open(connection, remote):
        connection.send_open("router")
        opened.append(handlers.index(connection.handler))
        time.sleep(slow)

    opened: list[int] = []
    for _ in range(4):
        crowd.connect()
    handlers = crowd.handlers
    for handler in handlers:
        handler.on_open = on_open
    crowd.loop.step()
    assert len(opened) == 1
    assert crowd.far[opened[0]].recv(1000)  # did not wait for the others
    crowd.far[opened[0]].send(EMPTY)
    crowd.steps(0)
    assert sorted(opened) == [0, 1, 2, 3]


class Entrance(Crowd):
    """One established client that is active in each wake, and connecting clients. On the clock of the test each
    admission step takes `STEP_NS`."""

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

    def come(self, count):
        for _ in range(count):
            self.connect()
            self.handlers[-1].on_open = self.on_open

    def on_open(self, connection, remote):
        connection.send_open("router")
        self.poller.time_ns += self.STEP_NS
        self.opened.append(self.poller.time_ns)

    def wake(self, heard=True, says=2 * EMPTY):
        come = [each for each in self.transports if self.poller.interest[each.fd] and not each.connection.remote_open]
        if heard and self.transports[0] not in come:
            self.far[0].send(says)
            come.append(self.transports[0])
        self.poller.events = [(each.fd, 1) for each in come]
        self.loop.step()
        self.poller.time_ns += self.WAKE_NS

    def close(self):
        for each in self.transports:
            os.close(each.fd)
        for far in self.far:
            far.close()


@pytest.fixture
def entrance():
    made = Entrance()
    yield made
    made.close()


def test_clients_that_come_in_have_a_small_part_of_the_time_while_others_are_heard(entrance):
    begun = entrance.poller.time_ns
    entrance.come(100)
    most = 0
    while entrance.poller.time_ns < begun + 200_000_000:
        before = len(entrance.opened)
        entrance.wake()
        most = max(most, len(entrance.opened) - before)
    assert most == 1, "and never two of them in a wake"
    taken = len(entrance.opened) * entrance.STEP_NS
    assert 0.8 / 16 < taken / 200_000_000 < 1.2 / 16


def test_clients_that_come_in_have_all_the_time_that_nobody_else_wants(entrance):
    begun = entrance.poller.time_ns
    entrance.poller.time_ns += 200_000_000  # no established client has been active for a while
    entrance.come(100)
    while len(entrance.opened) < 100:
        entrance.wake(heard=False)
    assert entrance.poller.time_ns - begun - 200_000_000 < 2 * 100 * entrance.STEP_NS


def test_a_client_that_only_lives_keeps_nobody_waiting(entrance):
    """Thousands of idle connections send heartbeats all the time."""
    begun = entrance.poller.time_ns = entrance.poller.time_ns + 200_000_000
    entrance.come(100)
    while len(entrance.opened) < 100:
        entrance.wake(says=EMPTY)
    assert entrance.poller.time_ns - begun < 2 * 100 * entrance.STEP_NS


def test_those_who_come_in_do_not_keep_each_other_waiting(entrance):
    """Each client begins a session after its open."""
    begun = entrance.poller.time_ns = entrance.poller.time_ns + 200_000_000
    entrance.come(100)
    waiting = list(zip(entrance.transports[1:], entrance.far[1:], strict=True))
    while len(entrance.opened) < 100:
        came = [(transport, far) for transport, far in waiting if transport.connection.remote_open is not None]
        waiting = [each for each in waiting if each not in came]
        for transport, far in came:
            far.send(begin(0))
            entrance.poller.events.append((transport.fd, 1))
        entrance.loop.step()
        entrance.wake(heard=False)
    assert entrance.poller.time_ns - begun < 2 * 100 * entrance.STEP_NS


def test_clients_that_have_waited_for_long_come_in_faster(entrance):
    """A client that waits for too long would abort and reconnect."""
    begun = entrance.poller.time_ns
    entrance.come(900)
    while entrance.poller.time_ns < begun + 2_150_000_000:
        entrance.wake()
    early = sum(each < begun + 2_000_000_000 for each in entrance.opened)
    late = len(entrance.opened) - early
    assert late < 900 - early, "some still wait"
    assert 3 < late / 0.15 / (early / 2) < 5


def test_clients_that_would_give_up_come_in_at_once(entrance):
    entrance.come(400)
    entrance.wake()
    entrance.poller.time_ns += 4_100_000_000
    begun, before = entrance.poller.time_ns, len(entrance.opened)
    while entrance.poller.time_ns < begun + 50_000_000:
        entrance.wake()
    taken = (len(entrance.opened) - before) * entrance.STEP_NS
    assert len(entrance.opened) < 400, "some still wait"
    assert taken / 50_000_000 > 0.5


def test_the_loop_sleeps_until_the_next_may_come_in(entrance):
    entrance.come(10)
    come = -1
    while len(entrance.opened) != come:
        come = len(entrance.opened)
        entrance.wake()
        entrance.wake()
    entrance.loop.add(STOP, lambda: setattr(entrance.loop, "running", False))
    entrance.poller.events = [(STOP, 1)]
    entrance.loop.run()
    pause = entrance.poller.waits[-1]
    assert pause > 0, "it does not ask again and again"
    entrance.poller.time_ns += pause * 1_000_000
    entrance.wake()
    assert len(entrance.opened) == come + 1


def test_a_paused_connection_does_not_wake_the_loop(crowd):
    """The code that paused the connection did not notify the transport, and the socket is readable."""
    transport = crowd.connect()
    crowd.steps()
    transport.connection.pause(1)
    crowd.far[0].send(EMPTY)
    before = REGION.worker_counters(0)["wakes"]
    crowd.run(0.1)
    assert REGION.worker_counters(0)["wakes"] - before < 5
    transport.connection.resume(1)
    crowd.steps()


def test_a_peer_that_goes_while_its_connection_has_no_turn_does_not_wake_the_loop(crowd):
    """The socket is broken, but its octets have to be read first. epoll reports that once, not at each wait."""
    transport = crowd.connect()
    crowd.steps()
    transport.connection.pause(Pause.PAUSE_TURN)
    crowd.far[0].send(EMPTY)
    crowd.steps()
    crowd.far[0].close()
    before = REGION.worker_counters(0)["wakes"]
    crowd.run(0.1)
    assert REGION.worker_counters(0)["wakes"] - before < 5
    assert transport.fd >= 0
    transport.connection.resume(Pause.PAUSE_TURN)
    crowd.steps()
    assert transport.fd < 0
    assert crowd.handlers[0].closed


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


def test_a_socket_that_another_process_has_too_ends_nobody_else(crowd):
    """The supervisor still holds the socket after the hand-over, and the next connection gets its descriptor."""
    gone = crowd.connect()
    crowd.steps()
    descriptor = gone.fd
    with socket.socket(fileno=os.dup(descriptor)):
        crowd.far[0].close()
        crowd.steps()
        assert gone.fd < 0
        transport = crowd.connect(lambda: pair_at(descriptor))
        crowd.steps()
        transport.connection.pause(Pause.PAUSE_OPEN)  # nothing is read: a broken socket ends it
        crowd.steps()
        assert transport.fd == descriptor
        transport.connection.resume(Pause.PAUSE_OPEN)


def test_a_peer_that_still_writes_reads_why_it_was_closed(crowd):
    transport = crowd.connect(tcp_pair)
    crowd.steps()
    (far,) = crowd.far
    far.send(EMPTY)
    transport.connection.close("a:b", "because")
    crowd.steps()
    assert transport.fd < 0
    for _ in range(3):
        far.send(EMPTY)  # fails after a reset, and earlier octets are lost
        crowd.steps()
    heard = b""
    while octets := far.recv(1000):
        heard += octets
    assert b"because" in heard
    assert len(crowd.loop.lingering) == 1
    far.close()
    crowd.steps()
    assert len(crowd.loop.lingering) == 0


def test_a_peer_that_does_not_close_is_left_in_time(crowd, monkeypatch):
    monkeypatch.setattr(lingering, "LINGER_MS", 20)
    crowd.connect(tcp_pair).connection.close()
    crowd.steps()
    assert len(crowd.loop.lingering) == 1
    crowd.run(0.1)
    assert len(crowd.loop.lingering) == 0


def test_few_sockets_wait_for_their_peers(crowd, monkeypatch):
    monkeypatch.setattr(lingering, "MOST", 2)
    for _ in range(3):
        crowd.connect(tcp_pair).connection.close()
        crowd.steps()
    assert len(crowd.loop.lingering) == 2
    crowd.far[0].send(EMPTY)  # the oldest socket was closed
    with pytest.raises(ConnectionError):
        crowd.far[0].send(EMPTY)


def test_an_end_that_was_read_late_leaves_before_its_time_is_up(crowd):
    """The peer read while this process was held up. The timer may find that all octets have left."""
    transport = crowd.connect()
    crowd.steps()
    far = crowd.far[0]
    far.recv(1000)
    far.setblocking(False)
    transport.connection.close("amqp:internal-error", "x" * (2 * SOCKET_OCTETS + 20_000))  # more than the socket takes
    crowd.steps()
    assert transport.fd >= 0
    size = read_all(far)
    transport.give_up()
    size += read_all(far)
    assert size > 2 * SOCKET_OCTETS + 20_000
    transport.give_up()  # already closed


def test_a_starved_link_is_looked_at_before_the_loop_sleeps(crowd):
    """A link that starves after the check of this wake is checked, too."""
    loop = crowd.loop

    class Starved:
        def check_starved(self):
            loop.running = False
            return 0

    engine.starve(loop.scheduler, Starved())
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


def test_what_was_kept_while_paused_wakes_the_other_worker(routers):
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


def test_a_producer_that_has_found_room_is_not_signalled_any_more(routers):
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
