"""Usage of limits that connections of a vhost or of a group share, and the shared-memory quotas for messages.

Shared are connections, links, addresses, and a quota for messages. Does no input or output.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sluice.router.config.policy_entities import SharedLimits
from sluice.router.control.messages import Scope
from sluice.router.ring.region import MAX_QUOTAS, Region

VHOST: Final = ""  # group name that stands for the whole vhost


class SharedUsage:
    """Usage of one vhost, or of one of its groups. Owner: SharedUsages."""

    __slots__ = ("_region", "addresses", "connections", "links", "senders", "slot")

    def __init__(self) -> None:
        self.connections = 0
        self.links = 0
        self.senders = 0  # senders among `links`
        self.addresses: dict[str, int] = {}  # links by address
        self.slot: int | None = None  # slot of the quota, from its first use on
        self._region: Region | None = None

    def measure(self, region: Region, slot: int) -> None:
        """Count messages in this slot from now on."""
        self._region, self.slot = region, slot
        region.reset_quota(slot)
        region.set_quota_links(slot, self.senders)

    def attach(self, consumer: bool, address: str | None) -> None:
        """Count a link. address: None for a link without one."""
        self.links += 1
        if address is not None:
            self.addresses[address] = self.addresses.get(address, 0) + 1
        if not consumer:
            self._count_senders(1)

    def detach(self, consumer: bool, address: str | None) -> None:
        """Count off a link that was passed to `attach`."""
        self.links -= 1
        if address is not None:
            self.addresses[address] -= 1
            if not self.addresses[address]:
                del self.addresses[address]
        if not consumer:
            self._count_senders(-1)

    def _count_senders(self, more: int) -> None:
        self.senders += more
        if self._region is not None and self.slot is not None:
            self._region.set_quota_links(self.slot, self.senders)

    def shown(self) -> dict[str, Any]:
        """Return the usage for management. Values are None if they are not counted."""
        counted: Mapping[str, int] = {}
        if self._region is not None and self.slot is not None:
            counted = self._region.quota_counters(self.slot)
        return {
            "connections": self.connections,
            "links": self.links,
            "addresses": len(self.addresses),
            "messages": counted.get("messages"),
            "octets": counted.get("octets"),
            "bufferedOctets": counted.get("buffered"),
            "creditHeldBack": counted.get("held_back"),
        }


class LimitedUsage(NamedTuple):
    """Share, with the limits that the rules of one connection set for it."""

    share: SharedUsage
    limits: SharedLimits

    @property
    def scope(self) -> Scope | None:
        """Return the limits that workers enforce, or None."""
        limits = self.limits
        if self.share.slot is None or not limits.measured:
            return None
        return self.share.slot, limits.messages_per_second, limits.octets_per_second, limits.buffered_octets

    def full(self, address: str | None) -> str | None:
        """Return the attribute whose limit forbids another link to this address, or None if there is room."""
        share, limits = self.share, self.limits
        if limits.links and share.links >= limits.links:
            return "maxLinks"
        if address is None or not limits.addresses or address in share.addresses:
            return None
        return "maxAddresses" if len(share.addresses) >= limits.addresses else None


class SharedUsages:
    """Shares of all vhosts and groups. Owner: the policy."""

    def __init__(self, refused: Callable[[str], None]) -> None:
        """refused(text): called when no slot is left for a quota."""
        self._shares: dict[tuple[str, str], SharedUsage] = {}
        self._region: Region | None = None
        self._free: list[int] = []
        self._used = 0  # number of slots ever taken
        self._refused = refused

    def connect(self, region: Region) -> None:
        """Keep quotas in this region."""
        self._region = region

    def bound(self, vhost: str, group: str, limits: SharedLimits) -> LimitedUsage:
        """Return the share of a group, or of the vhost (VHOST), with these limits."""
        share = self._shares.setdefault((vhost, group), SharedUsage())
        if limits.measured and share.slot is None and self._region is not None:
            slot = self._take()
            if slot is None:
                whose = f"vhost '{vhost}', group '{group}'" if group else f"vhost '{vhost}'"
                self._refused(f"Shared limits of {whose} are not enforced: all {MAX_QUOTAS} quotas are in use")
            else:
                share.measure(self._region, slot)
        return LimitedUsage(share, limits)

    def _take(self) -> int | None:
        if self._free:
            return self._free.pop()
        if self._used == MAX_QUOTAS:
            return None
        self._used += 1
        return self._used - 1

    def keep(self, vhosts: Mapping[str, frozenset[str]]) -> None:
        """Remove unused shares of deleted vhosts and groups. vhosts: names of groups by vhost."""
        for (vhost, group), share in list(self._shares.items()):
            known = vhosts.get(vhost)
            if share.connections or (known is not None and (group == VHOST or group in known)):
                continue
            del self._shares[vhost, group]
            if share.slot is not None:
                self._free.append(share.slot)

    def worker_lost(self, worker: int) -> None:
        """Remove the usage of a dead worker."""
        if self._region is not None:
            for share in self._shares.values():
                if share.slot is not None:
                    self._region.reset_quota_worker(share.slot, worker)

    def of_vhost(self, vhost: str) -> Iterator[tuple[str, SharedUsage]]:
        """Iterate over the shares of a vhost by group, including its own (VHOST)."""
        return ((group, share) for (name, group), share in self._shares.items() if name == vhost)
