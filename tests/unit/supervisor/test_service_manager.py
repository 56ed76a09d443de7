"""Notifications to the service manager."""

import asyncio
import contextlib
import os
import select
import signal
import socket
from pathlib import Path

import psutil
import pytest

from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ProcessLog
from sluice.supervisor.service_manager import MOST_WAITING, ServiceManager
from tests.unit.supervisor.harness import PATIENCE, SupervisorProcess, configuration_text, until

CONFIGURATION = load_text("router.conf", configuration_text(2))


class StandInServiceManager:
    """Socket that receives notifications, as the service manager's."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.settimeout(PATIENCE)

    def receive(self) -> list[str]:
        """Return the lines of the next notification."""
        return self.socket.recv(4096).decode().splitlines()

    def receive_state(self) -> list[str]:
        """Return the lines of the next notification that is not the watchdog's."""
        while (lines := self.receive()) == ["WATCHDOG=1"]:
            pass
        return lines

    def is_empty(self) -> bool:
        return not select.select([self.socket], [], [], 0)[0]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "notify")


@pytest.fixture
def received(path):
    manager = StandInServiceManager(path)
    yield manager
    manager.socket.close()


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


class NotifyingRouter(ServiceManager):
    """Service manager with the log and the environment that it got."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ending: bool, environment: dict[str, str]) -> None:
        self.log, self.environment = ProcessLog(LogSettings()), environment
        super().__init__(loop, self.log, lambda: ending, environment)


@pytest.fixture
def make(loop):
    made = []

    def begin(ending=False, **environment):
        manager = NotifyingRouter(loop, ending, environment)
        made.append(manager)
        return manager

    yield begin
    for manager in made:
        manager.stop()


def warnings(manager):
    return [entry.text for entry in manager.log.recent() if entry.level == "warning"]


def test_ready_is_sent_at_the_start_and_stopping_at_the_end(make, received, path):
    manager = make(NOTIFY_SOCKET=path, OTHER="1")
    assert manager.environment == {"OTHER": "1"}
    assert received.is_empty()
    manager.start(CONFIGURATION)
    assert received.receive() == ["READY=1", "STATUS=Router QDR serves with 2 workers"]
    manager.stop()
    assert received.receive() == ["STOPPING=1", "STATUS=Shutting down"]
    manager.stop()
    assert received.is_empty()


def test_drain_extends_time_for_stopping(make, received, path):
    manager = make(NOTIFY_SOCKET=path)
    manager.draining(70)
    assert received.receive() == [
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=70000000",
        "STATUS=Draining for at most 70 seconds",
    ]


def test_abstract_address_is_notified(make):
    address = f"@sluice-test-{os.getpid()}"
    received = StandInServiceManager(address)
    make(NOTIFY_SOCKET=address).start(CONFIGURATION)
    assert received.receive()[0] == "READY=1"
    received.socket.close()


def test_router_without_service_manager_sends_nothing(make):
    manager = make(WATCHDOG_USEC="1000")
    manager.start(CONFIGURATION)
    manager.reload_begun()
    manager.reload_done(None)
    assert manager.environment == {}
    assert warnings(manager) == []


def test_ready_is_not_sent_while_the_router_ends(make, received, path):
    make(ending=True, NOTIFY_SOCKET=path).start(CONFIGURATION)
    assert received.is_empty()


def test_unsupported_address_is_logged(make):
    make(NOTIFY_SOCKET="vsock:2:1234").start(CONFIGURATION)
    manager = make(NOTIFY_SOCKET="vsock:2:1234")
    assert "vsock:2:1234 is not supported" in warnings(manager)[0]


def test_missing_socket_is_logged_and_does_no_harm(make, path):
    manager = make(NOTIFY_SOCKET=path)
    manager.start(CONFIGURATION)
    assert warnings(manager) == ["The service manager does not get 'READY=1': No such file or directory"]


def test_reload_is_reported_with_the_time_of_its_begin(make, received, path):
    manager = make(NOTIFY_SOCKET=path)
    manager.start(CONFIGURATION)
    ready = received.receive()
    manager.reload_begun()
    reloading, usec, _ = received.receive()
    assert reloading == "RELOADING=1"
    assert usec.startswith("MONOTONIC_USEC=")
    assert int(usec.partition("=")[2]) > 0
    manager.reload_done(None)
    assert received.receive() == ready


def test_refused_reload_is_ready_with_the_reason_in_the_status(make, received, path):
    manager = make(NOTIFY_SOCKET=path)
    manager.start(CONFIGURATION)
    received.receive()
    manager.reload_begun()
    received.receive()
    manager.reload_done("router.conf:3: no such attribute\nanother line")
    ready, status = received.receive()
    assert ready == "READY=1"
    assert status.endswith("; the last reload was refused: router.conf:3: no such attribute")


def test_overlapping_reloads_are_ready_after_the_last_one(make, received, path):
    manager = make(NOTIFY_SOCKET=path)
    manager.reload_begun()
    manager.reload_begun()
    manager.reload_done(None)
    assert [received.receive()[0] for _ in range(2)] == ["RELOADING=1", "RELOADING=1"]
    assert received.is_empty()
    manager.reload_done(None)
    assert received.receive()[0] == "READY=1"


def test_full_queue_delays_notifications_in_order(make, loop, received, path):
    manager = make(NOTIFY_SOCKET=path)
    filler = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    filler.setblocking(False)
    fillers = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filler.sendto(b"FILLER=1", path)
            fillers += 1
    filler.close()
    assert fillers
    for _ in range(MOST_WAITING + 1):
        manager.reload_begun()
    for _ in range(fillers):
        assert received.receive() == ["FILLER=1"]

    async def wait():
        async with asyncio.timeout(PATIENCE):
            return [(await loop.sock_recv(received.socket, 4096)).decode() for _ in range(MOST_WAITING)]

    received.socket.setblocking(False)
    times = [int(text.splitlines()[1].partition("=")[2]) for text in loop.run_until_complete(wait())]
    assert times == sorted(times)
    assert received.is_empty()  # the last one was dropped
    assert len(times) == MOST_WAITING


@pytest.mark.parametrize("named", [False, True])
def test_watchdog_is_notified_twice_in_each_period(make, loop, received, path, named):
    watched = {"WATCHDOG_PID": str(os.getpid())} if named else {}
    manager = make(NOTIFY_SOCKET=path, WATCHDOG_USEC="20000", **watched)
    assert received.is_empty()
    manager.start(CONFIGURATION)
    received.receive()
    received.socket.setblocking(False)

    async def wait():
        async with asyncio.timeout(PATIENCE):
            return [await loop.sock_recv(received.socket, 4096) for _ in range(4)]

    begun = loop.time()
    assert loop.run_until_complete(wait()) == [b"WATCHDOG=1"] * 4
    assert loop.time() - begun >= 3 * 0.0099
    assert manager.environment == {}


@pytest.mark.parametrize(
    ("environment", "warned"),
    [
        ({"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "soon"}, True),
        ({"WATCHDOG_USEC": "0"}, False),
        ({}, False),
    ],
)
def test_watchdog_of_nobody_or_another_process_is_not_notified(make, received, path, environment, warned):
    manager = make(NOTIFY_SOCKET=path, **environment)
    manager.start(CONFIGURATION)
    assert received.receive()[0] == "READY=1"
    assert received.is_empty()
    assert bool(warnings(manager)) is warned


@pytest.mark.starts
def test_running_router_reports_its_life_and_hides_the_socket_from_children(tmp_path: Path, received, path):
    router = SupervisorProcess(tmp_path, configuration_text(1), NOTIFY_SOCKET=path, WATCHDOG_USEC="100000")
    try:
        assert received.receive() == ["READY=1", "STATUS=Router QDR serves with 1 worker"]
        assert router.port()
        assert received.receive() == ["WATCHDOG=1"]

        def shown(child):
            return [name for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC") if child.environ().get(name)]

        children = psutil.Process(router.process.pid).children(recursive=True)
        assert len(children) == 2
        assert [shown(child) for child in children] == [[], []]
        router.process.send_signal(signal.SIGHUP)
        assert received.receive_state()[0] == "RELOADING=1"
        assert received.receive_state()[0] == "READY=1"
        (tmp_path / "router.conf").write_text("nonsense {")
        router.process.send_signal(signal.SIGHUP)
        assert received.receive_state()[0] == "RELOADING=1"
        assert "the last reload was refused" in received.receive_state()[1]
        # A stopped router sends nothing, so that the watchdog restarts it.
        router.process.send_signal(signal.SIGSTOP)
        until(lambda: psutil.Process(router.process.pid).status() == psutil.STATUS_STOPPED, "not stopped")
        while not received.is_empty():
            received.receive()
        received.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            received.receive()
        received.socket.settimeout(PATIENCE)
        router.process.send_signal(signal.SIGCONT)
        assert received.receive() == ["WATCHDOG=1"]
        assert router.end(signal.SIGTERM) == 0
        assert received.receive_state()[0] == "STOPPING=1"
    finally:
        router.close()


@pytest.mark.starts
def test_router_whose_listener_fails_is_never_ready(tmp_path: Path, received, path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = configuration_text(1).replace("port: 0", f"port: {taken.getsockname()[1]}")
        router = SupervisorProcess(tmp_path, text, NOTIFY_SOCKET=path)
        assert router.process.wait(PATIENCE) == 1
        router.close()
    assert received.receive()[0] == "STOPPING=1"
    assert received.is_empty()
