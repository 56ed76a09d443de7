"""Remote hosts, and what each of them may have of something that all share."""

import ipaddress
from typing import Final

IPV6_BITS: Final = 64


def remote_host(address: str) -> str:
    """Return what counts as one host: of IPv6 a network of 64 bits, for whoever has one address there has all."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.strip("[]").partition("%")[0])
    return str(ipaddress.IPv6Network((found, IPV6_BITS), strict=False))


class HostShares:
    """Counts what hosts have of a limit. Owner: the owner of what is limited.

    most: of all hosts together. most_of_host: of one, so that one host never keeps out all others.
    """

    def __init__(self, most: int, most_of_host: int) -> None:
        self.most: Final = most
        self.most_of_host: Final = most_of_host
        self.total = 0
        self._hosts: dict[str, int] = {}

    def take(self, address: str) -> bool:
        """Count one more for a host, if it may have one more: check and count are one step."""
        host = remote_host(address)
        count = self._hosts.get(host, 0)
        if self.total >= self.most or count >= self.most_of_host:
            return False
        self.total += 1
        self._hosts[host] = count + 1
        return True

    def give_back(self, address: str) -> None:
        """Count one less for a host that has one."""
        host = remote_host(address)
        count = self._hosts.pop(host) - 1
        self.total -= 1
        if count:
            self._hosts[host] = count
