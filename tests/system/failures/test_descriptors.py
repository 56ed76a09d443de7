"""File descriptor exhaustion at each call that needs a descriptor: no process ends, and the router recovers."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from tests.peer.frames import AMQP_HEADER, SASL_HEADER, Performative, frame_octets
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.wire import PeerError
from tests.system.fixtures import Start, pass_one
from tests.system.http import get
from tests.system.router import RouterProcess, Section, free_port, listener, poll
from tests.system.security.test_process_rights import users

#: Range of free descriptors, from FREE to -TAKEN (below the number in use). Processes that end meanwhile return some,
#: so that their replacements meet each count once.
FREE, TAKEN = 5, 8
#: Seconds that clients wait for a router that may not respond.
PATIENCE = 0.3
#: Maximum number of log lines about the shortage: each kind once, and its count every 10 seconds.
MOST_LINES = 60
_INIT = Performative("sasl-init", mechanism="PLAIN", initial_response=b"\0alice\0secret")
LOGIN = SASL_HEADER + frame_octets(_INIT.encode(), kind=1)
OPEN = AMQP_HEADER + frame_octets(Performative("open", container_id="short").encode())
PAGE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


class DescriptorLimit:
    """A process with a lowered limit of file descriptors."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.before = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def leave_free(self, count: int) -> None:
        """Set the limit so that `count` descriptors are free. Negative: so many used ones are above the limit."""
        with suppress(ProcessLookupError, FileNotFoundError):
            used = sorted(int(name) for name in os.listdir(f"/proc/{self.pid}/fd"))
            free = [number for number in range(used[-1] + FREE + 2) if number not in used]
            limit = free[count] if count >= 0 else min(free[0], used[count])
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (limit, self.before[1]))

    def restore(self) -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.before)


class DescriptorScenario:
    """A router with all kinds of descriptor users, and a broker for its connector."""

    def __init__(self, start: Start, tmp_path: Path, broker: socket.socket) -> None:
        self.sections: list[Section] = [
            *users(tmp_path),
            listener(),
            listener("web", http=True),
            ("log", {"module": "SERVER", "enable": "debug+"}),
            ("connector", {"host": "127.0.0.1", "port": broker.getsockname()[1], "name": "broker"}),
            ("telemetry", {"path": tmp_path / "telemetry", "interval": 1, "fileSeconds": 1}),
        ]
        self.router: RouterProcess = start(self.sections, 2)
        self.broker = broker
        self.clients: list[socket.socket] = []

    def run_clients(self) -> None:
        """Connect, log in and request a page with a few clients each, with or without a response, and disconnect."""
        ports = self.router.ports
        with ExitStack() as stack:
            opened = []
            for port, octets in [(ports[""], OPEN), (ports["named"], LOGIN), (ports["web"], PAGE)] * 3:
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                with suppress(OSError):
                    client.sendall(octets)
                opened.append(client)
            until = time.monotonic() + PATIENCE
            while opened and (left := until - time.monotonic()) > 0:
                for client in select.select(opened, [], [], left)[0]:
                    opened.remove(client)
        while select.select([self.broker], [], [], 0)[0]:  # the connector retries
            self.broker.accept()[0].close()

    def reload(self, extra: bool) -> None:
        """Reload the configuration with or without one more listener."""
        more = [listener("extra")] if extra else []
        self.router.configure([*self.sections, *more])
        os.kill(self.router.pid, signal.SIGHUP)

    def kill(self, event: str) -> None:
        """Kill one process of a kind that is replaced.

        Only a worker that is ready is killed: the router gives up on workers that die repeatedly during their start.
        """
        for pid in pids_with_title(self.router, f"sluice: {event}"):
            if event != "worker" or f"(process {pid}) is ready" in self.router.log:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return

    def wait_workers_replaced(self) -> None:
        """Wait until the killed worker is replaced, or, with too few descriptors, until the time-out."""
        with suppress(AssertionError):
            poll(lambda: not self.router.alive or len(workers(self.router)) == 2, "replaced", 3 * PATIENCE)

    def serves(self) -> bool:
        with suppress(OSError, PeerError):
            peer = AmqpPeer(self.router.ports["named"])
            try:
                return (
                    peer.sasl("PLAIN", b"\0alice\0secret").code == 0
                    and get(self.router.ports["web"], "/metrics").status == 200
                )
            finally:
                peer.drop()
        return False

    def check(self) -> None:
        """Check that all functions of the router work."""
        router = self.router
        assert router.alive, router.tail(100)
        poll(lambda: len(workers(router)) == 2, "all workers are there", 30.0)
        poll(self.serves, "clients are served", 60.0)
        into, out = AmqpPeer.opened(router.port), AmqpPeer.opened(router.port)
        receiver = out.receiver("afterwards", 5)
        pass_one(into.sender("afterwards"), receiver)
        before = len(router.lines)
        self.reload(extra=False)
        router.wait_log("Configuration reloaded from", 30.0, after=before)
        rows = Management(into).query("router")
        assert rows
        for peer in (into, out):
            peer.drop()
        poll(lambda: self._dialled(), "the connector tries again", 30.0)
        assert "Traceback" not in router.log, router.tail(200)
        told = [line for line in router.lines if "Too many open files" in line or "no file descriptor is left" in line]
        assert 0 < len(told) < MOST_LINES, "\n".join(told)

    def _dialled(self) -> bool:
        return bool(select.select([self.broker], [], [], 0)[0])


def workers(router: RouterProcess) -> list[int]:
    return pids_with_title(router, "sluice: worker")


def pids_with_title(router: RouterProcess, title: str) -> list[int]:
    found = []
    for each in router.family():
        with suppress(psutil.NoSuchProcess):
            if title in " ".join(each.cmdline()):
                found.append(each.pid)
    return found


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", free_port())) as made:
        yield made


@pytest.mark.parametrize("event", ["clients", "worker", "authentication", "telemetry", "reload"])
def test_supervisor_without_descriptors_recovers(
    start: Start, tmp_path: Path, broker: socket.socket, event: str
) -> None:
    scenario = DescriptorScenario(start, tmp_path, broker)
    poll(scenario.serves, "clients are served")
    supervisor = DescriptorLimit(scenario.router.pid)
    try:
        for free in range(FREE, -TAKEN - 1, -1):
            supervisor.leave_free(free)
            if event == "reload":
                scenario.reload(extra=free % 2 == 0)
            elif event != "clients":
                scenario.kill(event)
            if event == "worker":  # a starting worker takes free descriptors before clients do
                scenario.wait_workers_replaced()
            scenario.run_clients()
            assert scenario.router.alive, scenario.router.tail(100)
    finally:
        supervisor.restore()
    scenario.check()


def test_worker_without_descriptors_recovers(start: Start, tmp_path: Path, broker: socket.socket) -> None:
    scenario = DescriptorScenario(start, tmp_path, broker)
    poll(scenario.serves, "clients are served")
    before = workers(scenario.router)
    limited = [DescriptorLimit(pid) for pid in before]
    try:
        for free in range(FREE, -TAKEN - 1, -1):
            for each in limited:
                each.leave_free(free)
            scenario.run_clients()
    finally:
        for each in limited:
            each.restore()
    assert workers(scenario.router) == before, "no worker has ended"
    scenario.check()
