"""Remote hosts: the addresses that a group's users may connect from (security.md P-14).

A specification is `*`, an address or a host name, or a range `LOW-HIGH` of two of these, both ends included. Addresses
of IPv4 and IPv6 never match each other. Names are resolved by whoever has the time to wait for a name server; the rules
are made of what came of it.
"""

import ipaddress
import socket
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

ANY: Final = "*"
_RANGE: Final = "-"
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)

# The one address that a name stands for, as text. Raises HostError.
Resolve = Callable[[str], str]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostError(ValueError):
    """A specification that cannot be used; the text says why."""


class HostRules:
    """Which addresses are allowed. Immutable; looking one up takes as long for a thousand ranges as for ten."""

    __slots__ = ("_any", "_ends", "_starts")

    def __init__(self, specifications: Iterable[str], resolve: Resolve) -> None:
        """Raises HostError."""
        self._any = False
        ranges: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        for each in specifications:
            if each == ANY:
                self._any = True
                continue
            low, high = translate(each, resolve)
            ranges[low.version].append((int(low), int(high)))
        # By version, disjoint and in order.
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}
        for version, found in ranges.items():
            joined = list(_joined(found))
            self._starts[version] = [low for low, _ in joined]
            self._ends[version] = [high for _, high in joined]

    def allows(self, host: str) -> bool:
        """Whether a peer at this address may connect; what is no address is allowed by `*` only."""
        if self._any:
            return True
        address = _literal(host)
        if address is None:
            return False
        number = int(address)
        at = bisect_right(self._starts[address.version], number) - 1
        return at >= 0 and number <= self._ends[address.version][at]


def translate(specification: str, resolve: Resolve) -> tuple[_Address, _Address]:
    """The lowest and the highest address of a specification other than `*`. Raises HostError."""
    ends = [_address(part.strip(), resolve) for part in specification.split(_RANGE)]
    if len(ends) > 2:
        raise HostError("hostspec must contain 1 or 2 host names")
    low, high = ends[0], ends[-1]
    if low.version != high.version:
        raise HostError("mixed IPv4 and IPv6 host specs in range not allowed")
    if int(low) > int(high):
        raise HostError("host specs in range must have lower numeric address first")
    return low, high


def names(specifications: Iterable[str]) -> Iterator[str]:
    """The host names in specifications, which have to be resolved."""
    for each in specifications:
        if each != ANY:
            yield from (part.strip() for part in each.split(_RANGE) if part.strip() and _literal(part.strip()) is None)


def known(addresses: Mapping[str, str | HostError]) -> Resolve:
    """A resolver that has the answers already."""

    def resolve(name: str) -> str:
        address = addresses.get(name)
        if address is None:
            raise HostError(f"HostStruct: '{name}' failed to resolve: 'unknown'")
        if isinstance(address, HostError):
            raise address
        return address

    return resolve


def ask(name: str) -> str:
    """The one address of a name, however long the name server takes. Raises HostError."""
    try:
        answers = socket.getaddrinfo(name, 0)
    except (OSError, ValueError) as error:  # ValueError: no name at all
        raise HostError(f"HostStruct: '{name}' failed to resolve: '{error}'") from error
    found = {str(address[0]) for family, _, _, _, address in answers if family in _FAMILIES}
    if len(found) > 1:
        raise HostError(f"HostStruct: '{name}' resolves to multiple IP addresses")
    if not found:
        raise HostError(f"HostStruct: '{name}' did not resolve to one of the supported address family")
    return found.pop()


def ask_all(wanted: Iterable[str]) -> dict[str, str | HostError]:
    """The addresses of names, or why they have none, however long the name servers take."""
    found: dict[str, str | HostError] = {}
    for name in wanted:
        try:
            found[name] = ask(name)
        except HostError as error:
            found[name] = error
    return found


def _address(text: str, resolve: Resolve) -> _Address:
    if not text:
        raise HostError("HostStruct: '' is no host")
    address = _literal(text) or _literal(resolve(text))
    if address is None:
        raise HostError(f"HostStruct: '{text}' did not resolve to one of the supported address family")
    return address


def _literal(text: str) -> _Address | None:
    """The address that a text is, its zone left out; None: it is none."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same addresses as disjoint ranges in order."""
    low, high = None, -1
    for start, end in sorted(ranges):
        if low is None or start > high + 1:
            if low is not None:
                yield low, high
            low, high = start, end
        else:
            high = max(high, end)
    if low is not None:
        yield low, high
