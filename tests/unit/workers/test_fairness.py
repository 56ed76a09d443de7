"""Fairness of a worker's loop between established and connecting clients."""

import os
import select

import pytest

import sluice.workers.testing as testing
from sluice.workers.loop import Loop
from tests.peer.frames import AMQP_HEADER
from tests.peer.talk import begin
from tests.unit.workers.loop_connections import EMPTY, OPENING, REGION, STOP, LoopConnections

ESTABLISHED_NS = 1_000_000_000  # time from the open of a client until its traffic limits the work for others


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
        self.begun = {}  # peers by descriptor that wait for the router's header before they send their open
        self.answers = select.epoll()
        self.connect()
        self.wake()
        self.wake()
        self.poller.time_ns += ESTABLISHED_NS
        self.wake()
        self.opened: list[int] = []

    def connect_burst(self, count, steps=1):
        """Connect clients. steps: admission steps of each; 2: the client sends its open after the router's header."""
        for _ in range(count):
            self.connect(octets=OPENING if steps == 1 else AMQP_HEADER)
            self.handlers[-1].on_open = self.on_open
            if steps == 2:
                self.begun[self.far[-1].fileno()] = self.far[-1]
                self.answers.register(self.far[-1], select.EPOLLIN)

    def continue_begun(self):
        """Send the opens of clients that have received the router's header."""
        for fd, _ in self.answers.poll(0):
            self.answers.unregister(fd)
            self.begun.pop(fd).send(OPENING.removeprefix(AMQP_HEADER))

    def on_open(self, connection, remote):
        connection.send_open("router")
        self.poller.time_ns += self.STEP_NS
        self.opened.append(self.poller.time_ns)

    def wake(self, active=True, octets=2 * EMPTY):
        if self.begun:
            self.continue_begun()
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
        self.answers.close()


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


@pytest.mark.parametrize(("age", "admitted"), [(ESTABLISHED_NS // 2, 8), (ESTABLISHED_NS, 1)], ids=["new", "old"])
def test_client_delays_admission_when_established(burst, age, admitted):
    """Clients that connect and send at once do not delay each other."""
    burst.poller.time_ns += 200_000_000  # the established client has not been active for a while
    burst.connect_burst(1)
    burst.wake(active=False)
    burst.transports[0], burst.transports[1] = burst.transports[1], burst.transports[0]
    burst.far.reverse()
    burst.poller.time_ns += age
    burst.wake()  # the new client is active
    burst.connect_burst(8)
    burst.opened.clear()
    burst.wake()
    burst.wake()
    assert len(burst.opened) == admitted


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


@pytest.mark.parametrize("steps", [1, 2])
def test_long_waiting_clients_are_admitted_faster(burst, steps):
    """A client that waits for too long would abort and reconnect. Its wait begins with its first admission step."""
    burst.WAKE_NS = 150_000
    begun = burst.poller.time_ns
    burst.connect_burst(900, steps)
    while burst.poller.time_ns < begun + 2_150_000_000:
        burst.wake()
    early = sum(each < begun + 2_000_000_000 for each in burst.opened)
    late = len(burst.opened) - early
    assert late < 900 - early, "some still wait"
    assert 3 < late / 0.15 / (early / 2) < 5


def test_client_admitted_in_part_precedes_those_that_wait(burst):
    """Otherwise all clients of a burst would hold the memory of their handshakes at the same time."""
    burst.connect_burst(100, steps=2)
    most = 0
    while len(burst.opened) < 100:
        burst.wake()
        most = max(most, 100 - len(burst.begun) - len(burst.opened))
    assert most <= 2


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
