"""Taps of the configuration, turned into the ops that announce them (docs/user/tap.md, decision 0087)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sluice.router.addressing.address import MOBILE, classify, normalise
from sluice.router.addressing.settings import AddressSettings
from sluice.router.config.entities import TapConfig
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import CopiesMissed
from sluice.router.control.ops import Op, TapGone, TapOp
from sluice.supervisor.addresses.counter_slots import CounterSlots
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.settings import Settings
from sluice.supervisor.addresses.table import AddressTable, TableFullError
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import Subsystem

if TYPE_CHECKING:
    from sluice.supervisor.children.worker import WorkerProcess

# Counters of a tap, by the counter of an address whose place they have (router/table/tap.pxd).
COUNTERS: Final[Mapping[str, str]] = {
    "selected": "ingress",
    "accepted": "egress",
    "rejected": "redirected",
    "returned": "from_container",
    "withoutConsumer": "transit",
    "beyondBounds": "to_container",
    "tooLong": "ingress_container",
    "stalled": "egress_container",
}
#: Addresses of a tap whose missed messages have a count of their own, the first ones that missed any.
MOST_MISSED_ADDRESSES: Final = 64
#: Reasons for which no consumer has a copy.
MISSED: Final = ("returned", "withoutConsumer", "beyondBounds", "tooLong", "stalled")


class TapRefusedError(ValueError):
    """Raised when a tap cannot be made; the text is the reason that management reports."""


def _nature(config: TapConfig) -> tuple[str, ...]:
    """Return all attributes of a tap except its name."""
    return config.pattern, config.address, config.mode


class _Tap:
    """Tap with the record of the address that gets its copies. Owner: Taps."""

    __slots__ = ("config", "counters", "missed", "missed_elsewhere", "number", "record")

    def __init__(self, number: int, config: TapConfig, record: AddressRecord, counters: int) -> None:
        self.number = number
        self.config = config
        self.record = record
        self.counters = counters  # counter slot
        self.missed: dict[str, int] = {}  # missed messages by address, of at most MOST_MISSED_ADDRESSES
        self.missed_elsewhere = 0  # missed messages to further addresses

    def op(self) -> Op:
        """Return the op that announces this tap."""
        return TapOp(self.number, self.record.key, self.config.pattern, self.config.required, self.counters)

    def count_missed(self, counts: Mapping[str, int]) -> None:
        """Add missed messages by address. counts: those of further addresses have the key ""."""
        for address, count in counts.items():
            if address and (address in self.missed or len(self.missed) < MOST_MISSED_ADDRESSES):
                self.missed[address] = self.missed.get(address, 0) + count
            else:
                self.missed_elsewhere += count


class Taps(Subsystem):
    """Taps of the router. Each is a producer of the address that gets its copies. Owner: supervisor."""

    def __init__(
        self,
        router_id: str,
        mode: str,
        settings: Settings,
        table: AddressTable,
        slots: CounterSlots,
        journal: Journal,
        refused: Callable[[str], object],
    ) -> None:
        """Create without taps. refused: called with a log text for each tap that `use` cannot make."""
        self._router_id: Final = router_id
        self._mode: Final = mode
        self._settings: Final = settings
        self._current: Final[AddressSettings] = settings.current
        self._table: Final = table
        self._slots: Final = slots
        self._journal: Final = journal
        self._refused: Final = refused
        self._taps: dict[str, _Tap] = {}  # by name
        self._prepared: list[str] = []  # names of taps added by `prepare`; `discard` removes them
        self._next_number = 1  # numbers are never used again

    def messages(self, handlers: "HandlerTable[WorkerProcess]") -> None:
        handlers.on(CopiesMissed, self._copies_missed)

    def _copies_missed(self, worker: "WorkerProcess", message: CopiesMissed) -> None:
        for tap in self._taps.values():
            if tap.number == message.tap:
                tap.count_missed(message.counts)

    def snapshot_ops(self) -> Iterable[Op]:
        return [tap.op() for tap in self._taps.values()]

    def prepare(self, change: ConfigurationChange) -> None:
        """Add the taps of a request; `discard` can remove them again."""
        for config in change.made(TapConfig):
            try:
                self.add(config)
            except TapRefusedError as error:
                raise ChangeError(400, str(error)) from error
            self._prepared.append(config.name)

    def discard(self, change: ConfigurationChange) -> None:
        while self._prepared:
            self.remove(self._prepared.pop())

    def commit(self, change: ConfigurationChange) -> None:
        self._prepared.clear()
        if change.whole:
            self.use(change.new.taps)
        for config in change.removed(TapConfig):
            self.remove(config.name)

    def use(self, taps: Sequence[TapConfig]) -> None:
        """Replace all taps by those of a configuration. Unchanged ones stay; changed ones are made again."""
        wanted = {config.name: _nature(config) for config in taps}
        for name, tap in list(self._taps.items()):
            if wanted.get(name) != _nature(tap.config):
                self.remove(name)
        for config in taps:
            if config.name not in self._taps:
                try:
                    self.add(config)
                except TapRefusedError as error:
                    self._refused(f"Error configuring tap '{config.name}': {error}")

    def add(self, config: TapConfig) -> None:
        """Make a tap. Raises TapRefusedError without having changed anything."""
        cls, name = classify(normalise(config.address), self._router_id, self._mode)
        if cls != MOBILE:
            raise TapRefusedError(f"'{config.address}' cannot get copies: it is an address of one router or link")
        setting = self._current.lookup(name)
        try:
            record = self._table.open_mobile(name, setting.ingress_phase, setting)
        except TableFullError as error:
            raise TapRefusedError(f"the address table has no room for '{config.address}'") from error
        counters = self._slots.allocate()
        if counters is None:
            raise TapRefusedError("the address table has no room for its counters")
        # As a producer of the address, so that an edge router asks its interior router for consumers.
        self._table.add_producer(record)
        tap = self._taps[config.name] = _Tap(self._next_number, config, record, counters)
        self._next_number += 1
        self._journal.append(tap.op())
        self._table.taps.put(tap.number, config.pattern)
        self._settings.note_taps(config.tokens)

    def remove(self, name: str) -> None:
        """Remove a tap. Raises KeyError if it does not exist."""
        tap = self._taps.pop(name)
        self._table.taps.drop(tap.number)
        self._journal.append(TapGone(tap.number))
        self._settings.note_taps(tap.config.tokens)
        self._slots.release(tap.counters)
        self._table.remove_producer(tap.record)

    def slots(self) -> Iterator[tuple[str, int]]:
        """Iterate over all taps: name and counter slot."""
        return ((name, tap.counters) for name, tap in self._taps.items())

    def counters(self, name: str) -> int | None:
        """Return the counter slot of a tap; None if there is no such tap."""
        tap = self._taps.get(name)
        return None if tap is None else tap.counters

    def missed(self, name: str) -> tuple[Mapping[str, int], int]:
        """Return missed messages of a tap by address, and the number of those of further addresses."""
        tap = self._taps.get(name)
        return ({}, 0) if tap is None else (tap.missed, tap.missed_elsewhere)

    def describe(self, record_key: str) -> list[dict[str, Any]]:
        """Describe the taps that copy messages to the address with a record key, whether or not it has a record."""
        selected = self._table.taps.matching(record_key)
        return [
            {
                "name": name,
                "address": tap.config.address,
                "mode": tap.config.mode,
                "consumers": len(tap.record.consumers or ()) + len(tap.record.remotes or ()),
                "missed": tap.missed.get(record_key[2:], 0),
            }
            for name, tap in self._taps.items()
            if tap.number in selected
        ]


def tap_totals(counted: Mapping[str, int]) -> dict[str, int]:
    """Return the counters of a tap by name. counted: the counters in its slot, by the names of an address."""
    return {name: counted[place] for name, place in COUNTERS.items()}
