"""Proxy links at an interior router: receivers for local consumers, senders for local producers (inter-router.md 14.2).

An address with local producers has one sender on the uplink, whatever the number of clients. The sender is a consumer
of the address while the interior router reports destinations. The sender is attached early for an expected producer: a
client whose look-up is still unanswered. No I/O here.
"""

import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from sluice.router.addressing.settings import MULTICAST
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable, TableFullError
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.edge.absence import UplinkAbsence
from sluice.supervisor.edge.announced import AnnouncedAddresses
from sluice.supervisor.edge.bundles import reports_all_addresses, supports_early_senders
from sluice.supervisor.edge.first_credit import FirstCredit, needs_all_destinations
from sluice.supervisor.edge.lookups import Lookups
from sluice.supervisor.edge.proxies import NEVER, Proxies, ReceiverProxy, has_local_producers
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.links.attach import AttachAccepted, AttachRefused
from sluice.supervisor.links.initiated import InitiatedLinks
from sluice.supervisor.runtime.waker import Waker

# With more than BURST unanswered look-ups, links of addresses without producers wait until QUIET seconds after all
# look-ups are answered, at most HOLD seconds in all.
BURST: Final = 32
QUIET: Final = 0.02
HOLD: Final = 0.5


class UplinkUse(Enum):
    """Kinds of messages of local producers that go to an interior router."""

    NOTHING = "nothing"
    ANYCAST = "anycast"  # messages for one consumer
    ALL = "all"


class UplinkProxies(Proxies):
    """All proxy links at one interior router. Owner: the attachment. brokers-and-edge.md 9.3."""

    def __init__(
        self,
        table: AddressTable,
        journal: Journal,
        addresses: AnnouncedAddresses,
        initiated_links: InitiatedLinks,
        waker: Waker,
        lookups: Lookups,
        first_credit: FirstCredit,
        absence: UplinkAbsence,
    ) -> None:
        super().__init__(table, addresses, initiated_links, waker)
        self.journal: Final = journal
        self.lookups: Final = lookups
        self.first_credit: Final = first_credit
        self.absence: Final = absence
        self.senders_wait = absence.seconds > 0
        self.senders: dict[str, SenderProxy] = {}  # by key of the address
        self._use = UplinkUse.NOTHING
        self._hold_ends = NEVER  # end of HOLD in the present burst; NEVER outside a burst
        self._held_until = NEVER  # monotonic time until which `_later` waits; NEVER: no wait
        self._early: dict[str, int] = {}  # number of expected producers by key of the address

    def lost(self, connection: RegisteredConnection) -> None:
        """Remove a lost connection with its links. Links on other members stay where they are."""
        super().lost(connection)
        for key in [key for key, proxy in self.senders.items() if proxy.connection is connection]:
            del self.senders[key]
            self._changed[key] = None

    def tracked(self, key: str, reachable: bool) -> None:
        """Apply the interior router's report whether it can reach destinations of an address."""
        sender = self.senders.get(key)
        if sender is not None:
            sender.track(reachable)

    def send(self, use: UplinkUse) -> None:
        """Set the kinds of messages of local producers that go to this interior router."""
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
        if not self.members or record.key not in self.addresses:
            return True
        sender = self.senders.get(record.key)
        if sender is not None:
            return sender.heard
        return record.key not in self._changed and record.key not in self._later

    def expect(self, key: str) -> Callable[[], None] | None:
        """Attach the sender of an address early, for an expected producer.

        The record of the address is created now, so that workers know the address when the producer attaches. Return a
        function to call when the producer has attached, or will not attach; None: there is no early sender.
        """
        if not self.members or key not in self.addresses or not self._may_be_early(key, self._least()):
            return None
        phase, name = key[1], key[2:]
        try:
            record = self.table.open_mobile(name, int(phase), self.addresses.setting(name))
        except TableFullError:
            return None  # the client's attach will be refused, unless the table has room by then
        self.table.hold(record)
        self._early[key] = self._early.get(key, 0) + 1
        self.again(key)
        return lambda: self._not_expected(key, record)

    def _may_be_early(self, key: str, connection: RegisteredConnection) -> bool:
        """Return whether a sender can be attached early: NO_LINK_ROUTE must be its only capability."""
        return supports_early_senders(connection) and self.addresses.capability(key, outgoing=True) is None

    def _not_expected(self, key: str, record: AddressRecord) -> None:
        """Release an expected producer, which has attached or will not."""
        self._early[key] -= 1
        if not self._early[key]:
            del self._early[key]
        self.table.release(record)
        self.again(key)

    def _lose_all(self) -> None:
        super()._lose_all()
        self._hold_ends = self._held_until = NEVER

    def _has_links(self, key: str) -> bool:
        return key in self._early or key in self.senders or super()._has_links(key)

    def _holds(self) -> bool:
        """Return whether links of addresses without producers wait until a burst of attaches is answered."""
        now, unanswered, held = time.monotonic(), len(self.lookups), self._hold_ends < NEVER
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

    @property
    def deadline(self) -> float:
        """Monotonic time at which the wait for further members, or for unanswered look-ups, ends."""
        return min(super().deadline, self._held_until if self._later else NEVER)

    def _set(self, key: str, record: AddressRecord | None, uplink: int) -> None:
        super()._set(key, record, uplink)
        produced = record is not None and has_local_producers(record)
        wanted = record is not None and (produced or key in self._early) and key in self.addresses
        there = self.senders.get(key)
        if wanted and there is None:
            assert record is not None
            connection = self._least()
            if produced or self._may_be_early(key, connection):
                self.senders[key] = SenderProxy(self, record, connection, early=not produced)
        elif not wanted and there is not None:
            del self.senders[key]
            there.close()


class SenderProxy(ReceiverProxy):
    """Sender at the interior router for messages of local producers. Owner: the proxies."""

    reachable = False  # the interior router has reported that it can reach destinations
    heard = False  # the interior router has reported whether there are destinations, or will not report
    _up = False
    _told = False  # a report has arrived, perhaps before the answer to the attach

    def __init__(
        self, owner: UplinkProxies, record: AddressRecord, connection: RegisteredConnection, *, early: bool
    ) -> None:
        """early: see ReceiverProxy."""
        self._proxies: Final = owner
        super().__init__(owner, record, connection, outgoing=True, early=early)

    def _kept(self) -> "dict[str, Any]":
        return self._proxies.senders

    def _hear(self) -> None:
        if not self.heard:
            self.heard = True
            self._proxies.first_credit.heard(self.record)

    def _tell(self) -> None:
        self._told = True
        if self._up:
            self._hear()

    def ended(self, error: str | None) -> None:
        """Handle the end of the link: the interior router will not report about its address."""
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
            if needs_all_destinations(self.record):
                self._proxies.lookups.after_answers(self.key[2:], self._tell)
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
        reachable = self.reachable and self._proxies.sends(self.record)
        link, table = self.link, self._proxies.table
        if link is None or not self._up or link.closed or not self._open:
            return
        place = (link.worker, link.slot, link.generation)
        if reachable and link.record is None:
            link.record = self.record
            table.add_consumer(self.record, *place, self.connection.origin.link_capacity, self.connection.way)
            self._proxies.absence.resume(self.record, link)
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
        owner = self._proxies
        owner.over(self.connection)
        owner.journal.call_when_acknowledged(
            lambda: owner.initiated_links.detach(self.connection, self._identity, quiet=True)
        )
