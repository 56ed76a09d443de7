"""Proxies: links on the uplink of an edge router that stand for its clients (inter-router.md 14.2). No I/O here.

An address with consumers here has one receiver on the uplink, one with producers has one sender, however many clients
there are. The sender is a consumer of the address while the interior says that there are destinations beyond. It is
attached early, for a producer that is only expected, while a look-up is on its way.
"""

import math
import time
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Any, Final

from router.addressing.address import FALLBACK_PHASE, FALLBACK_PHASE_NUMBER, MOBILE
from router.addressing.settings import MULTICAST, Setting
from supervisor.addresses.record import Record
from supervisor.addresses.settings import Settings
from supervisor.addresses.table import Table, TableFullError
from supervisor.connections.connections import Connection, Link
from supervisor.edge.bundles import takes_early, tells
from supervisor.links.attach import FALLBACK_CAPABILITY, NO_LINK_ROUTE, WAYPOINT_CAPABILITY, Accepted, Refused
from supervisor.links.initiated import InitiatedLinks, Wanted
from supervisor.processes.epochs import Epochs
from supervisor.runtime.waker import Waker

GATHER: Final = 0.25  # seconds for the connections of a bundle to open
NEVER: Final = math.inf
A_WAKE: Final = 32  # addresses without producers, whose links are attached in a wake
BURST: Final = 32  # unanswered look-ups; with more, the links of these addresses wait …
QUIET: Final = 0.02  # … until there have been none for so many seconds
HOLD: Final = 0.5  # seconds of this wait at most
RETRY: Final = 2.0  # seconds until a link is attached again that the interior has refused or detached
# Mobile addresses of each router itself.
_OWN: Final = ("$management",)
_SERVICES: Final = "_$qd."


class Use(Enum):
    """Which messages of producers here go to an interior router."""

    NOTHING = "nothing"
    ANYCAST = "anycast"  # those that one consumer gets
    ALL = "all"


