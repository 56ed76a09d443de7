"""Worker's end of the channels to the supervisor: handed-over connections, batches of messages and deltas."""

import os
import secrets
import socket
from typing import Any

import msgspec
import pytest
import zmq

from sluice.router.control.codec import decode_events, encode, encode_delta, encode_handover, join_octets
from sluice.router.control.framing import FrameDecoder, pack
from sluice.router.control.handover import MOST_READ_BEFORE, Handover, InitiateData
from sluice.router.control.messages import MESSAGES_A_PART, Ack, Closed, Forwarded, Gone, Local, Log
from sluice.router.control.messages import Control as Order
from sluice.router.control.names import deltas_path
from sluice.router.control.ops import AddressGone
from sluice.router.control.setup import WorkerSetup
from sluice.supervisor.children.channels import make_keys
from sluice.workers.control import HANDOVER_OCTETS, MESSAGES_A_WAKE, OPS_PER_WAKE, SocketChannels, WorkerControl
from tests.component.workers.loops import LoopRouter, SocketPeer
from tests.peer.talk import frames, producer, start
from tests.unit.router.control.facts import facts


def worker_setup(handover, control, keys, directory):
    """Return a setup with the worker's ends `handover` and `control` of its socket pairs."""
    return WorkerSetup(
        worker=0,
        generation=1,
        workers=1,
        region_fd=-1,
        eventfds=[],
        handover_fd=handover.detach(),
        control_fd=control.detach(),
        directory=directory,
        server_public=keys.server_public,
        client_public=keys.client_public,
        client_secret=keys.client_secret,
        cpu=None,
        router=facts(),
        log={},
    )


class HandoverPair:
    """Control channel of a worker, with the supervisor's end of the hand-over pair."""

    def __init__(self):
        self.near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keys, directory = make_keys(), f"@test-{secrets.token_hex(8)}"
        self.channel, control = socket.socketpair()
        setup = worker_setup(far, control, keys, directory)
        self.adopted: list[tuple[Any, int]] = []
        self.has_time = True
        self.control = WorkerControl(
            SocketChannels(setup),
            lambda message, raw: None,
            lambda epoch, ops: None,
            lambda *given: self.adopted.append(given),
            lambda ms, action: None,
            lambda: self.has_time,
        )

    def give(self, data):
        """Hand a connection over, let the worker take it, and return the client's end of it."""
        client = self.send(data)
        self.control.adopt()
        return client

    def send(self, data):
        """Hand a connection over and return the client's end of it."""
        client, given = socket.socketpair()
        with given:
            socket.send_fds(self.near, [data], [given.fileno()])
        return client

    def close(self):
        self.near.close()
        self.control.close()
        self.channel.close()


@pytest.fixture
def handover_pair():
    made = HandoverPair()
    yield made
    made.close()


def handover(**more):
    return encode_handover(Handover(7, "main", "127.0.0.1:1", **more))


def test_handed_over_connection_is_adopted(handover_pair):
    with handover_pair.give(handover()) as client:
        ((message, descriptor),) = handover_pair.adopted
        assert message == Handover(7, "main", "127.0.0.1:1")
        os.close(descriptor)
        assert client.recv(1) == b""
    assert handover_pair.control.pending == []


@pytest.mark.parametrize(
    ("has_time", "taken"), [(True, [1, 2, 4, 8, 16, 2, 1]), (False, [1, 1])], ids=["quiet", "active"]
)
def test_connections_taken_in_a_wake_are_bounded(handover_pair, has_time, taken):
    """Beside active clients, they are taken within the time budget of the wake, and at least one of them."""
    handover_pair.has_time = has_time
    clients = [handover_pair.send(handover()) for _ in range(33)]
    counts = []
    for number in range(len(taken)):
        if number == 6:
            clients += [handover_pair.send(handover()) for _ in range(2)]
        handover_pair.adopted.clear()
        handover_pair.control.adopt()
        counts.append(len(handover_pair.adopted))
        for _, descriptor in handover_pair.adopted:
            os.close(descriptor)
    assert counts == taken
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    "data",
    [handover(initiate=InitiateData("h", "u" * HANDOVER_OCTETS)), handover()[:-1], b'{"conn":7,"profile":1}'],
    ids=["too long", "cut", "incomplete"],
)
def test_unreadable_handover_closes_connection(handover_pair, data):
    with handover_pair.give(data) as client:
        assert client.recv(1) == b"", "its descriptor is closed"
    ((message, _),) = handover_pair.control.pending
    assert isinstance(message, Closed)
    assert message.error is not None
    assert (message.conn, message.error[0]) == (7, "amqp:internal-error")
    assert handover_pair.adopted == []
    handover_pair.give(handover()).close()
    assert len(handover_pair.adopted) == 1
    os.close(handover_pair.adopted[0][1])


