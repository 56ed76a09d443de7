"""The real event loop, with sockets and other workers' rings, one wake at a time."""

import contextlib
import itertools
import os
import socket
import threading
import time

import pytest
from router.amqp.connection import Connection
from workers.loop import Loop, Transport

import router.routing.testing as engine
from router.ipc.layout import Region
from router.ipc.testing import Sleeper
from tests.peer.frames import AMQP_HEADER, frame_octets
from tests.unit.engine.host import LINKS, RING_OCTETS, InProcessWorker, Router
from tests.unit.engine.talk import consumer, message, producer, say, start, transfer
from workers.client import Client

# The process keeps a pointer to the slot of the last loop: the region is never given back.
REGION = Region.create(1, LINKS, 16, RING_OCTETS)
EMPTY = frame_octets(b"")
EVENTS_A_WAKE = 256
PATIENCE = 10.0
SOCKET_OCTETS = 50_000


class Handler:
    """Of a connection that only opens."""

    def __init__(self):
        self.closed = False

    def allow_plain(self, connection):
        return True

    def on_open(self, connection, remote):
        connection.send_open("router")

    def on_closed(self, connection, error):
        self.closed = True

    def on_fault(self, connection, fault):
        raise fault


def read_all(far):
    """What lies in a socket now: octets."""
    size = 0
    with contextlib.suppress(BlockingIOError):
        while octets := far.recv(1 << 20):
            size += len(octets)
    return size


class Crowd:
    """Connections of one loop."""

    def __init__(self):
        self.loop = Loop(REGION, 0)
        self.far = []
        self.handlers = []
        self.transports = []

    def connect(self):
        """One that has opened, when the loop has made a few steps."""
        near, far = socket.socketpair()
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_OCTETS)  # Linux takes twice that
        handler = Handler()
        transport = Transport(self.loop, near.detach(), Connection(self.loop.scheduler, handler))
        self.loop.add(transport.fd, transport)
        far.send(AMQP_HEADER + say("open", container_id="test"))
        self.far.append(far)
        self.handlers.append(handler)
        self.transports.append(transport)
        return transport

    def steps(self, count=4):
        for _ in range(count):
            self.loop.step()

    def run(self, seconds):
        """Let the loop run by itself."""
        self.loop.call_at(self.loop.scheduler.now + int(seconds * 1000), lambda: setattr(self.loop, "running", False))
        self.loop.run()

    def close(self):
        for far in self.far:
            far.close()
        self.steps()
        assert all(transport.fd < 0 for transport in self.transports)


@pytest.fixture
def crowd():
    made = Crowd()
    yield made
    made.close()


def test_who_has_said_something_unread_is_not_called_silent(crowd):
    """More of them than one wake has events for, and a loop that was held up for longer than their time."""
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
    """What was said leaves, and nobody is left out for ever."""
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
    assert crowd.far[opened[0]].recv(1000)  # it did not wait for the others
    crowd.far[opened[0]].send(EMPTY)
    for _ in range(3):
        crowd.loop.step()
    assert sorted(opened) == [0, 1, 2, 3]


def test_a_paused_connection_does_not_wake_the_loop(crowd):
    """Whoever paused it did not tell the transport, and there is something to read."""
    transport = crowd.connect()
    crowd.steps()
    transport.connection.pause(1)
    crowd.far[0].send(EMPTY)
    before = REGION.worker_counters(0)["wakes"]
    crowd.run(0.1)
    assert REGION.worker_counters(0)["wakes"] - before < 5
    transport.connection.resume(1)
    crowd.steps()


def test_an_end_that_was_read_late_leaves_before_its_time_is_up(crowd):
    """The peer read while this process was held up; and the timer may find that all has left."""
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
    transport.give_up()  # it is closed already


def test_a_starved_link_is_looked_at_before_the_loop_sleeps(crowd):
    """Also one that came up when the wake had looked already."""
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


class LoopWorker(InProcessWorker):
    """A worker with the real loop; its links and ports use that one's scheduler."""

    def make_clock(self):
        return Loop(self.region, self.setup.worker)


@pytest.fixture
def two():
    """A router of two workers, whose second one runs a real loop."""
    made = Router(2, worker_types=[InProcessWorker, LoopWorker])
    yield made
    made.close()
    Loop(REGION, 0)  # counters point there again


def test_what_was_kept_while_paused_wakes_the_other_worker(two):
    """A delivery that stood behind a detach which waited for the decision on its attach."""
    own = two.workers[1]
    loop = own.clock
    loop.use_ports(own.ports)
    consuming = two.connect(0)
    consuming.feed(start() + consumer(0, "balanced.a"))
    two.settle()
    near, far = socket.socketpair()
    near.setblocking(False)
    adopted = two.core.adopt(two.core.workers[1], two.listeners["main"], "", "")
    client = Client(own, adopted.number, own.offers["main"])
    client.transport = Transport(loop, near.detach(), client.connection)
    own.clients[client.number] = client
    loop.add(client.transport.fd, client.transport)

    def settle():
        for _ in range(4):
            two.settle()

    far.send(start() + producer(0, "balanced.a"))
    settle()
    far.send(producer(1, "balanced.b") + say("detach", handle=1, closed=True) + transfer(0, 0, message(b"x")))
    loop.step()
    assert two.pause_reasons(client)
    while two.decide():  # the answer to the attach
        pass
    readable(two.eventfds[0])  # what was before
    Sleeper(two.region, 0).set()
    loop.step()
    assert readable(two.eventfds[0])
    Sleeper(two.region, 0).clear()
    far.close()
    settle()


def readable(eventfd):
    try:
        os.eventfd_read(eventfd)
    except BlockingIOError:
        return False
    return True


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
    while not port.waits:
        sending.feed(transfer(0, next(numbers), octets, settled=True))
        engine.flush(port)
    assert not readable(router.eventfds[1])
    router.settle()
    assert not port.waits
    assert readable(router.eventfds[1])  # signalled while it waited …
    sending.feed(transfer(0, next(numbers), octets, settled=True))
    engine.flush(port)
    router.settle()
    assert not readable(router.eventfds[1])  # … and not afterwards