class Proxies:
    """All proxies at one interior router. Owner: the attachment."""

    def __init__(
        self,
        table: Table,
        epochs: Epochs[Any],
        settings: Settings,
        initiated_links: InitiatedLinks,
        waker: Waker,
        announces: Callable[[str], bool],
        *,
        senders: bool = True,
        heard: Callable[[Record], None] | None = None,
        after_answers: Callable[[str, Callable[[], None]], None] | None = None,
        unanswered: Callable[[], int] = lambda: 0,
    ) -> None:
        """announces(key): whether the router at the other end may know of an address. senders: it is an interior
        router, to which producers here need links. heard(record): called when it is known whether there are
        destinations beyond. after_answers: of the look-ups. unanswered(): number of look-ups without an answer."""
        self._announces = announces
        self.heard: Final = heard
        self.after_answers: Final = after_answers
        self._unanswered: Final = unanswered
        self._sends = senders
        self._use = Use.NOTHING
        self.table: Final = table
        self.epochs: Final = epochs
        self.settings: Final = settings
        self.initiated_links: Final = initiated_links
        self.waker: Final = waker
        self.members: dict[int, Connection] = {}  # the active uplink and others of its bundle, by number
        self._loads: dict[int, int] = {}  # links on each of them
        self._gathering = NEVER  # wait so long for further members
        self._expected = 1  # members
        self.receivers: dict[str, _Proxy] = {}  # by key of the address: on which the interior sends
        self.senders: dict[str, _Sender] = {}
        self._changed: dict[str, None] = {}  # keys of addresses whose users have changed
        self._later: dict[str, None] = {}  # … without producers: some of them in each wake
        self._hold_ends = NEVER  # end of HOLD in this burst; NEVER: there is no burst
        self._held_until = NEVER  # earliest time for `_later` as of the last step; NEVER: at once
        self._early: dict[str, int] = {}  # producers that are expected, by key of the address

    def gather(self, members: int) -> None:
        """A bundle of so many connections begins: links stay on those on which they are made, so wait for the others
        for a moment."""
        self._expected = members
        self._gathering = time.monotonic() + GATHER if members > 1 else NEVER

    def use(self, connection: Connection) -> None:
        """Links may go there from now on."""
        first = not self.members
        self.members[connection.number] = connection
        self._loads[connection.number] = 0
        if len(self.members) >= self._expected:
            self._gathering = NEVER
        if first:
            self._changed.update(dict.fromkeys(self.table.records))

    def lost(self, connection: Connection) -> None:
        """A connection is gone, with all its links. Those of other addresses stay where they are."""
        del self.members[connection.number], self._loads[connection.number]
        self._gathering = NEVER
        for kept in (self.receivers, self.senders):
            for key in [key for key, proxy in kept.items() if proxy.connection is connection]:
                del kept[key]
                self._changed[key] = None

    def _least(self) -> Connection:
        """The member with the fewest links; the first one when equal."""
        return self.members[min(self._loads, key=self._loads.__getitem__)]

    def begun(self, connection: Connection) -> None:
        """A link is made on a connection."""
        self._loads[connection.number] += 1

    def over(self, connection: Connection) -> None:
        """A link on it is closed, or given up."""
        if connection.number in self._loads:
            self._loads[connection.number] -= 1

    def tracked(self, key: str, reachable: bool) -> None:
        """The interior says whether there are destinations beyond for an address."""
        sender = self.senders.get(key)
        if sender is not None:
            sender.track(reachable)

    def send(self, use: Use) -> None:
        """Which messages of producers here go there from now on."""
        if use is not self._use:
            self._use = use
            for sender in self.senders.values():
                sender.apply()

    def sends(self, record: Record) -> bool:
        """Whether messages to an address go there."""
        return self._use is Use.ALL or (self._use is Use.ANYCAST and record.treatment != MULTICAST)

    @property
    def settled(self) -> bool:
        """Whether the interior has answered all that it was asked."""
        if self._changed or self._later or self._gathering < NEVER:
            return False
        return all(proxy.known for proxy in (*self.receivers.values(), *self.senders.values()))

    def reachable(self, key: str) -> bool | None:
        """What the interior has said about destinations beyond; None: it has not been asked."""
        sender = self.senders.get(key)
        return None if sender is None else sender.reachable

    def hears(self, record: Record) -> bool:
        """Whether it is known if there are destinations beyond for an address with producers, or need not be."""
        if not self.members or not self._sends or not self._announces(record.key):
            return True
        sender = self.senders.get(record.key)
        if sender is not None:
            return sender.heard
        return record.key not in self._changed and record.key not in self._later

    def again(self, key: str) -> None:
        """A link has ended: attach it again if it is still wanted."""
        self._changed[key] = None
        self.waker.wake()

    def expect(self, key: str) -> Callable[[], None] | None:
        """An address may get a producer: attach the sender for it already. Its record is there from now on, so that
        workers know it when the producer comes.

        Returns what to call once the producer is there, or will not come; None: there is no early sender.
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
            return None  # the attach is refused, or finds room by then
        self.table.hold(record)
        self._early[key] = self._early.get(key, 0) + 1
        self.again(key)
        return lambda: self._not_expected(key, record)

    def _may_be_early(self, key: str, connection: Connection) -> bool:
        """Whether the interior can be told not to route a link to this address, which needs the place of the
        capability."""
        setting = self.settings.current.lookup(key[2:])
        return takes_early(connection) and capability_of(key[1], setting, outgoing=True) is None

    def _not_expected(self, key: str, record: Record) -> None:
        """One of the producers that were expected is there, or will not come."""
        self._early[key] -= 1
        if not self._early[key]:
            del self._early[key]
        self.table.release(record)
        self.again(key)

    def user_changed(self, record: Record) -> None:
        """An address has got or lost a user."""
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

    def _set(self, key: str, record: Record | None, uplink: int) -> None:
        """Attach or close the links of an address."""
        self._set_receiver(key, record, uplink)
        self._set_sender(key, record)

    @property
    def deadline(self) -> float:
        """Time at which the wait for further members, or for unanswered clients, ends."""
        held = self._held_until if self._later else NEVER
        return min(self._gathering, held)

    def _set_receiver(self, key: str, record: Record | None, uplink: int) -> None:
        wanted = record is not None and record.beyond(uplink) and self._announces(key)
        there = self.receivers.get(key)
        if wanted and there is None:
            assert record is not None
            self.receivers[key] = _Proxy(self, record, self._least(), outgoing=False)
        elif not wanted and there is not None:
            del self.receivers[key]
            there.close()

    def _set_sender(self, key: str, record: Record | None) -> None:
        produced = record is not None and _produced(record)
        wanted = self._sends and record is not None and (produced or key in self._early) and self._announces(key)
        there = self.senders.get(key)
        if wanted and there is None:
            assert record is not None
            connection = self._least()
            if produced or self._may_be_early(key, connection):
                self.senders[key] = _Sender(self, record, connection, outgoing=True, early=not produced)
        elif not wanted and there is not None:
            del self.senders[key]
            there.close()


class _Proxy:
    """A link on which the interior sends what is for consumers here. Owner: the proxies."""

    def __init__(
        self, owner: Proxies, record: Record, connection: Connection, *, outgoing: bool, early: bool = False
    ) -> None:
        """early: its address may be of a link route of the interior, which must not route it."""
        self.owner = owner
        self.key = record.key
        self.record = record
        self.connection = connection
        self.link: Link | None = None
        self.known = False  # the interior has answered, or refused it
        self._open = True
        phase, name = record.key[1], record.key[2:]
        capability = capability_of(phase, owner.settings.current.lookup(name), outgoing=outgoing)
        if early:
            capability = NO_LINK_ROUTE
        wanted = Wanted(address=name, capability=capability, use="messages" if outgoing else "address")
        owner.begun(connection)
        self._identity = owner.initiated_links.attach_wanted(connection, outgoing, wanted, self)

    def begun(self, link: Link) -> None:
        """The attach has gone out."""
        self.link = link
        link.owner = self.key

    def answered(self, link: Link, active: bool, address: str | None) -> Accepted | Refused | None:
        """The interior has answered: what comes is for this address."""
        del address
        link.up = active
        self.known |= active
        if not active or not self._open:
            return None
        phase, name = self.key[1], self.key[2:]
        number = FALLBACK_PHASE_NUMBER if phase == FALLBACK_PHASE else int(phase)
        return Accepted(self.record, to=name, phase=number, fallback=phase != FALLBACK_PHASE)

    def ended(self, error: str | None) -> None:
        """The interior has detached it, or there was no room."""
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
        """It is not wanted any more."""
        if self._open:
            self._open = False
            self.owner.over(self.connection)
            self.owner.initiated_links.detach(self.connection, self._identity)


class _Sender(_Proxy):
    """A link by which messages of producers here go up. Owner: the proxies."""

    reachable = False
    heard = False  # whether there are destinations is known, or will not be
    _up = False
    _told = False  # the interior has said so, which may come before its answer to the attach

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
        """The interior has detached it, or there was no room."""
        super().ended(error)
        self._hear()

    def answered(self, link: Link, active: bool, address: str | None) -> Accepted | Refused | None:
        """The interior has answered: it is used when there are destinations."""
        del address
        link.up = self._up = active
        self.known |= active
        self.link = link
        self.apply()
        if active and self._told:
            self._hear()
        elif active and not tells(self.connection):
            # An interior of 1.19 says nothing where nobody is beyond, and anything else before its next answer.
            if choosy(self.record) and self.owner.after_answers is not None:
                self.owner.after_answers(self.key[2:], self._tell)
            else:
                self._tell()
        return None

    def track(self, reachable: bool) -> None:
        """There are destinations beyond, or not."""
        self.reachable = reachable
        self.apply()
        self._tell()

    def apply(self) -> None:
        """Be a consumer of the address while there are destinations and messages go this way, or not."""
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
        """It is not wanted any more. What is on its way still gets its outcome."""
        if not self._open:
            return
        self.reachable = False
        self.apply()
        self._hear()
        self._open = False
        owner = self.owner
        owner.over(self.connection)
        owner.epochs.call_when_all(
            owner.table.pending_epoch,
            lambda: owner.initiated_links.detach(self.connection, self._identity, quiet=True),
        )


def capability_of(phase: str, setting: Setting, *, outgoing: bool) -> str | None:
    """The capability that names an instance of an address to the interior (brokers-and-edge.md ED-11); None: a link
    without one has it. outgoing: for a sender."""
    if phase == FALLBACK_PHASE:
        return FALLBACK_CAPABILITY
    number, first, last = int(phase), setting.ingress_phase, setting.egress_phase
    if number == (first if outgoing else last):
        return None
    return f"{WAYPOINT_CAPABILITY}.{number if outgoing else number + 1}"


def choosy(record: Record) -> bool:
    """Whether a message for an address may miss destinations that are not known yet: each of them gets a copy, or some
    come before others."""
    return record.treatment == MULTICAST or record.fallback is not None or record.primary is not None


def announced(key: str) -> bool:
    """Whether others may know of the address with this key."""
    name = key[2:]
    return key[0] == MOBILE and name not in _OWN and not name.startswith(_SERVICES)


def _produced(record: Record) -> bool:
    """Whether somebody here sends to it, or to the address that it is the fallback of."""
    return record.producers > record.edge_producers or (record.primary is not None and _produced(record.primary))
