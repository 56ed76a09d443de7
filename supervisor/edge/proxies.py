"""Proxy links: links that an edge router attaches at its interior router for its clients (inter-router.md 14.2).

An address with local consumers has one receiver on the uplink, an address with local producers one sender, whatever
the number of clients. The sender is a consumer of the address while the interior router reports destinations.
For an expected producer, whose look-up is unanswered, the sender is attached early. No I/O here.
"""

import math
import time
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Any, Final

from router.addressing.address import FALLBACK_PHASE, FALLBACK_PHASE_NUMBER, MOBILE
from router.addressing.settings import MULTICAST, AddressSetting
from supervisor.addresses.record import AddressRecord
from supervisor.addresses.settings import Settings
from supervisor.addresses.table import AddressTable, TableFullError
from supervisor.connections.connections import RegisteredConnection, RegisteredLink
from supervisor.edge.bundles import reports_all_addresses, supports_early_senders
from supervisor.journal.journal import Journal
from supervisor.links.attach import (
    FALLBACK_CAPABILITY,
    NO_LINK_ROUTE,
    WAYPOINT_CAPABILITY,
    AttachAccepted,
    AttachRefused,
)
from supervisor.links.initiated import InitiatedLinkOptions, InitiatedLinks
from supervisor.runtime.waker import Waker

GATHER: Final = 0.25  # seconds for the connections of a bundle to open
NEVER: Final = math.inf
A_WAKE: Final = 32  # addresses without producers whose links are attached in one wake
# With more than BURST unanswered look-ups, the links of these addresses wait until no look-up has been unanswered for
# QUIET seconds, at most for HOLD seconds.
BURST: Final = 32
QUIET: Final = 0.02
HOLD: Final = 0.5
RETRY: Final = 2.0  # seconds before a link that the interior router refused or detached is attached again
# Mobile addresses that every router has for itself.
_OWN: Final = ("$management",)
_SERVICES: Final = "_$qd."


class UplinkUse(Enum):
    """Messages of local producers that go to an interior router."""

    NOTHING = "nothing"
    ANYCAST = "anycast"  # messages for one consumer
    ALL = "all"


