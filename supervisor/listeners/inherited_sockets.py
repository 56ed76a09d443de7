"""Listening sockets that the router gets at its start: from the service manager, as in sd_listen_fds(3), and from a
running router whose place it takes (decision 0093).
"""

import os
import socket
from collections.abc import Iterable, MutableMapping
from typing import Final, NamedTuple

from msgspec import Struct

from sluice.router.config.entities import ListenerConfig
from sluice.router.log import ProcessLog
from sluice.supervisor.runtime.host_names import Address, HostAddresses
from sluice.supervisor.takeover.messages import HandedSocket

FIRST: Final = 3  # number of the first descriptor that the service manager passes
COUNT: Final = "LISTEN_FDS"
PROCESS: Final = "LISTEN_PID"  # process for which the descriptors are
NAMES: Final = "LISTEN_FDNAMES"  # names of the descriptors, separated by colons


class _Inherited(Struct):
    """Listening socket with its name. used: whether a listener has had a copy of it.

    by_manager: opened by the service manager. handed: number among the sockets of the running router, or None.
    hosts: of the listener if the kernel chose the port.
    """

    opened: socket.socket
    name: str
    used: bool = False
    by_manager: bool = True
    handed: int | None = None
    hosts: tuple[str, ...] = ()

    def is_for(self, config: ListenerConfig) -> bool:
        """Return whether the socket is for a listener whatever its address."""
        if self.by_manager:
            return config.named and self.name == config.name
        return not config.port and self.name == config.name and self.hosts == config.hosts


class SocketCopies(NamedTuple):
    """Copies of inherited sockets for a listener.

    sockets: all copies. own: those that the listener has for itself. rest: addresses that the listener has to bind.
    """

    sockets: list[socket.socket]
    own: list[socket.socket]
    rest: list[Address]


class InheritedSockets:
    """Inherited listening sockets. Owner: the core.

    Listeners get copies. The original of a socket of the service manager stays open as long as the router, so that a
    listener that is removed and added again gets it again: the router itself may not be able to bind the address, which
    the service manager still holds.
    """

    def __init__(self, environment: MutableMapping[str, str], log: ProcessLog) -> None:
        """Take the sockets, and take the variables of the protocol out of `environment`. Unusable ones are closed."""
        self._log: Final = log
        self._sockets: list[_Inherited] = []
        count, process = environment.pop(COUNT, ""), environment.pop(PROCESS, "")
        names = environment.pop(NAMES, "").split(":")
        if process != str(os.getpid()) or not count.isdecimal():
            return
        for index in range(int(count)):
            self._take(FIRST + index, names[index] if index < len(names) else "")

    def _take(self, descriptor: int, name: str) -> None:
        try:
            os.set_inheritable(descriptor, False)
            opened = socket.socket(fileno=descriptor)
        except OSError as error:
            text = f"Descriptor {descriptor} of the service manager is no socket: {error.strerror}"
            self._log.warning("SERVER", text)
            return
        reason = _find_obstacle(opened)
        if reason:
            self._log.warning("SERVER", f"Socket '{name}' of the service manager is closed: {reason}")
            opened.close()
            return
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by accepted sockets
        self._sockets.append(_Inherited(opened, name))

    def adopt(self, sockets: Iterable[tuple[HandedSocket, socket.socket]]) -> None:
        """Take the sockets of a running router."""
        for number, (handed, opened) in enumerate(sockets):
            opened.setblocking(False)
            self._sockets.append(
                _Inherited(opened, handed.name, by_manager=handed.by_manager, handed=number, hosts=handed.hosts)
            )

    @property
    def of_manager(self) -> list[tuple[str, socket.socket]]:
        """Names and sockets of the service manager."""
        return [(each.name, each.opened) for each in self._sockets if each.by_manager]

    def copies(self, config: ListenerConfig, found: HostAddresses) -> SocketCopies:
        """Return copies of the sockets for a listener.

        A listener whose name is that of sockets uses these, whatever its host and port. Any other listener uses the
        sockets with one of its addresses. found: the addresses of the listener's hosts.
        """
        used = [each for each in self._sockets if each.is_for(config)]
        if used:
            return _copied(used, [])
        rest = []
        for address in found.addresses:
            for each in self._sockets:
                if (each.opened.family, each.opened.getsockname()) == (address[0], address[4]):
                    used.append(each)
                    break
            else:
                rest.append(address)
        return _copied(used, rest)

    def close_unused(self) -> list[int]:
        """Close the sockets that no listener has, with a warning, and the originals of those that listeners have for
        themselves. Return the numbers of the running router's sockets that listeners have.
        """
        taken = [each.handed for each in self._sockets if each.used and each.handed is not None]
        for each in self._sockets:
            if not each.used:
                self._log_unused(each)
            if not each.used or not each.by_manager:
                each.opened.close()
        self._sockets = [each for each in self._sockets if each.used and each.by_manager]
        return taken

    def _log_unused(self, unused: _Inherited) -> None:
        host, port = unused.opened.getsockname()[:2]
        if unused.by_manager:
            self._log.warning(
                "SERVER",
                f"Socket '{unused.name}' of the service manager ({host}:{port}) is closed: "
                "no listener has its name or its address",
            )
        else:
            self._log.notice("SERVER", f"Take-over: no listener has the address {host}:{port}, so it is closed")

    def close(self) -> None:
        """Close all sockets: at the end of the router, and in each forked process."""
        for each in self._sockets:
            each.opened.close()
        self._sockets.clear()


def _copied(used: list[_Inherited], rest: list[Address]) -> SocketCopies:
    copies = [_copy(each) for each in used]
    own = [copy for each, copy in zip(used, copies, strict=True) if not each.by_manager]
    return SocketCopies(copies, own, rest)


def _copy(inherited: _Inherited) -> socket.socket:
    inherited.used = True
    copy = inherited.opened.dup()
    copy.setblocking(False)
    return copy


def _find_obstacle(opened: socket.socket) -> str | None:
    """Return why no listener can use a socket, or None."""
    if opened.family not in (socket.AF_INET, socket.AF_INET6) or opened.type != socket.SOCK_STREAM:
        return "it is not a TCP socket"
    if not opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return "it does not listen (Accept=yes in the socket unit?)"
    is_any = opened.family == socket.AF_INET6 and opened.getsockname()[0] == "::"
    if is_any and not opened.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
        # The addresses of IPv4 clients would not match the networks of policies and proxies.
        return "it serves IPv4 and IPv6 at once; set BindIPv6Only=ipv6-only in the socket unit"
    return None
