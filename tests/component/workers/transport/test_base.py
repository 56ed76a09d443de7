"""Second transport in a real loop: handshake of two messages, buffered octets, odd chunks, other events.

The transport stands for TLS and WebSocket. Each octet of AMQP is inverted (xor 0xFF) and travels in records of a
length and that many octets, so that octets on the socket are never octets of AMQP.
"""

import os
import socket
from typing import Any

import pytest

from sluice.router.control.handover import Handover
from sluice.router.ring.region import Region
from sluice.workers.loop import Loop
from sluice.workers.poller import EpollPoller
from sluice.workers.testing import ManualPoller, ScriptedTransport
from tests.component.workers.loops import LoopRouter, SocketPeer
from tests.peer.talk import consumer, frames, message, messages, of, producer, say, start, transfer

HELLO, WELCOME, GO = b"HELLO", b"WELCOME", b"GO"
RECORD = 251  # bound for the octets of AMQP in a record


def invert(octets: bytes) -> bytes:
    return bytes(octet ^ 0xFF for octet in octets)


def encode_records(octets: bytes) -> bytes:
    """Return the octets as they travel."""
    parts = [octets[at : at + RECORD] for at in range(0, len(octets), RECORD)]
    return b"".join(bytes((len(part),)) + invert(part) for part in parts)


class RecordScript:
    """Router's end of the transport: the behaviour of a ScriptedTransport on a socket."""

    def __init__(self, ours: socket.socket, read_most: int, write_most: int) -> None:
        self.socket = ours
        self.read_most = read_most  # bound for the octets that one read gives to the loop
        self.write_most = write_most  # bound for the octets that one write gives to the socket
        self.raw = b""
        self.plain = b""  # decoded, not read
        self.out = b""  # encoded, not sent
        self.stage = HELLO
        self.closed = False
        self.ended = False
        self.handshakes = 0

    def _receive(self) -> None:
        try:
            octets = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        self.ended |= not octets
        self.raw += octets

    def _send(self) -> None:
        while self.out:
            try:
                self.out = self.out[self.socket.send(self.out[: self.write_most]) :]
            except BlockingIOError:
                return
            if self.write_most < 1000:
                return  # like a socket without further room

    def handshake(self) -> bool | None:
        self.handshakes += 1
        self._send()
        self._receive()
        if self.stage == HELLO and len(self.raw) >= len(HELLO):
            if self.raw[: len(HELLO)] != HELLO:
                return False
            self.raw = self.raw[len(HELLO) :]
            self.out, self.stage = WELCOME, GO
            self._send()
        if self.stage == GO and len(self.raw) >= len(GO) and not self.out:
            self.raw, self.stage = self.raw[len(GO) :], b""
            self._decode()
            return True
        return False if self.ended else None

    def _decode(self) -> None:
        while self.raw and len(self.raw) > self.raw[0]:
            size = self.raw[0]
            self.plain += invert(self.raw[1 : 1 + size])
            self.raw = self.raw[1 + size :]

    def read(self, size: int) -> bytes | None:
        if not self.plain:
            self._receive()
            self._decode()
        if not self.plain:
            return b"" if self.ended else None
        octets, self.plain = self.plain[: self.read_most], self.plain[self.read_most :]
        return octets

    def write(self, octets: bytes) -> int | None:
        if self.out:
            self._send()
            if self.out:
                return None
        taken = octets[: 3 * RECORD]
        self.out += encode_records(taken)
        self._send()
        return len(taken)

    def preload(self, octets: bytes) -> None:
        self.raw = octets + self.raw

    def pending(self) -> bool:
        return bool(self.plain)

    def unsent(self) -> bool:
        return bool(self.out)

    def wants(self) -> str:
        return ("r" if self.stage else "") + ("w" if self.out else "")

    def shutdown(self) -> None:
        self.closed = True
        self.socket.close()


