"""Address settings at run time: the settings in force, and the propagation of changes to records and workers.

The supervisor applies a changed setting to new decisions at once. Existing address records and the workers get the
change in epochs of at most MAX_OPS_PER_EPOCH ops. Each epoch waits until all workers have acknowledged the previous
one: a worker applies an epoch between two wakes, and that pause must be short. A pattern and its addresses change in
the same epoch if they fit.

Changes are made in rounds. A round first finds the affected records, then announces the epochs. Changes that arrive
during a round do not interrupt it; they wait for the next round. So a round always ends, however many changes arrive.
No input or output here.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from sluice.router.addressing.address import FALLBACK_PHASE, MOBILE
from sluice.router.addressing.settings import BALANCED, AddressSetting, AddressSettings
from sluice.router.config.entities import AddressConfig
from sluice.router.control.ops import DefaultOp, Op, SettingOp, SettingsOp
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.configuration.change import AddressPlan, ConfigurationChange
from sluice.supervisor.configuration.ops import address_entries, address_entry
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import Subsystem

# Maximum ops in an epoch. A worker needs 0.3 ms for that many, measured with 1,000 changed patterns
# (loadtests/reload_rows.py).
MAX_OPS_PER_EPOCH: Final = 100
# Records examined in one wake of the supervisor. Examining a record takes 3 to 5 µs.
RECORDS_PER_WAKE: Final = 250
# Records skipped in the time that it takes to examine one. A record is skipped if its name begins differently from
# all changed patterns.
SKIPPED_PER_EXAMINED: Final = 16
# Maximum number of pattern prefixes that names are compared with. With more prefixes all records are examined.
MAX_PREFIXES: Final = 32

_SEPARATORS: Final = (".", "/")
NAME_OFFSET: Final = 2  # offset of the name in the key of a mobile address, after class and phase


class Settings(Subsystem):
    """Address settings of the router, and their propagation. Owner: supervisor."""

    def __init__(
        self, table: AddressTable, journal: Journal, entries: Mapping[str, AddressSetting], default: str
    ) -> None:
        """Take the initial settings: `entries` by canonical pattern, and the `default` distribution."""
        self.current: Final = AddressSettings(entries.items(), default)
        self._table = table
        self._journal = journal
        table.taps.follow(self.current)
        self._entries: dict[str, AddressSetting] = dict(entries)
        # State of the next round. A round applies changed settings to the records in the address table.
        self._changed: dict[str, None] = {}  # changed patterns, in order
        self._tap_prefixes: set[str] = set()  # first tokens of patterns of taps that were added or removed
        self._default_changed = False
        self._again = False  # another round must follow the present one
        # State of the present round, which first searches the records of changed patterns, then announces the changes.
        self._scan: Iterator[AddressRecord] | None = None  # records still to be examined; None: no search is under way
        self._name_prefixes: tuple[str, ...] | None = None  # prefixes of names to examine; None: examine all
        self._round: dict[str, None] = {}  # patterns still to be announced
        self._round_default = False  # the round must still announce the changed default distribution
        self._announcing = False
        # Records to be changed, by the Python id of the setting that applies. The tuple keeps a reference to the
        # setting, so that its id stays unique.
        self._found: dict[int, tuple[AddressSetting, list[AddressRecord]]] = {}
        self._waiting: deque[SettingOp | DefaultOp | AddressRecord] = deque()  # items to be announced next
        self._sent = 0  # epoch of the last announcement
        self._begun = 0  # number of rounds begun
        self._ended = 0  # number of rounds ended
        self._when_in_force: deque[tuple[int, Callable[[], object]]] = deque()  # round, action after its end

    def snapshot_ops(self) -> Iterable[Op]:
        return (SettingsOp(list(self._entries.items()), self.current.default.distribution),)

    def get(self, pattern: str) -> AddressSetting | None:
        """Return the setting of a canonical pattern; None if there is none."""
        return self._entries.get(pattern)

    def patterns(self) -> Iterable[str]:
        """Return all canonical patterns."""
        return self._entries.keys()

    def put(self, pattern: str, setting: AddressSetting) -> None:
        """Add a canonical pattern, or change its setting."""
        if self._entries.get(pattern) != setting:
            self._entries[pattern] = setting
            self.current.put(pattern, setting)
            self._note([pattern])

    def drop(self, pattern: str) -> None:
        """Remove a canonical pattern, which must exist."""
        del self._entries[pattern]
        self.current.drop(pattern)
        self._note([pattern])

    def set_default(self, distribution: str) -> None:
        """Change the distribution of addresses that no pattern matches."""
        if distribution != self.current.default.distribution:
            self.current.set_default(distribution)
            self._default_changed = True
            self._note([])

    def replace(self, entries: Mapping[str, AddressSetting], prepared: AddressSettings, changed: Iterable[str]) -> None:
        """Replace all settings at once.

        prepared: the same entries and the default, as a search structure. changed: patterns that differ from before.
        """
        changed = list(changed)
        self._default_changed |= prepared.default.distribution != self.current.default.distribution
        if changed or self._default_changed:
            self._entries = dict(entries)
            self.current.become(prepared)
            self._note(changed)

    def commit(self, change: ConfigurationChange) -> None:
        if not change.whole:
            for address in change.removed(AddressConfig):
                self.drop(address_entry(address)[0])
            for address in change.made(AddressConfig):
                self.put(*address_entry(address))
            return
        plan = change.addresses
        if plan is None:
            entries, _ = address_entries(change.new.addresses)
            patterns = {**entries, **dict.fromkeys(self._entries)}
            changed = [pattern for pattern in patterns if self._entries.get(pattern) != entries.get(pattern)]
            current = AddressSettings(entries.items(), change.new.router.default_distribution)
            plan = AddressPlan(entries, current, changed)
        self.replace(plan.entries, plan.settings, plan.changed)

    def note_taps(self, tokens: Sequence[str]) -> None:
        """Request another round for addresses that a tap's pattern matches: the tap was added or removed."""
        self._tap_prefixes.add(tokens[0])
        self._again = True

    def _note(self, changed: Iterable[str]) -> None:
        """Request another round for the changed patterns."""
        self._changed.update(dict.fromkeys(changed))
        self._again = True

    # Propagation of changes to records and workers

    @property
    def settled(self) -> bool:
        """True if all changes have been announced."""
        return not self._again and not self._under_way

    @property
    def _under_way(self) -> bool:
        return self._scan is not None or self._announcing

    def when_in_force(self, action: Callable[[], object]) -> None:
        """Call `action` when all workers use the present configuration, settings included."""
        self._when_in_force.append((self._begun + self._again, action))

    @property
    def waiting(self) -> bool:
        return not self.settled and (not self._announcing or self._may_send())

    def _may_send(self) -> bool:
        """True if all workers have acknowledged the last epoch."""
        return self._journal.settled >= self._sent

    def step(self) -> None:
        """Continue the round, for about a millisecond."""
        if self._again and not self._under_way:
            self._begin()
        if self._scan is not None:
            self._look(self._scan)
        if self._announcing and self._may_send():
            self._announce_some()
        while self._when_in_force and self._when_in_force[0][0] <= self._ended:
            self._journal.call_when_acknowledged(self._when_in_force.popleft()[1])

    def _begin(self) -> None:
        """Begin a round for all changes so far."""
        self._round, self._changed = self._changed, {}
        self._round_default, self._default_changed = self._default_changed, False
        self._again = False
        self._begun += 1
        self._name_prefixes = self._affected_prefixes()
        self._scan = iter(list(self._table.records.values()))

    def _affected_prefixes(self) -> tuple[str, ...] | None:
        """Return prefixes of the names that this round's patterns can match; None: examine all records."""
        firsts = {pattern.partition("/")[0] for pattern in self._round} | self._tap_prefixes
        self._tap_prefixes = set()
        if self._round_default or len(firsts) > MAX_PREFIXES or not firsts.isdisjoint("*#"):
            return None
        return (*firsts, *_SEPARATORS)

    def _look(self, scan: Iterator[AddressRecord]) -> None:
        """Search the next records for those whose setting has changed, within the limit of one wake."""
        left = RECORDS_PER_WAKE * SKIPPED_PER_EXAMINED
        while left > 0:
            record = next(scan, None)
            if record is None:
                self._scan = None
                self._announcing = True
                return
            left -= 1
            if self._name_prefixes is not None and not record.key.startswith(self._name_prefixes, NAME_OFFSET):
                continue
            left -= SKIPPED_PER_EXAMINED - 1
            setting = self._setting(record)
            if setting is not None and not self._agrees_with_setting(record, setting):
                self._found.setdefault(id(setting), (setting, []))[1].append(record)

    def _setting(self, record: AddressRecord) -> AddressSetting | None:
        """Return the setting that applies to a record; None if settings do not apply to it."""
        if record.fixed or record.inproc:
            return None
        return self.current.lookup(record.key[NAME_OFFSET:]) if record.key[0] == MOBILE else self.current.default

    def _announce_some(self) -> None:
        """Fill an epoch: first with the rest of a pattern's addresses, then with further patterns while they fit."""
        count = 0
        while count < MAX_OPS_PER_EPOCH and (self._waiting or self._collect()):
            if count and count + len(self._waiting) > MAX_OPS_PER_EPOCH:
                break
            while self._waiting and count < MAX_OPS_PER_EPOCH:
                self._announce(self._waiting.popleft())
                count += 1
        if count:
            self._sent = self._journal.next_epoch
            self._journal.await_all(self._sent)
        else:
            self._announcing = False
            self._ended = self._begun

    def _collect(self) -> bool:
        """Queue the next changed pattern with its addresses; after all patterns, addresses whose pattern was removed.

        Returns False if nothing is left.
        """
        if self._round:
            pattern = next(iter(self._round))
            del self._round[pattern]
            self._waiting.append(SettingOp(pattern, self._entries.get(pattern)))
            setting = self.current.get(pattern)
            if setting is not None and id(setting) in self._found:
                self._waiting += self._found.pop(id(setting))[1]
            return True
        if self._round_default:
            self._round_default = False
            self._waiting.append(DefaultOp(self.current.default.distribution))
        if self._found:
            self._waiting += self._found.pop(next(iter(self._found)))[1]
        return bool(self._waiting)

    def _announce(self, item: SettingOp | DefaultOp | AddressRecord) -> None:
        if not isinstance(item, AddressRecord):
            self._journal.append(item)
        elif self._table.records.get(item.key) is item and (setting := self._setting(item)) is not None:
            self._apply_setting(item, setting)

    def _apply_setting(self, record: AddressRecord, setting: AddressSetting) -> None:
        """Apply `setting` to a record and announce the record."""
        scope = record.scope
        record.treatment, record.priority, record.overflow, record.scope, record.taps = self._values(record, setting)
        if record.scope != scope:
            self._table.notify_scope_changed(record)
        self._table.set_fallback(record, setting)

    def _values(
        self, record: AddressRecord, setting: AddressSetting
    ) -> tuple[str, int | None, str, str, tuple[int, ...]]:
        """Return treatment, priority, overflow, scope and taps that a record should have under `setting`."""
        taps = self._table.taps.matching(record.key)
        return self._treatment(record, setting), setting.priority, setting.overflow, setting.scope, taps

    def _treatment(self, record: AddressRecord, setting: AddressSetting) -> str:
        """Return the treatment that a record should have under `setting`."""
        if record.key[0] == MOBILE and record.key[1] == FALLBACK_PHASE:
            return BALANCED
        if record.hint is not None and setting is self.current.default:
            return record.hint
        return setting.distribution

    def _agrees_with_setting(self, record: AddressRecord, setting: AddressSetting) -> bool:
        """True if a record agrees with its setting already."""
        present = (record.treatment, record.priority, record.overflow, record.scope, record.taps)
        same = present == self._values(record, setting)
        return same and (record.key[:2] != "M0" or setting.fallback is (record.fallback is not None))
