"""Take-over: a new router process gets the listening sockets of the running one, which drains."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.router.client import Accepted, Message, connect
from tests.other_user import program_for
from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Pki, pki
from tests.peer.websocket import WebSocket
from tests.system.fixtures import Start
from tests.system.http import get
from tests.system.router import RouterProcess, Section, command, free_port, listener, poll

WORKER_COUNTS = (1, 3)
PATIENCE = 30.0
FORCED = ("amqp:connection:forced", "the router is about to exit: connect to another one")
USER = "nobody"
PASSING = Path(__file__).with_name("passing.py")
#: Program that connects to the socket of take-overs, and prints the answer.
CONNECTING = """
import socket, sys
channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect(sys.argv[1])
print(channel.recv(65536))
"""
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


class ClientLoop(threading.Thread):
    """Client that connects again and again until `stop`, by one after the other of several kinds of connection."""

    def __init__(self, **attempts: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._attempts = attempts
        self._end = threading.Event()
        self.done = dict.fromkeys(attempts, 0)
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._end.is_set():
            for kind, attempt in self._attempts.items():
                try:
                    attempt()
                except Exception as error:  # noqa: BLE001 - the test fails with all of them
                    self.failures.append(f"{kind}: {error!r}")
                self.done[kind] += 1

    def stop(self) -> dict[str, int]:
        """Check that no attempt has failed, and return their numbers."""
        self._end.set()
        self.join(PATIENCE)
        assert self.failures == []
        return self.done


def open_and_close(port: int) -> None:
    """Connect, open and close. A router that drains may close first."""
    peer = AmqpPeer.opened(port)
    try:
        peer.close()
    finally:
        peer.drop()


def exchange_sasl_headers(port: int, context: ssl.SSLContext) -> None:
    """Connect by TLS, and get the answer to a protocol header."""
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as opened,
    ):
        opened.sendall(SASL_HEADER)
        assert opened.recv(8) == SASL_HEADER


def open_over_websocket(port: int) -> None:
    """Connect by WebSocket, open and close."""
    peer = AmqpPeer(WebSocket.connected(socket.create_connection(("127.0.0.1", port), PATIENCE)))
    try:
        peer.open()
        peer.close()
    finally:
        peer.drop()


def get_page(port: int, path: str = "/healthz") -> None:
    assert get(port, path).status == 200


@pytest.fixture
def loops() -> Iterator[Callable[..., ClientLoop]]:
    """Yield a function that starts a client loop. All are ended after the test."""
    started: list[ClientLoop] = []

    def begin(**attempts: Callable[[], None]) -> ClientLoop:
        started.append(ClientLoop(**attempts))
        started[-1].start()
        poll(lambda: all(started[-1].done.values()), "each kind of connection was made once")
        return started[-1]

    yield begin
    for each in started:
        each._end.set()
        each.join(PATIENCE)


def take_over(start: Start, old: RouterProcess, sections: list[Section], workers: int) -> RouterProcess:
    """Start a router that takes over, and return it when it listens."""
    return start(sections, workers, options=("--take-over", str(old.pid)))


def tls_profile(made: Pki) -> Section:
    certificate, key = made.server
    return "sslProfile", {"name": "p", "certFile": certificate, "privateKeyFile": key}


def test_take_over_refuses_and_resets_no_connection(
    start: Start, workers: int, loops: Callable[..., ClientLoop], tmp_path: Path
) -> None:
    made = pki(tmp_path)
    sections = [
        tls_profile(made), listener(), listener("tls", sslProfile="p", requireSsl=True),
        listener("web", http=True, websockets=True),
    ]  # fmt: skip
    context = ssl.create_default_context(cafile=str(made.trusted))
    old = start(sections, workers)
    ports = old.ports
    clients = loops(
        plain=lambda: open_and_close(ports[""]),
        websocket=lambda: open_over_websocket(ports["web"]),
        tls=lambda: exchange_sasl_headers(ports["tls"], context),
        web=lambda: get_page(ports["web"]),
    )
    new = take_over(start, old, sections, workers)
    assert new.ports == ports
    assert old.wait_exit(PATIENCE) == 0
    before = dict(clients.done)
    poll(lambda: all(clients.done[kind] > before[kind] for kind in before), "clients use the new router")
    assert all(clients.stop().values())
    assert "Drained: all connections are closed" in old.log


def test_deliveries_in_flight_are_settled_during_take_over(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    sections = [listener()]
    old = start(sections, workers)
    peers += [AmqpPeer.opened(old.port), AmqpPeer.opened(old.port)]
    receiver = peers[0].receiver("a", 10)
    sender = peers[1].sender("a")
    numbers = [sender.send(message.message(number)) for number in range(5)]
    deliveries = receiver.receive(5)
    new = take_over(start, old, sections, workers)
    assert old.alive
    for delivery in deliveries:
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    assert sender.peer.expect_close(PATIENCE) == FORCED
    assert receiver.peer.expect_close(PATIENCE) == FORCED
    assert old.wait_exit(PATIENCE) == 0
    with connect(f"127.0.0.1:{new.port}", timeout=PATIENCE) as client:
        taking = client.receiver("a", timeout=PATIENCE)
        sending = client.sender("a").state.send(Message("x"))
        client.poll()
        taking.receive(timeout=PATIENCE).accept()
        client.wait(lambda: sending.done, PATIENCE)
        assert sending.result() == Accepted()


def test_listeners_of_one_router_only_are_closed_and_opened(start: Start, workers: int) -> None:
    kept = listener("kept")
    old = start([kept, listener("before")], workers)
    new = take_over(start, old, [listener("after"), kept], workers)
    assert new.ports.keys() == {"kept", "after"}
    assert new.ports["kept"] == old.ports["kept"]
    for port in new.ports.values():
        open_and_close(port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", old.ports["before"]), PATIENCE)
    assert old.wait_exit(PATIENCE) == 0


def refused(start: Start, tmp_path: Path, workers: int, text: str | None, pid: int) -> RouterProcess:
    """Run a router that takes over and fails, and return it after its end."""
    directory = tmp_path / "failing"
    directory.mkdir()
    router = RouterProcess(directory, [listener()], workers, text, options=("--take-over", str(pid)))
    router.spawn()
    assert router.wait_exit(PATIENCE) == 1
    return router


@pytest.mark.parametrize(
    "text",
    [
        "router {\n id: QDR\n unknown: 1\n}\n",  # found before the take-over
        "router {\n id: QDR\n workerThreads: 1\n}\nlistener {\n host: 192.0.2.1\n port: 1\n}\n",  # found after it
    ],
    ids=["before", "after"],
)
def test_router_goes_on_if_new_one_cannot_start(
    start: Start, workers: int, tmp_path: Path, text: str, loops: Callable[..., ClientLoop]
) -> None:
    old = start([listener()], workers)
    clients = loops(plain=lambda: open_and_close(old.port))
    held = AmqpPeer.opened(old.port)
    refused(start, tmp_path, 1, text, old.pid)
    before = clients.done["plain"]
    poll(lambda: clients.done["plain"] > before + 5, "clients still use the router")
    held.close()
    clients.stop()
    assert old.alive
    assert "draining" not in old.log


def test_router_goes_on_if_new_one_is_killed_before_it_is_ready(start: Start, workers: int, tmp_path: Path) -> None:
    """The new process is stopped as soon as it has the sockets, so that it never reports that it is ready."""
    old = start([listener()], workers)
    new = RouterProcess(tmp_path, [listener()], workers, options=("--take-over", str(old.pid)))
    with KilledAtTakeOver(old, new):
        old.wait_log("has ended before it was ready, so this router goes on", PATIENCE)
    open_and_close(old.port)
    take_over(start, old, [listener()], workers)
    assert old.wait_exit(PATIENCE) == 0


class KilledAtTakeOver:
    """Kill of a new router as soon as the old one has sent the sockets."""

    def __init__(self, old: RouterProcess, new: RouterProcess) -> None:
        self._new = new
        new.spawn()
        old.wait_log("gets 1 listening sockets", PATIENCE)
        os.kill(new.pid, signal.SIGKILL)

    def __enter__(self) -> KilledAtTakeOver:
        return self

    def __exit__(self, *error: Any) -> None:
        self._new.kill()


def test_take_over_without_running_router_fails(start: Start, tmp_path: Path) -> None:
    old = start([listener()])
    text = "router {\n id: another\n}\nlistener {\n host: 127.0.0.1\n port: 0\n}\n"
    failed = refused(start, tmp_path, 1, text, old.pid)
    assert f"no process of this user runs router 'another' with process id {old.pid}" in failed.log


def test_router_with_unique_id_is_found_without_process_id(start: Start, workers: int) -> None:
    sections: list[Section] = [("router", {"id": f"unique-{os.getpid()}"}), listener()]
    old = start(sections, workers)
    new = start(sections, workers, options=("--take-over",))
    assert new.ports == old.ports
    assert old.wait_exit(PATIENCE) == 0


def test_router_that_took_over_can_be_taken_over_while_the_first_drains(start: Start, peers: list[AmqpPeer]) -> None:
    sections: list[Section] = [("router", {"id": f"chain-{os.getpid()}"}), listener()]
    first = start(sections)
    peers += [AmqpPeer.opened(first.port), AmqpPeer.opened(first.port)]
    receiver = peers[0].receiver("a", 10)
    sender = peers[1].sender("a")
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    second = start(sections, options=("--take-over",))
    third = start(sections, options=("--take-over",))
    assert third.ports == first.ports
    assert second.wait_exit(PATIENCE) == 0
    assert first.alive
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    assert first.wait_exit(PATIENCE) == 0


def test_sockets_of_service_manager_are_handed_over_as_its_own(start: Start, workers: int) -> None:
    """A listener that is removed and added again gets its socket again."""
    kept, moving = free_port(), free_port()
    sections = [listener("kept", port=kept), listener("moving", port=moving)]
    program = [sys.executable, str(PASSING), f"kept={kept},moving={moving}", command()[0]]
    old = start(sections, workers, program=program)
    new = take_over(start, old, sections, workers)
    assert old.wait_exit(PATIENCE) == 0
    for now in (sections[:1], sections):
        seen = len(new.lines)
        new.configure(now)
        os.kill(new.pid, signal.SIGHUP)
        new.wait_log("AGENT .notice. Configuration reloaded", PATIENCE, after=seen)
    new.wait_log(rf"Listening on 127\.0\.0\.1:{moving} ", PATIENCE, after=seen)
    for port in (kept, moving):
        open_and_close(port)


def test_service_manager_is_notified_of_the_new_main_process(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new process has no NOTIFY_SOCKET of its own."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE)
        manager.bind(str(tmp_path / "notify"))
        with monkeypatch.context() as patch:
            patch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
            old = start([listener()])
        assert manager.recv(4096).startswith(b"READY=1\n")
        new = take_over(start, old, [listener()], 1)
        assert old.wait_exit(PATIENCE) == 0
        assert manager.recv(4096).splitlines()[0] == f"MAINPID={new.pid}".encode()
        assert manager.recv(4096).startswith(b"READY=1\n")
        new.stop()
        assert manager.recv(4096).startswith(b"STOPPING=1\n")


def test_router_of_another_user_is_taken_over_by_root(start: Start) -> None:
    """Both routers are started by root, and become another user."""
    program = program_for(USER)
    old = start([listener()], options=("--user", USER), program=program)
    new = start([listener()], options=("--user", USER, "--take-over", str(old.pid)), program=program)
    assert new.ports == old.ports
    assert old.wait_exit(PATIENCE) == 0
    open_and_close(new.port)


@pytest.mark.adversarial
def test_process_of_another_user_gets_no_sockets(start: Start) -> None:
    """The directory excludes other users; the router also checks who has connected."""
    program = program_for(USER)
    router = start([listener()])
    path = Path(offer_of(router))
    path.parent.chmod(0o711)
    path.chmod(0o666)
    words = [*program[:-2], "-c", CONNECTING, str(path)]
    done = subprocess.run(words, user=USER, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "is not that of the router" in done.stdout
    assert "Take-over by process" in router.log
    open_and_close(router.port)


def offer_of(router: RouterProcess) -> str:
    """Return the path of the socket for take-overs."""
    paths = router.unix_sockets().values()
    return next(path for path in paths if path.endswith("/takeover"))


@pytest.mark.adversarial
@pytest.mark.parametrize(
    "octets",
    [
        b"\0", b"{}", b'{"kind":"take","version":"1"}', b'{"kind":"ready","taken":[0]}', b'{"kind":"yielded"}',
        b'{"kind":"hello","lowest":2,"highest":9}', b'{"kind":"hello","lowest":"x"}', b"x" * 100000,
        b'{"kind":"hello","x":' + b"[" * 60000,
    ],
    ids=["octet", "no-kind", "take-first", "ready-first", "answer", "version", "type", "long", "nested"],
)  # fmt: skip
def test_nonsense_at_the_socket_changes_nothing(start: Start, octets: bytes) -> None:
    router = start([listener()])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.settimeout(PATIENCE)
        channel.connect(offer_of(router))
        reading, writing = os.pipe()
        socket.send_fds(channel, [octets], [reading] * 5)
        assert channel.recv(65536).startswith(b'{"kind":"refusal"')
        assert channel.recv(65536) == b""
        os.close(reading)
        with pytest.raises(BrokenPipeError):  # the router holds no copy of the descriptor
            os.write(writing, b"x")
        os.close(writing)
    assert "draining" not in router.log


def test_silent_connections_do_not_keep_a_new_router_out(start: Start) -> None:
    router = start([listener()])
    path = offer_of(router)
    silent = []
    for _ in range(3):
        silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        silent[-1].connect(path)
    take_over(start, router, [listener()], 1)
    assert router.wait_exit(PATIENCE) == 0
    for each in silent:
        each.close()


def test_socket_directory_excludes_other_users(start: Start) -> None:
    path = Path(offer_of(start([listener()])))
    assert path.parent.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_uid == os.geteuid()