class RecordsPeer(SocketPeer):
    """Client that speaks records."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.raw = b""

    def feed(self, octets: bytes) -> None:
        super().feed(encode_records(octets))

    def collect(self) -> None:
        self.raw += super().take()

    def take(self) -> bytes:
        self.collect()
        octets = b""
        while self.raw and len(self.raw) > self.raw[0]:
            size = self.raw[0]
            octets += invert(self.raw[1 : 1 + size])
            self.raw = self.raw[1 + size :]
        return octets


class RecordsRouter(LoopRouter):
    """Router whose connections all use that transport."""

    read_most, write_most = 7, 1 << 20
    scripts: list[RecordScript]

    def __init__(self, workers_number: int = 1) -> None:
        self.scripts = []
        super().__init__(workers_number)
        for worker in self.workers:
            worker.transport = self.make

    def make(self, loop: Any, descriptor: int, connection: Any) -> Any:
        transport = ScriptedTransport(loop, descriptor, connection)
        transport.script = RecordScript(socket.socket(fileno=socket.dup(descriptor)), self.read_most, self.write_most)
        transport.script.socket.setblocking(False)
        self.scripts.append(transport.script)
        return transport

    def hand_over(self, worker: int, message: Handover, known: Any) -> Any:
        plain = super().hand_over(worker, message, known)
        peer = RecordsPeer(self, plain.socket, plain.number, plain.worker)
        self.peers[-1] = peer  # type: ignore[call-overload]
        return peer

    def complete_handshake(self, peer: RecordsPeer) -> None:
        peer.socket.send(HELLO)
        self.settle()
        assert SocketPeer.take(peer) == WELCOME
        peer.socket.send(GO)

    def close(self) -> None:
        super().close()
        for script in self.scripts:
            script.socket.close()


@pytest.fixture(params=[(1, 1 << 20), (7, 5), (100_000, 1 << 20)], ids=["octets", "pieces", "whole"])
def router(monkeypatch, request):
    monkeypatch.setattr(RecordsRouter, "read_most", request.param[0])
    monkeypatch.setattr(RecordsRouter, "write_most", request.param[1])
    made = RecordsRouter()
    yield made
    made.close()


def settle(router):
    """Run the router until no octets are buffered. Wakes of the loop, not events, take them out."""
    quiet = 0
    for _ in range(5000):
        router.settle()
        for peer in router.peers:
            peer.collect()  # a socket holds few chunks, however small they are
        busy = any(script.pending() or script.unsent() for script in router.scripts)
        quiet = 0 if busy or not router.workers[0].loop.idle() else quiet + 1
        if quiet == 3:
            return
    raise AssertionError("still not quiet")


def test_messages_pass_through_transport(router):
    receiving, sending = router.connect(), router.connect()
    for peer in (receiving, sending):
        router.complete_handshake(peer)
    receiving.feed(start() + consumer(0, "balanced.a", 10))
    sending.feed(start() + producer(0, "balanced.a"))
    settle(router)
    body = bytes(range(256)) * 3
    sending.feed(b"".join(transfer(0, number, message(body), settled=True) for number in range(5)))
    settle(router)
    assert messages(frames(receiving)) == [message(body)] * 5


def test_amqp_behind_end_of_handshake_is_read(router):
    peer = router.connect()
    peer.socket.send(HELLO)
    router.settle()
    assert SocketPeer.take(peer) == WELCOME
    peer.socket.send(GO + encode_records(start()))
    settle(router)
    assert of(frames(peer), "open")


def test_failed_handshake_ends_connection(router):
    peer = router.connect()
    peer.socket.send(b"GET / HTTP/1.1")
    router.settle()
    assert peer.take() == b""
    assert peer.gone
    assert router.scripts[0].closed
    assert not router.workers[0].clients


def test_peer_lost_during_handshake_is_removed(router):
    peer = router.connect()
    peer.socket.send(HELLO[:2])
    router.settle()
    peer.lose()
    router.settle()
    assert not router.workers[0].clients


def test_last_octets_are_sent_before_close(router):
    peer = router.connect()
    router.complete_handshake(peer)
    peer.feed(start())
    settle(router)
    frames(peer)
    peer.feed(say("close"))
    settle(router)
    assert of(frames(peer), "close")
    assert peer.gone
    assert router.scripts[0].closed


def test_buffered_octets_of_paused_connection_are_read_on_resume(router):
    peer = router.connect()
    router.complete_handshake(peer)
    peer.feed(start())
    settle(router)
    frames(peer)
    peer.client.connection.pause(1)
    peer.feed(say("close"))
    settle_rounds(router)
    assert frames(peer) == []
    peer.client.connection.resume(1)
    settle(router)
    assert of(frames(peer), "close")


def settle_rounds(router):
    for _ in range(5):
        router.settle()


def test_loop_does_not_sleep_with_buffered_octets(monkeypatch):
    """The loop runs by itself. epoll does not report octets that a read has left in the transport."""
    monkeypatch.setattr(RecordsRouter, "read_most", 1)
    router = RecordsRouter()
    try:
        peer: Any = router.connect()
        router.complete_handshake(peer)
        peer.feed(start())
        loop = router.workers[0].loop
        before = router.region.worker_counters(0)["wakes"]

        def check_open():
            if peer.client.connection.remote_open is not None:
                loop.running = False
            else:
                loop.call_at(loop.scheduler.now + 1, check_open)

        loop.call_at(loop.scheduler.now + 1, check_open)
        loop.call_at(loop.scheduler.now + 10_000, lambda: setattr(loop, "running", False))
        loop.run()
        assert peer.client.connection.remote_open is not None
        opening = 8 + int.from_bytes(start()[8:12], "big")  # header and open; later octets may be unread
        assert router.region.worker_counters(0)["wakes"] - before >= opening - 1, "one octet a wake"
    finally:
        router.close()


# -- Pollers

REGION = Region.create(1, 16, 16, 1 << 12)  # the process keeps a pointer to the slot of the last loop


def test_loop_uses_events_and_time_of_poller():
    poller = ManualPoller()
    loop = Loop(REGION, 0, poller)
    called = []
    loop.add(5, lambda: called.append("event"))
    loop.call_at(loop.scheduler.now + 100, lambda: called.append("timer"))
    poller.events.append((5, 1))
    loop.step()
    assert called == ["event"]
    loop.step()
    assert called == ["event"]
    poller.time_ns += 100_000_000
    loop.step()
    assert called == ["event", "timer"]
    loop.call_at(loop.scheduler.now + 250, lambda: setattr(loop, "running", False))
    poller.waits.clear()

    def pass_time():
        poller.time_ns += 250_000_000

    loop.add(6, pass_time)
    poller.events.append((6, 1))
    loop.run()
    assert poller.waits[0] == 250, "the loop waits until the timer is due"
    assert poller.interest == {5: 1, 6: 1}
    loop.remove(5)
    assert poller.interest == {6: 1}


def test_default_poller_is_epoll():
    assert isinstance(EpollPoller(), EpollPoller)
    loop = Loop(REGION, 0)
    closed = os.dup(REGION.fd)
    os.close(closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        loop.add(closed, print)


def test_memory_loop_runs_until_it_would_sleep(routers):
    """Whatever would wake the loop makes it run again."""
    router = routers(2)
    called: list[int] = []
    worker = router.workers[0]
    router.run(worker)
    assert not worker.poller.awaited()
    begun = worker.loop.scheduler.now
    for due in (5, 3, 9):
        worker.loop.call_at(begun + due, lambda: called.append(worker.loop.scheduler.now - begun))
    router.pass_time(4)
    assert called == [3]
    router.pass_time(6)
    assert called == [3, 5, 9]
    peer = router.connect(0)
    router.run(worker)
    peer.put(start())
    assert worker.poller.awaited()
    router.run(worker)
    router.decide()
    router.run(worker)
    assert of(frames(peer), "open")
    assert not worker.poller.awaited()


def test_unread_output_waits_for_peer(routers):
    router = routers(2)
    receiving, sending = router.connect(1), router.connect(0)
    receiving.feed(start() + consumer(0, "balanced.a", 10))
    router.settle()
    sending.feed(start() + producer(0, "balanced.a") + transfer(0, 0, message(b"x"), settled=True))
    router.settle()
    assert messages(frames(receiving)) == [message(b"x")]
    receiving.blocked = True
    sending.feed(transfer(0, 1, message(b"y"), settled=True))
    router.settle()
    assert messages(frames(receiving)) == []
    receiving.blocked = False
    router.settle()
    assert messages(frames(receiving)) == [message(b"y")]
