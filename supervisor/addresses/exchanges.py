"""Exchanges and bindings of the configuration, checked and turned into address records and ops.

The rules: routing-semantics.md 15.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sluice.router.addressing.address import MOBILE, classify, key, normalise
from sluice.router.addressing.binding_keys import KeyMatcher
from sluice.router.addressing.settings import UNAVAILABLE, AddressSetting, AddressSettings
from sluice.router.config.entities import BindingConfig, Configuration, ExchangeConfig
from sluice.router.control.ops import BindingGone, BindingOp, ExchangeAttributes, ExchangeGone, ExchangeOp, Op
from sluice.supervisor.addresses.counter_slots import CounterSlots
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable, TableFullError
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import Subsystem


class ExchangeRefusedError(ValueError):
    """Raised when an exchange or binding is refused; the text is the reason that management reports."""


def refusal(config: ExchangeConfig | BindingConfig, error: ExchangeRefusedError) -> str:
    """Return the log line for a refused exchange or binding."""
    return f"Error configuring {config.entity_type.dump_key} '{config.name}': {error}"


def _nature(config: ExchangeConfig | BindingConfig) -> tuple[object, ...]:
    """Return all attributes of an exchange or binding except its name."""
    if isinstance(config, ExchangeConfig):
        alternate = (config.alternate_address, config.alternate_phase)
        return (config.address, config.phase, *alternate, config.match_method)
    return (config.exchange_name, config.binding_key, config.next_hop_address, config.next_hop_phase)


class _Binding:
    """Binding of an exchange to a next-hop address. Owner: its exchange."""

    __slots__ = ("config", "counters", "exchange", "next_hop", "number")

    def __init__(
        self, number: int, exchange: "_Exchange", config: BindingConfig, next_hop: AddressRecord, counters: int
    ) -> None:
        self.number = number
        self.counters = counters  # counter slot of the binding
        self.exchange = exchange
        self.config = config
        self.next_hop = next_hop

    def op(self) -> Op:
        """Return the op that announces this binding."""
        return BindingOp(self.exchange.number, self.number, self.config.binding_key, self.next_hop.id, self.counters)


class _Exchange:
    """Exchange with its bindings. Owner: Exchanges."""

    __slots__ = ("alternate", "attributes", "bindings", "config", "keys", "number", "record")

    def __init__(
        self,
        number: int,
        config: ExchangeConfig,
        record: AddressRecord,
        keys: KeyMatcher,
        attributes: ExchangeAttributes,
    ) -> None:
        self.number = number
        self.config = config
        self.record = record
        self.alternate: AddressRecord | None = None
        self.keys = keys
        self.attributes = attributes  # attributes of the op that announces the exchange
        self.bindings: dict[str, _Binding] = {}  # by name, in order of creation

    def op(self) -> Op:
        """Return the op that announces this exchange, without its bindings."""
        return ExchangeOp(self.number, self.attributes)

    def bound(self, binding_key: str, hop_key: str) -> bool:
        """True if a binding with this key has the next hop with record key `hop_key`."""
        return any(
            each.config.binding_key == binding_key and each.next_hop.key == hop_key for each in self.bindings.values()
        )


class Exchanges(Subsystem):
    """Exchanges of the router. They hold the records of their addresses. Owner: supervisor."""

    def __init__(
        self,
        router_id: str,
        mode: str,
        settings: AddressSettings,
        table: AddressTable,
        slots: CounterSlots,
        journal: Journal,
        refused: Callable[[str], object] = lambda text: None,
    ) -> None:
        """Create without exchanges. refused: called with a log text for each exchange or binding that `use` refuses."""
        self._router_id = router_id
        self._mode = mode
        self._settings = settings
        self._table = table
        self._slots = slots
        self._journal = journal
        self._refused = refused
        self._prepared: list[ExchangeConfig | BindingConfig] = []  # added by `prepare`; `discard` removes them
        self._exchanges: dict[str, _Exchange] = {}
        self._bindings: dict[str, _Binding] = {}
        self._next_number = 1

    def snapshot_ops(self) -> list[Op]:
        ops: list[Op] = []
        for exchange in self._exchanges.values():
            ops.append(exchange.op())
            ops += (binding.op() for binding in exchange.bindings.values())
        return ops

    def describe(self, record: AddressRecord, limit: int) -> dict[str, Any] | None:
        """Describe the exchange at an address, with at most `limit` of its bindings; None if there is no exchange."""
        for name, exchange in self._exchanges.items():
            if exchange.record is record:
                bindings = list(exchange.bindings.items())
                return {
                    "name": name,
                    "match": exchange.attributes.match,
                    "alternate": None if exchange.alternate is None else exchange.alternate.key,
                    "bindingCount": len(bindings),
                    "bindings": [
                        {"name": each, "key": binding.config.binding_key, "nextHop": binding.next_hop.key}
                        for each, binding in bindings[:limit]
                    ],
                }
        return None

    def prepare(self, change: ConfigurationChange) -> None:
        """Add the exchanges and bindings of a request; `discard` can remove them again."""
        wanted: list[ExchangeConfig | BindingConfig] = [*change.made(ExchangeConfig), *change.made(BindingConfig)]
        for new in wanted:
            try:
                self.add(new)
            except ExchangeRefusedError as error:
                raise ChangeError(400, str(error)) from error
            self._prepared.append(new)

    def discard(self, change: ConfigurationChange) -> None:
        while self._prepared:
            config = self._prepared.pop()
            if isinstance(config, ExchangeConfig):
                self.remove_exchange(config.name)
            else:
                self.remove_binding(config.name)

    def commit(self, change: ConfigurationChange) -> None:
        self._prepared.clear()
        if change.whole:
            self.use(change.new)
        for binding in change.removed(BindingConfig):
            self.remove_binding(binding.name)
        for exchange in change.removed(ExchangeConfig):
            self.remove_exchange(exchange.name)

    def use(self, configuration: Configuration) -> None:
        """Replace all exchanges and bindings by those of a configuration; report refused ones."""
        for text in self.replace(configuration.exchanges, configuration.bindings):
            self._refused(text)

    def replace(self, exchanges: Sequence[ExchangeConfig], bindings: Sequence[BindingConfig]) -> list[str]:
        """Replace all exchanges and bindings. Unchanged ones stay; changed ones are removed and created again.

        Returns a log text for each refused exchange or binding.
        """
        wanted = {config.name: _nature(config) for config in exchanges}
        for name, exchange in list(self._exchanges.items()):
            if wanted.get(name) != _nature(exchange.config):
                self.remove_exchange(name)
        wanted = {config.name: _nature(config) for config in bindings}
        for name, binding in list(self._bindings.items()):
            if wanted.get(name) != _nature(binding.config):
                self.remove_binding(name)
        refused: list[str] = []
        missing: list[ExchangeConfig | BindingConfig] = []
        missing += (config for config in exchanges if config.name not in self._exchanges)
        missing += (config for config in bindings if config.name not in self._bindings)
        for config in missing:
            try:
                self.add(config)
            except ExchangeRefusedError as error:
                refused.append(refusal(config, error))
        return refused

    def add(self, config: ExchangeConfig | BindingConfig) -> None:
        """Create an exchange or binding. Raises ExchangeRefusedError without having changed anything."""
        if isinstance(config, ExchangeConfig):
            self.add_exchange(config)
        else:
            self.add_binding(config)

    def add_exchange(self, config: ExchangeConfig) -> None:
        """Create an exchange. Raises ExchangeRefusedError without having changed anything."""
        if not config.address:
            raise ExchangeRefusedError("exchange address is mandatory")
        if config.name in self._exchanges:
            raise ExchangeRefusedError("duplicate exchange name")
        own_key = self._key(config.address, config.phase)
        if any(exchange.record.key == own_key for exchange in self._exchanges.values()):
            raise ExchangeRefusedError("duplicate exchange address")
        try:
            keys = KeyMatcher(config.match_method)
        except ValueError as error:
            raise ExchangeRefusedError(str(error)) from error
        alternate = config.alternate_address
        if alternate and self._reaches(self._key(alternate, config.alternate_phase), own_key):
            raise ExchangeRefusedError(f"alternate address '{alternate}' leads back to the exchange")
        record = self._record(config.address, config.phase)
        alternate_record = None
        try:
            if alternate:
                alternate_record = self._record(alternate, config.alternate_phase)
            counters = self._take_counters()
        except ExchangeRefusedError:
            self._table.release(record)
            if alternate_record is not None:
                self._table.release(alternate_record)
            raise
        attributes = ExchangeAttributes(
            address=record.id,
            match=config.match_method,
            alternate=None if alternate_record is None else alternate_record.id,
            alternate_phase=config.alternate_phase,
            counters=counters,
        )
        exchange = _Exchange(self._take_number(), config, record, keys, attributes)
        exchange.alternate = alternate_record
        record.exchange = exchange.number
        self._table.announce(record)
        self._table.local_changed(record)
        self._exchanges[config.name] = exchange
        self._journal.append(exchange.op())

    def remove_exchange(self, name: str) -> None:
        """Remove an exchange and its bindings. Raises KeyError if it does not exist."""
        exchange = self._exchanges[name]
        for binding_name in list(exchange.bindings):
            self.remove_binding(binding_name)
        del self._exchanges[name]
        exchange.record.exchange = None
        self._table.announce(exchange.record)
        self._table.local_changed(exchange.record)
        self._journal.append(ExchangeGone(exchange.number))
        self._slots.release(exchange.attributes.counters)
        self._table.release(exchange.record)
        if exchange.alternate is not None:
            self._table.release(exchange.alternate)

    def add_binding(self, config: BindingConfig) -> None:
        """Create a binding. Raises ExchangeRefusedError without having changed anything."""
        exchange = self._exchanges.get(config.exchange_name)
        if exchange is None:
            raise ExchangeRefusedError("Named exchange does not exist")
        if not config.next_hop_address:
            raise ExchangeRefusedError("No next hop specified")
        if config.name in self._bindings:
            raise ExchangeRefusedError("Duplicate next hop name")
        hop_key = self._key(config.next_hop_address, config.next_hop_phase)
        if self._reaches(hop_key, exchange.record.key):
            raise ExchangeRefusedError(f"next hop '{config.next_hop_address}' leads back to the exchange")
        if exchange.bound(config.binding_key, hop_key):
            raise ExchangeRefusedError("Next hop for key already exists")
        number = self._next_number
        try:
            exchange.keys.bind(config.binding_key, number)
        except ValueError as error:
            raise ExchangeRefusedError(str(error)) from error
        try:
            record = self._record(config.next_hop_address, config.next_hop_phase)
        except ExchangeRefusedError:
            exchange.keys.unbind(number)
            raise
        try:
            counters = self._take_counters()
        except ExchangeRefusedError:
            exchange.keys.unbind(number)
            self._table.release(record)
            raise
        binding = _Binding(self._take_number(), exchange, config, record, counters)
        exchange.bindings[config.name] = self._bindings[config.name] = binding
        self._journal.append(binding.op())

    def remove_binding(self, name: str) -> None:
        """Remove a binding. Raises KeyError if it does not exist."""
        binding = self._bindings.pop(name)
        exchange = binding.exchange
        del exchange.bindings[name]
        exchange.keys.unbind(binding.number)
        self._journal.append(BindingGone(exchange.number, binding.number))
        self._slots.release(binding.counters)
        self._table.release(binding.next_hop)

    def _take_counters(self) -> int:
        """Allocate a counter slot. Raises ExchangeRefusedError."""
        counters = self._slots.allocate()
        if counters is None:
            raise ExchangeRefusedError("the address table has no room for its counters")
        return counters

    def exchange_counters(self, name: str) -> int | None:
        """Return the counter slot of an exchange; None if there is no such exchange."""
        exchange = self._exchanges.get(name)
        return None if exchange is None else exchange.attributes.counters

    def binding_counters(self, name: str) -> int | None:
        """Return the counter slot of a binding; None if there is no such binding."""
        binding = self._bindings.get(name)
        return None if binding is None else binding.counters

    def _take_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def _classified(self, text: str) -> tuple[str, str]:
        return classify(normalise(text), self._router_id, self._mode)

    def _key(self, text: str, phase: int) -> str:
        cls, name = self._classified(text)
        return key(cls, name, phase)

    def _record(self, text: str, phase: int) -> AddressRecord:
        """Return the record of an address that the configuration names; create it if needed, and hold it.

        Raises ExchangeRefusedError.
        """
        cls, name = self._classified(text)
        record = self._table.records.get(key(cls, name, phase))
        if record is None:
            setting = self._settings.lookup(name) if cls == MOBILE else self._settings.default
            if setting.distribution == UNAVAILABLE:
                raise ExchangeRefusedError(f"address '{text}' has distribution unavailable")
            try:
                record = self._open(cls, name, phase, setting)
            except TableFullError as error:
                raise ExchangeRefusedError(f"the address table has no room for address '{text}'") from error
        self._table.hold(record)
        return record

    def _open(self, cls: str, name: str, phase: int, setting: AddressSetting) -> AddressRecord:
        if cls == MOBILE:
            return self._table.open_mobile(name, phase, setting)
        return self._table.create(key(cls, name), setting.distribution, setting.priority, setting.overflow)

    def _reaches(self, start: str, goal: str) -> bool:
        """True if exchanges can forward messages from the address with key `start` to the one with key `goal`."""
        by_key: dict[str, _Exchange] = {exchange.record.key: exchange for exchange in self._exchanges.values()}
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            current = waiting.pop()
            if current == goal:
                return True
            exchange = by_key.get(current)
            if exchange is None or current in seen:
                continue
            seen.add(current)
            waiting += [binding.next_hop.key for binding in exchange.bindings.values()]
            if exchange.alternate is not None:
                waiting.append(exchange.alternate.key)
        return False
