"""Identity of remote hosts, and the share of a common limit that each host may use."""

import ipaddress
from functools import lru_cache
from typing import Final

IPV6_BITS: Final = 64
REMEMBERED: Final = 1024  # addresses whose host is remembered: to parse one takes as long as a tenth of a connect


@lru_cache(REMEMBERED)
def remote_host(address: str) -> str:
    """Return the host for an address. IPv6 addresses count by their /64 network, which one host usually
    owns entirely.
    """
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.strip("[]").partition("%")[0])
    return str(ipaddress.IPv6Network((found, IPV6_BITS), strict=False))


class HostCounts:
    """Counters of a shared limit by remote host. Owner: the owner of the limited resource.

    most: limit for all hosts together. most_of_host: limit for one host, so that one host never locks out all others.
    """

    def __init__(self, most: int, most_of_host: int) -> None:
        self.most: Final = most
        self.most_of_host: Final = most_of_host
        self.total = 0
        self._hosts: dict[str, int] = {}

    def take(self, address: str) -> bool:
        """Count one more for a host and return True, or return False if a limit is reached.

        Check and count are one operation.
        """
        host = remote_host(address)
        count = self._hosts.get(host, 0)
        if self.total >= self.most or count >= self.most_of_host:
            return False
        self.total += 1
        self._hosts[host] = count + 1
        return True

    def give_back(self, address: str) -> None:
        """Count one less for a host. The host must have a count."""
        host = remote_host(address)
        count = self._hosts.pop(host) - 1
        self.total -= 1
        if count:
            self._hosts[host] = count
