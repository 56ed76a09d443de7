"""Listening sockets that the service manager has opened for the router, as in sd_listen_fds(3)."""

import os
import socket
from collections.abc import MutableMapping
from typing import Final

from msgspec import Struct

from sluice.router.config.entities import ListenerConfig
from sluice.router.log import ProcessLog
from sluice.supervisor.runtime.host_names import Address, HostAddresses

FIRST: Final = 3  # number of the first descriptor that the service manager passes
COUNT: Final = "LISTEN_FDS"
PROCESS: Final = "LISTEN_PID"  # process for which the descriptors are
NAMES: Final = "LISTEN_FDNAMES"  # names of the descriptors, separated by colons


class _Inherited(Struct):
    """Listening socket with its name. used: whether a listener has had a copy of it."""

    opened: socket.socket
    name: str
    used: bool = False


class InheritedSockets:
    """Inherited listening sockets. Owner: the core.

    Listeners get copies. The original stays open as long as the router, so that a listener that is removed and added
    again gets it again: the router itself may not be able to bind the address, which the service manager still holds.
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

    def copies(self, config: ListenerConfig, found: HostAddresses) -> tuple[list[socket.socket], list[Address]]:
        """Return copies of the sockets for a listener, and the addresses that the listener has to bind itself.

        A listener whose name is that of sockets uses these, whatever its host and port. Any other listener uses the
        sockets with one of its addresses. found: the addresses of the listener's hosts.
        """
        named = [each for each in self._sockets if config.named and each.name == config.name]
        if named:
            return [_copy(each) for each in named], []
        copies, rest = [], []
        for address in found.addresses:
            for each in self._sockets:
                if (each.opened.family, each.opened.getsockname()) == (address[0], address[4]):
                    copies.append(_copy(each))
                    break
            else:
                rest.append(address)
        return copies, rest

    def close_unused(self) -> None:
        """Close the sockets that no listener has, with a warning."""
        for each in self._sockets:
            if not each.used:
                host, port = each.opened.getsockname()[:2]
                self._log.warning(
                    "SERVER",
                    f"Socket '{each.name}' of the service manager ({host}:{port}) is closed: "
                    "no listener has its name or its address",
                )
                each.opened.close()
        self._sockets = [each for each in self._sockets if each.used]

    def close(self) -> None:
        """Close all sockets: at the end of the router, and in each forked process."""
        for each in self._sockets:
            each.opened.close()
        self._sockets.clear()


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