class Proxies:
    """All proxy links at one interior router. Owner: the attachment. brokers-and-edge.md 9.3."""

    def __init__(
        self,
        table: AddressTable,
        journal: Journal,
        settings: Settings,
        initiated_links: InitiatedLinks,
        waker: Waker,
        announces: Callable[[str], bool],
        *,
        senders: bool = True,
        heard: Callable[[AddressRecord], None] | None = None,
        after_answers: Callable[[str, Callable[[], None]], None] | None = None,
        unanswered: Callable[[], int] = lambda: 0,
    ) -> None:
        """announces(key): returns whether an address may be announced to the router at the other end. senders: the peer
        is an interior router, at which local producers need links. heard(record): called once the peer has reported
        whether an address has destinations at or behind it, or will never do so. after_answers: see Lookups.
        unanswered(): number of unanswered look-ups."""
        self._announces = announces
        self.heard: Final = heard
        self.after_answers: Final = after_answers
        self._unanswered: Final = unanswered
        self._sends = senders
        self._use = UplinkUse.NOTHING
        self.table: Final = table
        self.journal: Final = journal
        self.settings: Final = settings
        self.initiated_links: Final = initiated_links
        self.waker: Final = waker
        # Connections of the bundle by number, the active uplink included.
        self.members: dict[int, RegisteredConnection] = {}
        self._loads: dict[int, int] = {}  # number of links on each member
        self._gathering = NEVER  # monotonic time at which the wait for further members ends
        self._expected = 1  # number of members that the connector makes
        # Links on which the interior router sends, by key of the address.
        self.receivers: dict[str, _ReceiverProxy] = {}
        self.senders: dict[str, _SenderProxy] = {}
        self._changed: dict[str, None] = {}  # keys of addresses whose producers or consumers have changed
        self._later: dict[str, None] = {}  # keys of addresses without producers, handled A_WAKE at a time
        self._hold_ends = NEVER  # end of HOLD in the present burst; NEVER outside a burst
        self._held_until = NEVER  # monotonic time until which `_later` waits; NEVER: no wait
        self._early: dict[str, int] = {}  # number of expected producers by key of the address

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
        for kept in (self.receivers, self.senders):
            for key in [key for key, proxy in kept.items() if proxy.connection is connection]:
                del kept[key]
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

    def tracked(self, key: str, reachable: bool) -> None:
        """Apply the interior router's report whether an address has destinations at or behind it."""
        sender = self.senders.get(key)
        if sender is not None:
            sender.track(reachable)

    def send(self, use: UplinkUse) -> None:
        """Set which messages of local producers go to this interior router."""
        if use is not self._use:
            self._use = use
            for sender in self.senders.values():
                sender.apply()

    def sends(self, record: AddressRecord) -> bool:
        """Return whether messages to an address go to this interior router."""
        return self._use is UplinkUse.ALL or (self._use is UplinkUse.ANYCAST and record.treatment != MULTICAST)

    @property
    def settled(self) -> bool:
        """Whether all wanted links are attached and answered."""
        if self._changed or self._later or self._gathering < NEVER:
            return False
        return all(proxy.known for proxy in (*self.receivers.values(), *self.senders.values()))

    def reachable(self, key: str) -> bool | None:
        """Return the interior router's last report whether an address has destinations; None if it has no sender."""
        sender = self.senders.get(key)
        return None if sender is None else sender.reachable

    def hears(self, record: AddressRecord) -> bool:
        """Return False if the interior router may still report whether an address with producers has destinations."""
        if not self.members or not self._sends or not self._announces(record.key):
            return True
        sender = self.senders.get(record.key)
        if sender is not None:
            return sender.heard
        return record.key not in self._changed and record.key not in self._later

    def again(self, key: str) -> None:
        """Check the links of an address again in the next step."""
        self._changed[key] = None
        self.waker.wake()

    def expect(self, key: str) -> Callable[[], None] | None:
        """Attach the sender of an address early, for an expected producer. The record of the address is created now, so
        that workers know it when the producer attaches.

        Return a function to call once the producer has attached or will not; None if there is no early sender.
        """
        if (
            not self._sends
            or not self.members
            or not self._announces(key)
            or not self._may_be_early(key, self._least())
        ):
            return None
        phase, name = key[1], key[2:]
        try:
            record = self.table.open_mobile(name, int(phase), self.settings.current.lookup(name))
        except TableFullError:
            return None  # the client's attach will be refused, unless the table has room by then
        self.table.hold(record)
        self._early[key] = self._early.get(key, 0) + 1
        self.again(key)
        return lambda: self._not_expected(key, record)

    def _may_be_early(self, key: str, connection: RegisteredConnection) -> bool:
        """Return whether a sender can be attached early: the capability NO_LINK_ROUTE must be free to use."""
        setting = self.settings.current.lookup(key[2:])
        return supports_early_senders(connection) and capability_of(key[1], setting, outgoing=True) is None

    def _not_expected(self, key: str, record: AddressRecord) -> None:
        """Release an expected producer, which has attached or will not."""
        self._early[key] -= 1
        if not self._early[key]:
            del self._early[key]
        self.table.release(record)
        self.again(key)

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
            self._later.clear()
            self._hold_ends = self._held_until = NEVER
            return
        uplink = next(iter(self.members.values())).edge
        for key in changed:
            record = self.table.records.get(key)
            known = key in self._early or key in self.senders or key in self.receivers
            if record is not None and not known and not _produced(record):
                # The clients of this address have their answers. In a burst, unanswered clients come first.
                self._later[key] = None
            else:
                self._later.pop(key, None)
                self._set(key, record, uplink)
        if self._later and not self._hold():
            for key in list(islice(self._later, A_WAKE)):
                del self._later[key]
                self._set(key, self.table.records.get(key), uplink)
            if self._later:
                self.waker.wake()

    def _hold(self) -> bool:
        """Return whether links of addresses without producers wait until a burst of attaches is answered."""
        now, unanswered, held = time.monotonic(), self._unanswered(), self._hold_ends < NEVER
        if unanswered > (0 if held else BURST):
            if not held:
                self._hold_ends = now + HOLD
            self._held_until = min(self._hold_ends, now + QUIET)
        if now < self._held_until < NEVER:
            return True
        if not unanswered:
            self._hold_ends = NEVER
        self._held_until = NEVER
        return False

    def _set(self, key: str, record: AddressRecord | None, uplink: int) -> None:
        """Attach or close the links of an address."""
        self._set_receiver(key, record, uplink)
        self._set_sender(key, record)

    @property
    def deadline(self) -> float:
        """Monotonic time at which the wait for further members, or for unanswered look-ups, ends."""
        held = self._held_until if self._later else NEVER
        return min(self._gathering, held)

    def _set_receiver(self, key: str, record: AddressRecord | None, uplink: int) -> None:
        wanted = record is not None and record.beyond(uplink) and self._announces(key)
        there = self.receivers.get(key)
        if wanted and there is None:
            assert record is not None
            self.receivers[key] = _ReceiverProxy(self, record, self._least(), outgoing=False)
        elif not wanted and there is not None:
            del self.receivers[key]
            there.close()

    def _set_sender(self, key: str, record: AddressRecord | None) -> None:
        produced = record is not None and _produced(record)
        wanted = self._sends and record is not None and (produced or key in self._early) and self._announces(key)
        there = self.senders.get(key)
        if wanted and there is None:
            assert record is not None
            connection = self._least()
            if produced or self._may_be_early(key, connection):
                self.senders[key] = _SenderProxy(self, record, connection, outgoing=True, early=not produced)
        elif not wanted and there is not None:
            del self.senders[key]
            there.close()


