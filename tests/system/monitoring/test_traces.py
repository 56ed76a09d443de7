"""Traces of frames and messages: by log settings, by connection attribute, and by operation TRACE."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.peer import message
from tests.peer.management import Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Connect, Fresh, Start
from tests.system.router import ROOT, RouterProcess, listener, poll

FRAME = r"PROTOCOL \(trace\) \[C%s\]:FRAME: "
#: Number of TRACE messages searched for the expected line.
MANY = 50


def number_of(management: Management, container: str) -> str:
    """Return the identity of the connection that was opened with a container id."""
    identity: str = poll(
        lambda: next((c["identity"] for c in management.query("connection") if c["container"] == container), None),
        f"connection of {container}",
    )
    return identity


def test_frames_are_logged_at_level_trace(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    log = ("log", {"module": "PROTOCOL", "enable": "trace+"})
    router = start([listener(), log], workers=workers)
    peer = AmqpPeer.opened(router.port, container_id="seen")
    peers.append(peer)
    receiver = peer.receiver("a", 1)
    sender = peer.sender("a")
    sent = sender.send(message.message("hello"))
    receiver.next().settle()
    sender.outcome(sent)
    peer.close()
    any_number = FRAME % r"\d+"
    for pattern in (
        "  <- SASL",
        r"0 -> @sasl-mechanisms\(64\) \[sasl-server-mechanisms=",
        r'0 <- @open\(16\) \[container-id="seen"',
        r'0 -> @open\(16\) \[container-id="QDR", max-frame-size=16384',
        r"0 <- @transfer\(20\) \[handle=1, delivery-id=0, .*\] \(\d+\) \"",
        r"0 -> @transfer\(20\) \[handle=0, delivery-id=0, .*\] \(\d+\) \"",
        r"0 <- @disposition\(21\) \[role=true, .*state=@accepted\(36\) \[\]",
        r"0 -> @close\(24\) \[\]",
    ):
        router.wait_log(any_number + pattern)


def test_connection_trace_is_switched_by_management(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    peer = connect(container_id="switched")
    identity = number_of(management, "switched")
    before = len(router.lines)
    management.update("connection", identity, enableProtocolTrace=True)
    assert management.one("connection", identity=identity)["enableProtocolTrace"] is True
    peer.receiver(fresh(), 0)
    router.wait_log(FRAME % identity + r"0 <- @attach\(18\)", after=before)
    router.wait_log(FRAME % identity + r"0 -> @attach\(18\)", after=before)
    management.update("connection", identity, enableProtocolTrace=False)
    table_line = len(router.lines)
    peer.receiver(fresh(), 0)
    traced = [line for line in router.lines if "FRAME" in line]
    assert all(f"[C{identity}]" in line for line in traced)
    assert not [line for line in router.lines[table_line:] if "@attach" in line]


def test_log_settings_changed_reach_open_connections(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    peer = connect(container_id="open before")
    identity = number_of(management, "open before")
    try:
        management.update("log", "log/PROTOCOL", enable="trace+")
    except ManagementStatusError as error:
        if error.code != 501:
            raise
        pytest.skip("this version cannot change its log settings")
    before = len(router.lines)

    def seen() -> bool:
        peer.receiver(fresh(), 0)
        return any(f"[C{identity}]:FRAME: 0 <- @attach" in line for line in router.lines[before:])

    poll(seen, "frames of a connection that was there", 10.0)
    management.update("log", "log/PROTOCOL", enable="default")


def worker_of(router: RouterProcess, peer: AmqpPeer) -> int:
    """Return the pid of the worker that owns the router's end of a connection."""
    return router.worker_of(int(peer.socket.getsockname()[1]))


class TraceRequest:
    """TRACE request with the lines that it receives."""

    def __init__(self, connect: Connect, identity: str | None, **limits: object) -> None:
        self.management = Management(connect())
        given = {"operation": "TRACE", "type": "org.amqp.management", "name": "self", "connection": identity, **limits}
        self.answer = self.management.exchange(self.management.request(given, correlation_id="mine"))

    def batch(self) -> list[str]:
        """Return the lines of the next message; an empty list ends the trace."""
        answer = self.management.next()
        found = message.section_of(answer.payload, message.PROPERTIES)
        assert (found[3], found[5]) == ("trace", "mine")
        assert all(isinstance(seconds, float) for seconds, _ in answer.body)
        return [text for _, text in answer.body]

    def until(self, text: str) -> list[str]:
        """Return the lines up to and including the one that contains `text`."""
        lines: list[str] = []
        while not any(text in line for line in lines):
            batch = self.batch()
            assert batch, f"ended without {text!r}: {lines}"
            lines += batch
        return lines


