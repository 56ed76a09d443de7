"""Traces of deliveries by `sluice trace ADDRESS`: one router, and a network."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from typing import Any

import pytest

from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.networks import RouterView, interior, ports
from tests.system.router import ROOT, RouterProcess, listener, poll

Span = dict[str, Any]


class TraceCommand:
    """Running `sluice trace ADDRESS --json`, and the spans it has printed."""

    def __init__(self, router: RouterProcess, address: str) -> None:
        command = [str(ROOT / ".venv/bin/sluice"), "trace", address, "-b", f"127.0.0.1:{router.port}", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._spans: list[Span] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip():
                self._spans.append(json.loads(line))

    def trace_of(self, *parts: tuple[str, str]) -> dict[tuple[str, str], Span] | None:
        """Return a trace with exactly these spans, by router and kind, beside those between workers; None if there is
        none yet."""
        traces: dict[str, dict[tuple[str, str], Span]] = {}
        for span in self.spans():
            if span["kind"] == "cross":
                continue
            traces.setdefault(span["trace_id"], {})[span["router"], span["kind"]] = span
        return next((found for found in traces.values() if found.keys() == set(parts)), None)

    def spans(self) -> list[Span]:
        return list(self._spans)

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit code."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait()
        self._reader.join()
        return code


def pass_messages_until_traced(
    command: TraceCommand, sending: AmqpPeer, receiving: AmqpPeer, address: str, *parts: tuple[str, str]
) -> dict[tuple[str, str], Span]:
    """Send messages, each of which is received and accepted, until there is a trace with these spans."""
    receiver = receiving.receiver(address, 1000)
    sender = sending.sender(address)

    def traced() -> dict[tuple[str, str], Span] | None:
        sent = sender.send(message.message("traced"))
        receiver.next().settle()
        sender.outcome(sent)
        return command.trace_of(*parts)

    found: dict[tuple[str, str], Span] = poll(traced, "a whole trace", 60.0)
    return found


def test_trace_command_shows_spans_of_one_router(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    router = start([listener()], workers=workers)
    command = TraceCommand(router, "traced/#")
    receiving, sending = (AmqpPeer.opened(router.port) for _ in range(2))
    peers += [receiving, sending]
    name = RouterView(router).query("router")[0]["id"]
    found = pass_messages_until_traced(command, sending, receiving, "traced/a", (name, "receive"), (name, "send"))
    assert command.interrupt() == 0
    assert {(span["address"], span["outcome"]) for span in found.values()} == {("traced/a", "accepted")}
    assert found[name, "send"]["parent_id"] == found[name, "receive"]["span_id"]
    assert found[name, "receive"]["began"] <= found[name, "send"]["began"] <= found[name, "send"]["ended"]


def test_trace_command_joins_spans_of_all_routers(start: Start, peers: list[AmqpPeer]) -> None:
    (port,) = ports(1)
    first = start(interior("A", port), workers=1)
    second = start(interior("B", to=[port]), workers=3)
    RouterView(first).wait_nodes(B=1)
    command = TraceCommand(first, "traced")
    receiving, sending = AmqpPeer.opened(second.port), AmqpPeer.opened(first.port)
    peers += [receiving, sending]
    parts = [(router, kind) for router in "AB" for kind in ("receive", "send")]
    found = pass_messages_until_traced(command, sending, receiving, "traced", *parts)
    assert command.interrupt() == 0
    entered = found["A", "receive"]
    assert entered["parent_id"] is None
    assert found["A", "send"]["parent_id"] == found["B", "receive"]["parent_id"] == entered["span_id"]
    assert found["B", "send"]["parent_id"] == found["B", "receive"]["span_id"]


def test_trace_command_shows_way_between_workers(start: Start, peers: list[AmqpPeer]) -> None:
    router = start([listener(), ("address", {"prefix": "multicast", "distribution": "multicast"})], workers=3)
    command = TraceCommand(router, "multicast/traced")
    # New connections go to the worker with the fewest, so that some receiver is at another worker than the sender.
    sending, *receiving = (AmqpPeer.opened(router.port) for _ in range(4))
    peers += [sending, *receiving]
    receivers = [peer.receiver("multicast/traced", 1000) for peer in receiving]
    sender = sending.sender("multicast/traced")

    def crossed() -> list[Span]:
        sent = sender.send(message.message("traced"))
        for receiver in receivers:
            receiver.next().settle()
        sender.outcome(sent)
        return [span for span in command.spans() if span["kind"] == "cross"]

    span = poll(crossed, "a span between workers", 60.0)[0]
    assert command.interrupt() == 0
    assert span["worker"] != span["from_worker"] is not None
    assert span["address"] == "multicast/traced"
    assert span["began"] <= span["ended"]


@pytest.mark.parametrize("address", ["", "/"])
def test_trace_of_empty_address_is_refused(router: RouterProcess, address: str) -> None:
    words = ["trace", address, "--address", "--alone", "-b", f"127.0.0.1:{router.port}"]
    ended = subprocess.run([str(ROOT / ".venv/bin/sluice"), *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "Pattern invalid - no tokens" in ended.stderr
