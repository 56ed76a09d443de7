"""Open listeners and their sockets (brokers-and-edge.md 3.2)."""

import socket
from typing import Final

from sluice.router.config.entities import ListenerConfig
from sluice.supervisor.listeners.inherited_sockets import InheritedSockets
from sluice.supervisor.runtime.host_names import HostAddresses, numeric_addresses

# Limit of connections in the kernel's accept queue; that of net.core.somaxconn is lower. The SYN of a client that finds
# the queue full is sent again after 1 s, 3 s, 7 s and so on.
BACKLOG: Final = 65535


class ListenError(Exception):
    """Error on opening a listener, with the listener's address and the reason."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason


class Listener:
    """Open listener, with one socket for each address of its host. Owner: the acceptor."""

    __slots__ = ("accepts_as", "config", "own_sockets", "port", "sockets")

    def __init__(
        self,
        config: ListenerConfig,
        found: HostAddresses | None = None,
        inherited: InheritedSockets | None = None,
        *,
        share: bool = False,
    ) -> None:
        """Bind the sockets. Raises ListenError if no address can be bound.

        found: the addresses of the hosts; None if the hosts are addresses themselves. inherited: sockets to use
        instead of binding. share: share the port with other listeners that allow it, see `share`.
        """
        self.config = config
        # For accepted connections: the listener's configuration, and the key of its profile. None: not accepting yet.
        self.accepts_as: tuple[ListenerConfig, str] | None = None
        self.port = config.port_text  # replaced below if the kernel chooses the port
        self.sockets: list[socket.socket] = []
        self.own_sockets: list[socket.socket] = []  # without those of the service manager
        port = config.port
        found = found or numeric_addresses(config) or HostAddresses()
        reason = found.reason or "no address"
        addresses = found.addresses
        if inherited is not None:
            self.sockets, self.own_sockets, addresses = inherited.copies(config, found)
            if self.sockets and not addresses:
                self.port = str(self.sockets[0].getsockname()[1])
        for family, kind, protocol, _, address in addresses:
            try:
                opened = _bind(family, kind, protocol, (address[0], port, *address[2:]), share)
            except OSError as failure:
                reason = failure.strerror or str(failure)
                continue
            self.sockets.append(opened)
            self.own_sockets.append(opened)
            port = port or opened.getsockname()[1]  # all addresses use the port that the kernel chose for the first
        if port and not config.port:
            self.port = str(port)
        if not self.sockets:
            raise ListenError(self.text, reason)

    @property
    def text(self) -> str:
        """Return the address of the listener, for the log."""
        return f"{self.config.host}:{self.port}"

    def share(self, allowed: bool) -> None:
        """Allow or forbid other listeners of the router to bind the same port until this listener is closed.

        Sockets of the service manager stay as they are, because they outlive the listener.
        """
        for opened in self.own_sockets:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, allowed)

    def listen(self) -> None:
        """Start listening. Raises ListenError."""
        for opened in self.sockets:
            try:
                opened.listen(BACKLOG)
            except OSError as error:
                raise ListenError(self.text, error.strerror or str(error)) from error

    def close(self) -> None:
        for opened in self.sockets:
            opened.close()


def _bind(family: int, kind: int, protocol: int, address: tuple[str | int, ...], share: bool) -> socket.socket:
    """Return a bound socket. Raises OSError."""
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by accepted sockets
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # a separate socket serves IPv4
        if share:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        opened.bind(address)
    except OSError:
        opened.close()
        raise
    return opened