def test_trace_request_lasts_until_the_connection_ends(connect: Connect, management: Management, fresh: Fresh) -> None:
    peer = connect(container_id="watched")
    identity = number_of(management, "watched")
    watching = [TraceRequest(connect, identity) for _ in range(2)]
    assert [(one.answer.status, one.answer.body) for one in watching] == [(200, {"connection": identity})] * 2
    address = fresh()
    peer.receiver(address, 0)
    for one in watching:
        lines = one.until("-> @attach")
        assert any(f'0 <- @attach(18) [name="{peer.fresh_name("")}' in line or address in line for line in lines)
    peer.close()
    for one in watching:
        one.until("-> @close(24) []")
        assert one.batch() == []


def test_trace_request_keeps_limits_and_refuses_bad_values(
    connect: Connect, management: Management, fresh: Fresh
) -> None:
    peer = connect(container_id="limited")
    identity = number_of(management, "limited")
    by_lines = TraceRequest(connect, identity, lines=1)
    by_time = TraceRequest(connect, identity, seconds=0.01)
    assert by_time.batch() == []
    peer.receiver(fresh(), 0)
    assert len(by_lines.batch()) == 1
    assert by_lines.batch() == []
    for bad, status in (("999999", 404), ("x", 404), (None, 404), ("9" * 5000, 404)):
        assert TraceRequest(connect, bad).answer.status == status
    for limits in ({"seconds": 0}, {"seconds": "soon"}, {"lines": 0}):
        assert TraceRequest(connect, identity, **limits).answer.status == 400


def test_trace_requests_are_bounded_and_freed_by_leaving_clients(
    connect: Connect, management: Management, fresh: Fresh
) -> None:
    peer = connect(container_id="popular")
    identity = number_of(management, "popular")
    watching = [TraceRequest(connect, identity) for _ in range(16)]
    assert [one.answer.status for one in watching] == [200] * 16
    assert TraceRequest(connect, identity).answer.status == 500
    watching.pop().management.peer.close()

    def room() -> bool:
        peer.receiver(fresh(), 0)  # traffic, by which the router notices that a client has left
        for one in watching:
            one.until("-> @attach")
        again = TraceRequest(connect, identity)
        return bool(again.answer.status == 200)

    poll(room, "room for another watch")


def test_trace_request_ends_with_a_killed_worker(start: Start, peers: list[AmqpPeer]) -> None:
    router = start([listener()], workers=2)

    def connect(**fields: Any) -> AmqpPeer:
        peer = AmqpPeer.opened(router.port, **fields)
        peers.append(peer)
        return peer

    management = Management(connect())
    mine = worker_of(router, management.peer)
    victim = connect(container_id="victim")
    while worker_of(router, victim) == mine:
        victim = connect(container_id="victim")
    identities = [row["identity"] for row in management.query("connection") if row["container"] == "victim"]
    other = connect()
    while worker_of(router, other) != mine:
        other = connect()
    watching = TraceRequest(lambda: other, identities[-1])
    assert watching.answer.status == 200
    subprocess.run(["kill", "-9", str(worker_of(router, victim))], check=True)
    assert watching.batch() == []


def test_trace_command_prints_frames(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    peer = connect(container_id="commanded")
    identity = number_of(management, "commanded")
    command = [str(ROOT / ".venv/bin/sluice"), "trace", identity, "-b", f"127.0.0.1:{router.port}", "--count", "3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def done() -> bool:
        peer.receiver(fresh(), 0)
        return process.poll() is not None

    poll(done, "three lines", 20.0)
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    assert process.returncode == 0
    assert len(lines) == 3
    # The reply to an attach is the first line if tracing began between the two frames.
    assert any(" 0 <- @attach(18) [" in line for line in lines[:2])


# brokers-and-edge.md W-16.
def test_message_logging_shows_configured_components(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    log = ("log", {"module": "MESSAGE", "enable": "trace+"})
    router = start([listener(messageLoggingComponents="to,subject"), log], workers=workers)
    consuming, sending = AmqpPeer.opened(router.port), AmqpPeer.opened(router.port)
    peers.extend((consuming, sending))
    consuming.receiver("a1", 10)
    sending.sender("a1").send(message.message("hello", to="a1", subject="sub"))
    text = r'Message\{to="a1", subject="sub"\} on link'
    router.wait_log(rf"MESSAGE \(trace\) \[C\d+\]: Received {text} '\S+' \(test-source -> a1\)")
    router.wait_log(rf"MESSAGE \(trace\) \[C\d+\]: Sent {text} '\S+' \(a1 -> test-target\)")
