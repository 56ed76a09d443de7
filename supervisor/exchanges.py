"""Exchanges and bindings of the configuration: checked, then turned into address records and ops."""
from router.config.entities import BindingConfig, ExchangeConfig
from router.ipc.control import OP_BINDING, OP_EXCHANGE
from router.routing.address import MOBILE, classify, key, normalise
from router.routing.exchange_keys import KeyMatcher
from router.routing.settings import UNAVAILABLE, AddressSettings, Setting
from supervisor.table import Op, Record, Table, TableFullError


class ExchangeError(ValueError):
    """An exchange or binding that cannot be; the text says why in the words of the management protocol."""


class _Exchange:
    """An exchange and its bindings. Owner: Exchanges."""

    __slots__ = ("alternate", "bound", "keys", "next_hops", "number", "record")

    def __init__(self, number: int, record: Record, keys: KeyMatcher) -> None:
        self.number = number
        self.record = record
        self.alternate: Record | None = None
        self.keys = keys
        self.bound: set[tuple[str, str]] = set()  # binding key, key of the next hop
        self.next_hops: list[Record] = []


class Exchanges:
    """All exchanges; holds the address records that they need. Owner: supervisor."""

    def __init__(self, router_id: str, mode: str, settings: AddressSettings, table: Table) -> None:
        self._router_id = router_id
        self._mode = mode
        self._settings = settings
        self._table = table
        self._exchanges: dict[str, _Exchange] = {}
        self._bindings: set[str] = set()
        self._ops: list[Op] = []
        self._next_number = 1

    def ops(self) -> list[Op]:
        """All exchanges and bindings, for a snapshot."""
        return self._ops

    def add_exchange(self, config: ExchangeConfig) -> None:
        """Create an exchange. Raises ExchangeError, and then nothing has changed."""
        if not config.address:
            raise ExchangeError("exchange address is mandatory")
        if config.name in self._exchanges:
            raise ExchangeError("duplicate exchange name")
        own_key = self._key(config.address, config.phase)
        if any(exchange.record.key == own_key for exchange in self._exchanges.values()):
            raise ExchangeError("duplicate exchange address")
        try:
            keys = KeyMatcher(config.match_method)
        except ValueError as error:
            raise ExchangeError(str(error)) from error
        alternate = config.alternate_address
        if alternate and self._reaches(self._key(alternate, config.alternate_phase), own_key):
            raise ExchangeError(f"alternate address '{alternate}' leads back to the exchange")
        record = self._record(config.address, config.phase)
        exchange = _Exchange(self._take_number(), record, keys)
        record.exchange = exchange.number
        self._table.announce(record)
        if alternate:
            exchange.alternate = self._record(alternate, config.alternate_phase)
        self._exchanges[config.name] = exchange
        attributes = {
            "address": record.id,
            "match": config.match_method,
            "alternate": None if exchange.alternate is None else exchange.alternate.id,
            "alternatePhase": config.alternate_phase,
        }
        self._publish([OP_EXCHANGE, exchange.number, attributes])

    def add_binding(self, config: BindingConfig) -> None:
        """Create a binding. Raises ExchangeError, and then nothing has changed."""
        exchange = self._exchanges.get(config.exchange_name)
        if exchange is None:
            raise ExchangeError("Named exchange does not exist")
        if not config.next_hop_address:
            raise ExchangeError("No next hop specified")
        if config.name in self._bindings:
            raise ExchangeError("Duplicate next hop name")
        hop_key = self._key(config.next_hop_address, config.next_hop_phase)
        if self._reaches(hop_key, exchange.record.key):
            raise ExchangeError(f"next hop '{config.next_hop_address}' leads back to the exchange")
        if (config.binding_key, hop_key) in exchange.bound:
            raise ExchangeError("Next hop for key already exists")
        number = self._next_number
        try:
            exchange.keys.bind(config.binding_key, number)
        except ValueError as error:
            raise ExchangeError(str(error)) from error
        try:
            record = self._record(config.next_hop_address, config.next_hop_phase)
        except ExchangeError:
            exchange.keys.unbind(number)
            raise
        self._take_number()
        exchange.bound.add((config.binding_key, hop_key))
        exchange.next_hops.append(record)
        self._bindings.add(config.name)
        self._publish([OP_BINDING, exchange.number, number, config.binding_key, record.id])

    def _take_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def _publish(self, op: Op) -> None:
        self._ops.append(op)
        self._table.change(op)

    def _classified(self, text: str) -> tuple[str, str]:
        return classify(normalise(text), self._router_id, self._mode)

    def _key(self, text: str, phase: int) -> str:
        cls, name = self._classified(text)
        return key(cls, name, phase)

    def _record(self, text: str, phase: int) -> Record:
        """The record of an address that the configuration names, held. Raises ExchangeError."""
        cls, name = self._classified(text)
        record = self._table.records.get(key(cls, name, phase))
        if record is None:
            setting = self._settings.lookup(name) if cls == MOBILE else self._settings.default
            if setting.distribution == UNAVAILABLE:
                raise ExchangeError(f"address '{text}' has distribution unavailable")
            try:
                record = self._open(cls, name, phase, setting)
            except TableFullError as error:
                raise ExchangeError(f"no room for address '{text}'") from error
        self._table.hold(record)
        return record

    def _open(self, cls: str, name: str, phase: int, setting: Setting) -> Record:
        if cls == MOBILE:
            return self._table.open_mobile(name, phase, setting)
        return self._table.create(key(cls, name), setting.distribution, setting.priority, setting.overflow)

    def _reaches(self, start: str, goal: str) -> bool:
        """Whether messages to the address with key `start` can come, through exchanges, to the one with key `goal`."""
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
            waiting += [record.key for record in exchange.next_hops]
            if exchange.alternate is not None:
                waiting.append(exchange.alternate.key)
        return False
