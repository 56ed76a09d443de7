"""Remote hosts: addresses from which a group's users may connect (security.md P-14).

A specification is `*`, an address, a host name, or a range `LOW-HIGH` of two addresses or names that includes both
ends. IPv4 and IPv6 addresses never match each other. Resolving a name may block, so the caller resolves the names first
and compiles the rules from the results.
"""

import ipaddress
import socket
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

ANY: Final = "*"
_RANGE: Final = "-"
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)

# Function that returns the single address of a host name as text. Raises HostError.
Resolve = Callable[[str], str]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostError(ValueError):
    """Error for an invalid specification; its text is the reason."""


class HostRules:
    """Compiled set of allowed addresses. Immutable. A look-up is a binary search in the ranges."""

    __slots__ = ("_any", "_ends", "_starts")

    def __init__(self, specifications: Iterable[str], resolve: Resolve) -> None:
        """Compile specifications. Raises HostError."""
        self._any = False
        ranges: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        for each in specifications:
            if each == ANY:
                self._any = True
                continue
            low, high = address_range(each, resolve)
            ranges[low.version].append((int(low), int(high)))
        # Ends of the ranges by IP version; the ranges are disjoint and in order.
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}
        for version, found in ranges.items():
            joined = list(_joined(found))
            self._starts[version] = [low for low, _ in joined]
            self._ends[version] = [high for _, high in joined]

    def allows(self, host: str) -> bool:
        """Return whether a peer at this address may connect. Only `*` allows a text that is not an address."""
        if self._any:
            return True
        address = _literal(host)
        if address is None:
            return False
        number = int(address)
        at = bisect_right(self._starts[address.version], number) - 1
        return at >= 0 and number <= self._ends[address.version][at]


def address_range(specification: str, resolve: Resolve) -> tuple[_Address, _Address]:
    """Return the lowest and the highest address of a specification other than `*`. Raises HostError."""
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
    """Yield the host names in specifications that have to be resolved."""
    for each in specifications:
        if each != ANY:
            yield from (part.strip() for part in each.split(_RANGE) if part.strip() and _literal(part.strip()) is None)


def known(addresses: Mapping[str, str | HostError]) -> Resolve:
    """Return a resolver for names that are resolved already. Raises the stored error for a name without an address."""

    def resolve(name: str) -> str:
        address = addresses.get(name)
        if address is None:
            raise HostError(f"HostStruct: '{name}' failed to resolve: 'unknown'")
        if isinstance(address, HostError):
            raise address
        return address

    return resolve


def resolve_host(name: str) -> str:
    """Resolve a name to its single address. Blocks until the name server answers. Raises HostError."""
    try:
        answers = socket.getaddrinfo(name, 0)
    except (OSError, ValueError) as error:  # ValueError: not a valid name
        raise HostError(f"HostStruct: '{name}' failed to resolve: '{error}'") from error
    found = {str(address[0]) for family, _, _, _, address in answers if family in _FAMILIES}
    if len(found) > 1:
        raise HostError(f"HostStruct: '{name}' resolves to multiple IP addresses")
    if not found:
        raise HostError(f"HostStruct: '{name}' did not resolve to one of the supported address family")
    return found.pop()


def resolve_hosts(wanted: Iterable[str]) -> dict[str, str | HostError]:
    """Resolve names; return an address or the error for each. Blocks until the name servers answer."""
    found: dict[str, str | HostError] = {}
    for name in wanted:
        try:
            found[name] = resolve_host(name)
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
    """Return a text as an address without its zone, None if it is not an address."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the same addresses as disjoint ranges in ascending order."""
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