def test_handover_without_number_is_logged(handover_pair):
    with handover_pair.give(b"\xff") as client:
        assert client.recv(1) == b""
    ((message, _),) = handover_pair.control.pending
    assert isinstance(message, Log)
    assert message.level == "error"


def test_octets_of_handover_precede_socket(monkeypatch, handover_pair):
    """The worker processes octets of the hand-over, then reads the socket. The opening is cut at every position."""
    router = LoopRouter()
    worker = router.workers[0]
    handover_pair.control.on_connection = worker.adopt
    opening = start() + producer(0, "balanced.a")
    try:
        for cut in range(len(opening) + 1):
            known = router.core.connections.adopt(
                router.core.workers[0], router.listeners["main"], "127.0.0.1:0", "127.0.0.1:1"
            )
            read = Handover(known.number, "main", known.peer, octets=opening[:cut])
            with handover_pair.give(encode_handover(read)) as client:
                client.setblocking(False)
                peer: Any = SocketPeer(router, client, known.number, worker)
                client.send(opening[cut:])
                router.settle()
                assert [frame.name for frame in frames(peer)] == ["open", "begin", "attach"], cut
                assert worker.faults == []
            router.settle()
        assert not worker.clients
    finally:
        router.close()


def test_handover_with_too_many_octets_is_refused(handover_pair):
    data = msgspec.json.encode(Handover(7, "main", "127.0.0.1:1", octets=bytes(MOST_READ_BEFORE + 1)))
    with handover_pair.give(data) as client:
        assert client.recv(1) == b""
    ((message, _),) = handover_pair.control.pending
    assert isinstance(message, Closed)
    assert message.error == (
        "amqp:internal-error",
        "hand-over: 32769 octets were already read from the connection, and at most 32768 are allowed",
    )


class ControlPair:
    """Control channel of a worker, with the supervisor's ends of all its sockets."""

    def __init__(self):
        keys, directory = make_keys(), f"@test-{secrets.token_hex(8)}"
        self.context = zmq.Context()
        self.deltas = self.connect(directory, keys)
        self.channel, control = socket.socketpair()
        self.frames = FrameDecoder()
        self.near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        setup = worker_setup(far, control, keys, directory)
        self.messages: list[Any] = []
        self.epochs: list[int] = []
        self.later: list[Any] = []
        self.has_time = True
        self.control = WorkerControl(
            SocketChannels(setup),
            self.on_message,
            lambda epoch, ops: self.epochs.append(epoch),
            lambda *given: None,
            lambda ms, action: self.later.append(action),
            lambda: self.has_time,
        )
        for _ in range(2):  # two subscriptions
            while not self.deltas.poll(1):  # the worker sends them once the supervisor has connected
                self.control.channels.receive_delta()
            self.deltas.recv()

    def on_message(self, message, raw):
        assert isinstance(message, Gone | Order)
        self.messages.append((message.conn, raw))

    def connect(self, directory, keys):
        made = self.context.socket(zmq.XPUB)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RECONNECT_IVL, 1)
        made.curve_server = True
        made.curve_secretkey = keys.server_secret
        made.connect(f"ipc://{deltas_path(directory, b'w0.1')}")
        return made

    def send_answers(self, first, count):
        messages: Any = [Gone(number) for number in range(first, first + count)]
        self.channel.sendall(pack([encode(messages)]))

    def receive_frame(self):
        """Return the next frame that the worker has sent."""
        while (parts := self.frames.take()) is None:
            self.frames.feed(self.channel.recv(65536))
        return parts

    def taken_per_wake(self, done):
        """Return (messages, epochs) taken in each wake, until `done`."""
        taken = []
        while not done():
            before = len(self.messages), len(self.epochs)
            self.control.go_on()
            self.control.poll()  # the descriptor is readable
            self.control.poll()
            assert self.control.busy
            taken.append((len(self.messages) - before[0], len(self.epochs) - before[1]))
        return taken

    def close(self):
        self.near.close()
        self.control.close()
        self.deltas.close()
        self.channel.close()
        self.context.term()


