"""Proxy links: links that an edge router attaches at another router for its clients (inter-router.md 14.2).

An address with local consumers has one receiver at the other router, whatever the number of clients. The links are
spread over the connections of a bundle. No I/O here.
"""

import math
import time
from itertools import islice
from typing import Any, Final

from sluice.router.addressing.address import FALLBACK_PHASE, FALLBACK_PHASE_NUMBER, MOBILE
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.edge.announced import AnnouncedAddresses
from sluice.supervisor.links.attach import NO_LINK_ROUTE, AttachAccepted, AttachRefused
from sluice.supervisor.links.initiated import InitiatedLinkOptions, InitiatedLinks
from sluice.supervisor.runtime.waker import Waker

GATHER: Final = 0.25  # seconds for the connections of a bundle to open
NEVER: Final = math.inf
A_WAKE: Final = 32  # addresses without producers whose links are attached in one wake
RETRY: Final = 2.0  # seconds before a link that the other router refused or detached is attached again


class Proxies:
    """Proxy links at one other router, receivers only, on a bundle of connections. Owner: the edge peers."""

    senders_wait = False  # messages wait for another uplink if the one of their sender is lost

    def __init__(
        self,
        table: AddressTable,
        addresses: AnnouncedAddresses,
        initiated_links: InitiatedLinks,
        waker: Waker,
    ) -> None:
        """addresses: those that the other router may know."""
        self.table: Final = table
        self.addresses: Final = addresses
        self.initiated_links: Final = initiated_links
        self.waker: Final = waker
        # Connections of the bundle by number, the active uplink included.
        self.members: dict[int, RegisteredConnection] = {}
        self._loads: dict[int, int] = {}  # number of links on each member
        self._gathering = NEVER  # monotonic time at which the wait for further members ends
        self._expected = 1  # number of members that the connector makes
        self.receivers: dict[str, ReceiverProxy] = {}  # by key of the address
        self._changed: dict[str, None] = {}  # keys of addresses whose producers or consumers have changed
        self._later: dict[str, None] = {}  # keys of addresses without producers, handled A_WAKE at a time

    def gather(self, members: int) -> None:
        """Expect a bundle with this number of members. Links never move between members, so the first links wait up to
        GATHER seconds for all members."""
        self._expected = members
        self._gathering = time.monotonic() + GATHER if members > 1 else NEVER

    def use(self, connection: RegisteredConnection) -> None:
        """Add a connection to the bundle."""
        first = not self.members
        self.members[connection.number] = connection
        self._loads[connection.number] = 0
        if len(self.members) >= self._expected:
            self._gathering = NEVER
        if first:
            self._changed.update(dict.fromkeys(self.table.records))

    def lost(self, connection: RegisteredConnection) -> None:
        """Remove a lost connection with its links. Links on other members stay where they are."""
        del self.members[connection.number], self._loads[connection.number]
        self._gathering = NEVER
        for key in [key for key, proxy in self.receivers.items() if proxy.connection is connection]:
            del self.receivers[key]
            self._changed[key] = None

    def _least(self) -> RegisteredConnection:
        """Return the member with the fewest links, the oldest of equals."""
        return self.members[min(self._loads, key=self._loads.__getitem__)]

    def begun(self, connection: RegisteredConnection) -> None:
        """Count a new link on a connection."""
        self._loads[connection.number] += 1

    def over(self, connection: RegisteredConnection) -> None:
        """Count a closed or abandoned link on a connection."""
        if connection.number in self._loads:
            self._loads[connection.number] -= 1

    def again(self, key: str) -> None:
        """Check the links of an address again in the next step."""
        self._changed[key] = None
        self.waker.wake()

    def user_changed(self, record: AddressRecord) -> None:
        """Check the links of an address whose producers or consumers have changed in the next step."""
        if record.key[0] == MOBILE and self.members:
            self._changed[record.key] = None
            if record.fallback is not None:
                self._changed[record.fallback.key] = None

    def step(self) -> None:
        """Attach the links that are wanted, and close those that are not."""
        if not (self._changed or self._later) or time.monotonic() < self._gathering < NEVER:
            return
        self._gathering = NEVER
        changed, self._changed = self._changed, {}
        if not self.members:
            self._lose_all()
            return
        uplink = next(iter(self.members.values())).edge
        for key in changed:
            record = self.table.records.get(key)
            if record is not None and not self._has_links(key) and not has_local_producers(record):
                # The clients of this address have their answers. In a burst, unanswered clients come first.
                self._later[key] = None
            else:
                self._later.pop(key, None)
                self._set(key, record, uplink)
        if self._later and not self._holds():
            for key in list(islice(self._later, A_WAKE)):
                del self._later[key]
                self._set(key, self.table.records.get(key), uplink)
            if self._later:
                self.waker.wake()

    def _lose_all(self) -> None:
        """Forget what waits, because no member of the bundle is left."""
        self._later.clear()

    def _has_links(self, key: str) -> bool:
        """Return whether an address has proxy links, or is to have some without a producer."""
        return key in self.receivers

    def _holds(self) -> bool:
        """Return whether links of addresses without producers have to wait."""
        return False

    @property
    def deadline(self) -> float:
        """Monotonic time at which the wait for further members ends."""
        return self._gathering

    def _set(self, key: str, record: AddressRecord | None, uplink: int) -> None:
        """Attach or close the links of an address."""
        wanted = record is not None and record.beyond(uplink) and key in self.addresses
        there = self.receivers.get(key)
        if wanted and there is None:
            assert record is not None
            self.receivers[key] = ReceiverProxy(self, record, self._least(), outgoing=False)
        elif not wanted and there is not None:
            del self.receivers[key]
            there.close()


