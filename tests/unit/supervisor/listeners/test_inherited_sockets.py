"""Listening sockets of the service manager: which are taken, and which listener gets them."""

import os
import socket
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from sluice.router.config.entities import ListenerConfig
from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ProcessLog
from sluice.supervisor.listeners import inherited_sockets
from sluice.supervisor.listeners.inherited_sockets import InheritedSockets
from sluice.supervisor.listeners.listener import Listener
from sluice.supervisor.runtime.host_names import HostAddresses, look_up

(LISTENER,) = load_text("router.conf", "listener {\n name: main\n host: 127.0.0.1\n port: 0\n}\n").listeners


class StandInManager:
    """Service manager that passes sockets to this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self._monkeypatch = monkeypatch
        self._stack = stack
        self.log = ProcessLog(LogSettings())

    def server(self, host: str = "127.0.0.1", family: int = socket.AF_INET, port: int = 0) -> socket.socket:
        return self._stack.enter_context(socket.create_server((host, port), family=family))

    def pass_on(self, *sockets: socket.socket, names: str = "", pid: int | None = None) -> InheritedSockets:
        """Return the sockets as the router takes them. They have consecutive descriptors from 200 on."""
        for number, each in enumerate(sockets, 200):
            os.dup2(each.fileno(), number)
        self._monkeypatch.setattr(inherited_sockets, "FIRST", 200)
        self.environment = {
            "LISTEN_FDS": str(len(sockets)), "LISTEN_PID": str(pid or os.getpid()), "LISTEN_FDNAMES": names, "A": "b",
        }  # fmt: skip
        found = InheritedSockets(self.environment, self.log)
        self._stack.callback(found.close)
        if pid is not None:
            for number in range(200, 200 + len(sockets)):
                os.close(number)
        return found

    def warnings(self) -> list[str]:
        return [entry.text for entry in self.log.recent() if entry.level == "warning"]


@pytest.fixture
def manager(monkeypatch):
    with ExitStack() as stack:
        yield StandInManager(monkeypatch, stack)


def at(opened: socket.socket, host: str = "127.0.0.1", **attributes: object) -> ListenerConfig:
    port = opened.getsockname()[1]
    return replace(LISTENER, host=host, port=port, port_text=str(port), **attributes)


def inode(opened: socket.socket) -> int:
    return os.fstat(opened.fileno()).st_ino


def listen(config: ListenerConfig, inherited: InheritedSockets) -> list[int]:
    """Return the inodes of the sockets of a listener."""
    listener = Listener(config, look_up(config), inherited)
    try:
        assert not any(opened.getblocking() or opened.get_inheritable() for opened in listener.sockets)
        assert listener.text == f"{config.host}:{listener.sockets[0].getsockname()[1]}"
        return [inode(opened) for opened in listener.sockets]
    finally:
        listener.close()


def test_listener_with_the_address_of_a_socket_uses_it_each_time(manager):
    server, other = manager.server(), manager.server()
    inherited = manager.pass_on(other, server)
    assert manager.environment == {"A": "b"}
    for _ in range(2):
        assert listen(at(server), inherited) == [inode(server)]
    assert listen(LISTENER, inherited) not in ([inode(server)], [inode(other)])
    inherited.close_unused()
    (warning,) = manager.warnings()
    assert f"(127.0.0.1:{other.getsockname()[1]}) is closed: no listener has its name or its address" in warning
    assert listen(at(server), inherited) == [inode(server)]


def test_listener_with_the_name_of_sockets_uses_all_of_them(manager):
    servers = [manager.server(), manager.server("127.0.0.2"), manager.server()]
    inherited = manager.pass_on(*servers, names="main:main:else")
    assert listen(LISTENER, inherited) == [inode(each) for each in servers[:2]]


def test_listener_binds_the_addresses_without_a_socket(manager):
    server = manager.server()
    inherited = manager.pass_on(server)
    here, elsewhere = at(server), at(server, host="127.0.0.3")
    addresses = (*look_up(here).addresses, *look_up(elsewhere).addresses)
    copies, own, rest = inherited.copies(here, HostAddresses(addresses))
    assert [inode(each) for each in copies] == [inode(server)]
    assert rest == list(look_up(elsewhere).addresses)
    assert own == []
    copies[0].close()


def test_ports_of_inherited_sockets_are_not_shared(manager):
    server = manager.server()
    listener = Listener(at(server), None, manager.pass_on(server))
    listener.share(True)
    assert server.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 0
    listener.close()


@pytest.mark.parametrize("environment", [{}, {"LISTEN_FDS": "1"}, {"LISTEN_FDS": "x", "LISTEN_PID": str(os.getppid())}])
def test_sockets_for_nobody_are_not_taken(environment, manager):
    inherited = InheritedSockets(environment, manager.log)
    inherited.close_unused()
    assert environment == {}
    assert manager.warnings() == []


def test_sockets_for_another_process_are_not_taken(manager):
    server = manager.server()
    inherited = manager.pass_on(server, pid=os.getppid())
    inherited.close_unused()
    assert manager.warnings() == []


def test_unusable_sockets_are_closed_with_the_reason(manager):
    with socket.socket() as unconnected, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        manager.pass_on(unconnected, datagrams, names="a:b").close()
    assert [text.partition(": ")[2] for text in manager.warnings()] == [
        "it does not listen (Accept=yes in the socket unit?)",
        "it is not a TCP socket",
    ]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6 sockets for both families")
def test_socket_of_both_families_is_closed_with_the_remedy(manager):
    both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with both:
        manager.pass_on(both).close()
    assert "BindIPv6Only=ipv6-only" in manager.warnings()[0]


def test_missing_descriptor_is_logged(manager, monkeypatch):
    monkeypatch.setattr(inherited_sockets, "FIRST", 900)
    InheritedSockets({"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}, manager.log).close()
    assert manager.warnings() == ["Descriptor 900 of the service manager is no socket: Bad file descriptor"]