@pytest.fixture
def control_pair():
    made = ControlPair()
    yield made
    made.close()


def test_answers_are_taken_in_batches(control_pair):
    control_pair.send_answers(0, 3 * MESSAGES_A_WAKE)
    more: Any = [Order(100), Gone(101), Order(102)]
    control_pair.channel.sendall(pack([encode(more), b"first", b"second"]))
    taken = control_pair.taken_per_wake(lambda: len(control_pair.messages) == 3 * MESSAGES_A_WAKE + 3)
    assert max(messages for messages, _ in taken) == MESSAGES_A_WAKE
    assert control_pair.messages[:-3] == [(number, None) for number in range(3 * MESSAGES_A_WAKE)]
    assert control_pair.messages[-3:] == [(100, b"first"), (101, None), (102, b"second")]
    control_pair.taken_per_wake(lambda: not control_pair.control.more)


def test_deltas_are_taken_in_batches(control_pair):
    """Deltas do not keep answers from being processed."""
    ops: Any = [AddressGone(number) for number in range(OPS_PER_WAKE // 2)]
    for epoch in range(10):
        control_pair.deltas.send(encode_delta(epoch, ops))
    control_pair.send_answers(0, 1)
    taken = control_pair.taken_per_wake(lambda: len(control_pair.epochs) == 10 and control_pair.messages)
    assert max(epochs for _, epochs in taken) == 2
    assert control_pair.epochs == list(range(10))


def test_messages_and_deltas_without_time_are_taken_singly(control_pair):
    control_pair.has_time = False
    control_pair.send_answers(0, 3)
    for epoch in range(3):
        control_pair.deltas.send(encode_delta(epoch, []))
    control = control_pair.control
    while not control_pair.epochs:
        control.poll_deltas()
    control.poll_messages()
    assert (len(control_pair.messages), len(control_pair.epochs)) == (1, 1)
    assert control.more, "the loop does not sleep"
    # Deltas arrive through another thread, which may not have brought all of them yet.
    taken = control_pair.taken_per_wake(lambda: len(control_pair.epochs) == 3 and not control.more)
    assert len(control_pair.messages) == 3
    assert max(epochs for _, epochs in taken) <= 3, "`taken_per_wake` polls three times"


def test_events_are_sent_in_limited_frames(control_pair):
    for number in range(2 * MESSAGES_A_PART + 1):
        control_pair.control.send_event(Ack(number))
    control_pair.control.send()
    parts = [decode_events(control_pair.receive_frame()[0]) for _ in range(3)]
    assert [len(part) for part in parts] == [MESSAGES_A_PART, MESSAGES_A_PART, 1]
    assert [message.epoch for part in parts for message in part if isinstance(message, Ack)] == list(
        range(2 * MESSAGES_A_PART + 1)
    )


def test_octets_follow_messages_of_their_frame(control_pair):
    for number in range(MESSAGES_A_PART):
        control_pair.control.send_event(Ack(number))
        control_pair.control.send_event(Local("M0a", number), b"%d" % number)
    control_pair.control.send()
    taken = []
    for _ in range(2):
        encoded, *octets = control_pair.receive_frame()
        taken += join_octets(decode_events(encoded), octets)
    locals_ = [(message.conn, octets) for message, octets in taken if isinstance(message, Local)]
    assert locals_ == [(number, b"%d" % number) for number in range(MESSAGES_A_PART)]
    assert [octets for message, octets in taken if isinstance(message, Ack)] == [None] * MESSAGES_A_PART


def test_deferred_event_waits_for_another(control_pair):
    control = control_pair.control
    control.send_event_later(Forwarded(1))
    control.send_event_later(Forwarded(2))
    assert not control.dirty
    assert len(control_pair.later) == 1
    control.send_event(Ack(3))
    assert control.dirty
    control.send()
    assert decode_events(control_pair.receive_frame()[0]) == [Forwarded(1), Forwarded(2), Ack(3)]
    control_pair.later.pop()()
    assert not control.dirty, "no event waits"


def test_deferred_event_alone_is_sent_by_timer(control_pair):
    control = control_pair.control
    control.send_event_later(Forwarded(1))
    control_pair.later.pop()()
    assert control.dirty
    control.send()
    assert decode_events(control_pair.receive_frame()[0]) == [Forwarded(1)]
    control.send_event_later(Forwarded(2))
    assert len(control_pair.later) == 1, "the next one waits anew"