class ReceiverProxy:
    """Receiver at another router for messages to local consumers. Owner: the proxies."""

    def __init__(
        self,
        owner: Proxies,
        record: AddressRecord,
        connection: RegisteredConnection,
        *,
        outgoing: bool,
        early: bool = False,
    ) -> None:
        """early: the address may belong to a link route of the interior router, which must not route this link."""
        self.owner = owner
        self.key = record.key
        self.record = record
        self.connection = connection
        self.link: RegisteredLink | None = None
        self.known = False  # answered or refused by the other router
        self._open = True
        capability = NO_LINK_ROUTE if early else owner.addresses.capability(record.key, outgoing=outgoing)
        wanted = InitiatedLinkOptions(
            address=record.key[2:],
            capability=capability,
            use="messages" if outgoing else "address",
            waits=outgoing and owner.senders_wait,
        )
        owner.begun(connection)
        self._identity = owner.initiated_links.attach(connection, outgoing, wanted, self)

    def begun(self, link: RegisteredLink) -> None:
        """Store the link, whose attach has been sent."""
        self.link = link
        link.owner = self.key

    def answered(
        self, link: RegisteredLink, active: bool, address: str | None
    ) -> AttachAccepted | AttachRefused | None:
        """Bind the answered link to its address: messages on it are for this address."""
        del address
        link.up = active
        self.known |= active
        if not active or not self._open:
            return None
        phase, name = self.key[1], self.key[2:]
        number = FALLBACK_PHASE_NUMBER if phase == FALLBACK_PHASE else int(phase)
        return AttachAccepted(self.record, to=name, phase=number, fallback=phase != FALLBACK_PHASE)

    def ended(self, error: str | None) -> None:
        """Attach the link again after RETRY: the other router has detached it, or there was no room for it."""
        del error
        owner = self.owner
        self.known = True
        if self._open:
            self._open = False
            owner.over(self.connection)
        kept = self._kept()
        if kept.get(self.key) is self:
            owner.waker.later(RETRY, self._again)

    def _again(self) -> None:
        kept = self._kept()
        if kept.get(self.key) is self:
            del kept[self.key]
            self.owner.again(self.key)

    def _kept(self) -> "dict[str, Any]":
        return self.owner.receivers

    def close(self) -> None:
        """Close the link."""
        if self._open:
            self._open = False
            self.owner.over(self.connection)
            self.owner.initiated_links.detach(self.connection, self._identity)


def has_local_producers(record: AddressRecord) -> bool:
    """Return whether an address, or the address of which it is the fallback, has local producers."""
    return record.producers > record.edge_producers or (
        record.primary is not None and has_local_producers(record.primary)
    )