class _ReceiverProxy:
    """Receiver at the interior router for messages to local consumers. Owner: the proxies."""

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
        self.known = False  # answered or refused by the interior router
        self._open = True
        phase, name = record.key[1], record.key[2:]
        capability = capability_of(phase, owner.settings.current.lookup(name), outgoing=outgoing)
        if early:
            capability = NO_LINK_ROUTE
        wanted = InitiatedLinkOptions(address=name, capability=capability, use="messages" if outgoing else "address")
        owner.begun(connection)
        self._identity = owner.initiated_links.attach_with_options(connection, outgoing, wanted, self)

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
        """Attach the link again after RETRY: the interior router has detached it, or there was no room for it."""
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


class _SenderProxy(_ReceiverProxy):
    """Sender at the interior router for messages of local producers. Owner: the proxies."""

    reachable = False  # the interior router has reported destinations at or behind it
    heard = False  # the interior router has reported whether there are destinations, or will never do so
    _up = False
    _told = False  # a report has arrived, perhaps before the answer to the attach

    def _kept(self) -> "dict[str, Any]":
        return self.owner.senders

    def _hear(self) -> None:
        if not self.heard:
            self.heard = True
            if self.owner.heard is not None:
                self.owner.heard(self.record)

    def _tell(self) -> None:
        self._told = True
        if self._up:
            self._hear()

    def ended(self, error: str | None) -> None:
        """Handle the end of the link: nothing will be reported about its address."""
        super().ended(error)
        self._hear()

    def answered(
        self, link: RegisteredLink, active: bool, address: str | None
    ) -> AttachAccepted | AttachRefused | None:
        """Use the answered link if the interior router has reported destinations."""
        del address
        link.up = self._up = active
        self.known |= active
        self.link = link
        self.apply()
        if active and self._told:
            self._hear()
        elif active and not reports_all_addresses(self.connection):
            # A 1.19 interior router reports destinations before its next answer, and never reports their absence.
            if needs_all_destinations(self.record) and self.owner.after_answers is not None:
                self.owner.after_answers(self.key[2:], self._tell)
            else:
                self._tell()
        return None

    def track(self, reachable: bool) -> None:
        """Apply the interior router's report whether there are destinations."""
        self.reachable = reachable
        self.apply()
        self._tell()

    def apply(self) -> None:
        """Make the link a consumer of its address while destinations are reported and `UplinkUse` allows it."""
        reachable = self.reachable and self.owner.sends(self.record)
        link, table = self.link, self.owner.table
        if link is None or not self._up or link.closed or not self._open:
            return
        place = (link.worker, link.slot, link.generation)
        if reachable and link.record is None:
            link.record = self.record
            table.add_consumer(self.record, *place, self.connection.origin.link_capacity, self.connection.way)
        elif not reachable and link.record is not None:
            link.record = None
            table.remove_consumer(self.record, *place)

    def close(self) -> None:
        """Close the link once its deliveries are settled."""
        if not self._open:
            return
        self.reachable = False
        self.apply()
        self._hear()
        self._open = False
        owner = self.owner
        owner.over(self.connection)
        owner.journal.call_when_acknowledged(
            lambda: owner.initiated_links.detach(self.connection, self._identity, quiet=True)
        )


def capability_of(phase: str, setting: AddressSetting, *, outgoing: bool) -> str | None:
    """Return the capability that names a phase of an address to the interior router (brokers-and-edge.md ED-11); None
    for the default phase. outgoing: for a sender."""
    if phase == FALLBACK_PHASE:
        return FALLBACK_CAPABILITY
    number, first, last = int(phase), setting.ingress_phase, setting.egress_phase
    if number == (first if outgoing else last):
        return None
    return f"{WAYPOINT_CAPABILITY}.{number if outgoing else number + 1}"


def needs_all_destinations(record: AddressRecord) -> bool:
    """Return whether a message to an address could miss destinations that are not known yet: each of them gets a copy
    (multicast), or consumers are preferred to a fallback."""
    return record.treatment == MULTICAST or record.fallback is not None or record.primary is not None


def is_announceable(key: str) -> bool:
    """Return whether an address may be announced to other routers."""
    name = key[2:]
    return key[0] == MOBILE and name not in _OWN and not name.startswith(_SERVICES)


def _produced(record: AddressRecord) -> bool:
    """Return whether an address, or the address of which it is the fallback, has local producers."""
    return record.producers > record.edge_producers or (record.primary is not None and _produced(record.primary))
