"""Address resolution of host names, in threads."""

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct, field

from sluice.router.config.entities import ListenerConfig
from sluice.supervisor.runtime.threads import Threads

RESOLVE_SECONDS: Final = 10.0  # timeout for the names of listeners
MAX_RESOLVERS: Final = 64  # threads

# Result of getaddrinfo(3): family, type, protocol, canonical name, socket address.
Address = tuple[int, int, int, str, Any]


class HostAddresses(Struct, frozen=True):
    """Addresses of the hosts of a listener. reason: why a host has none."""

    addresses: Sequence[Address] = field(default=())
    reason: str | None = None


def look_up(config: ListenerConfig) -> HostAddresses:
    """Resolve the hosts of a listener. Blocks for any length of time."""
    return _found(config, 0)


def numeric_addresses(config: ListenerConfig) -> HostAddresses | None:
    """Return the addresses of a listener without host names, or None if a lookup is needed."""
    found = _found(config, socket.AI_NUMERICHOST)
    return None if found.reason is not None else found


def failed(error: BaseException) -> HostAddresses:
    """Return the result for a lookup that failed or timed out."""
    return HostAddresses(reason=_reason(error))


def _found(config: ListenerConfig, flags: int) -> HostAddresses:
    addresses: list[Address] = []
    reason: str | None = None
    for host in config.hosts:
        try:
            addresses += socket.getaddrinfo(
                host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV | flags
            )
        except (OSError, ValueError) as error:  # ValueError: not a valid name
            reason = _reason(error)
    return HostAddresses(tuple(dict.fromkeys(addresses)), reason)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError):
        return error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return "Name or service not known"


HostsAndPort = tuple[tuple[str, ...], int]  # hosts and port
AddressesByHosts = Mapping[HostsAndPort, HostAddresses]


def place(config: ListenerConfig) -> HostsAndPort:
    """Return the attributes that determine the addresses of a listener."""
    return (config.hosts, config.port)


class Resolver:
    """Resolver of listener hosts. Owner: supervisor."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._threads: Final = Threads(loop, "resolver", MAX_RESOLVERS)

    def known(self, configs: Iterable[ListenerConfig]) -> AddressesByHosts | None:
        """Return the addresses of listeners without a lookup, or None if one has a host name."""
        answers = {place(config): numeric_addresses(config) for config in configs}
        found = {at: each for at, each in answers.items() if each is not None}
        return found if len(found) == len(answers) else None

    async def find(self, configs: Iterable[ListenerConfig]) -> AddressesByHosts:
        """Return the addresses of listeners. Lookups run concurrently."""
        answers: dict[HostsAndPort, HostAddresses] = {}
        asked: dict[HostsAndPort, asyncio.Future[HostAddresses]] = {}
        for config in configs:
            found = numeric_addresses(config)
            if found is not None:
                answers[place(config)] = found
            elif place(config) not in asked:
                asked[place(config)] = self._threads.run(partial(look_up, config), RESOLVE_SECONDS)
        if asked:
            await asyncio.wait(asked.values())
        for at, future in asked.items():
            error = future.exception()
            answers[at] = future.result() if error is None else failed(error)
        return answers
