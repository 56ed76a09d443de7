"""Planning of a reload. Pure computation that may run in a thread."""

from msgspec import Struct

from sluice.router.addressing.settings import AddressSettings
from sluice.router.config.diff import Plan, diff
from sluice.router.config.entities import BindingConfig, Configuration, ExchangeConfig
from sluice.router.config.inventory import Inventory
from sluice.supervisor.addresses.counter_slots import CounterSlots
from sluice.supervisor.addresses.exchanges import ExchangeRefusedError, Exchanges, refusal
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.configuration.change import AddressPlan
from sluice.supervisor.configuration.ops import address_entries
from sluice.supervisor.journal.journal import Journal

_SCRATCH_RECORDS = 1 << 20  # size of the scratch table for checking exchanges; larger than any real table


class PreparedReload(Struct, frozen=True):
    """Plan of a reload with the data needed to execute it.

    reached: the configuration in force afterwards, without changes that require a restart. inventory: its inventory.
    addresses: its address settings. warnings: pairs of log module and text.
    """

    plan: Plan
    reached: Configuration
    inventory: Inventory
    addresses: AddressPlan
    warnings: list[tuple[str, str]]


def prepare(present: Configuration, wanted: Configuration) -> PreparedReload:
    """Plan the changes from the configuration `present` to `wanted`."""
    entries, _ = address_entries(wanted.addresses)
    settings = AddressSettings(entries.items(), wanted.router.default_distribution)
    wanted, refusals = without_refused(wanted, settings)
    plan = diff(present, wanted)
    before, _ = address_entries(present.addresses)
    changed = [pattern for pattern in {**before, **entries} if before.get(pattern) != entries.get(pattern)]
    reached = plan.reached()
    warnings = [*wanted.warnings, *refusals]
    return PreparedReload(plan, reached, Inventory(reached), AddressPlan(entries, settings, changed), warnings)


def without_refused(
    configuration: Configuration, settings: AddressSettings
) -> tuple[Configuration, list[tuple[str, str]]]:
    """Return the configuration without the exchanges and bindings that the core would refuse.

    The second result are warnings about the refused ones: pairs of log module and text.
    """
    router = configuration.router
    journal = Journal()
    slots = CounterSlots(journal, _SCRATCH_RECORDS, lambda number: None)
    trial = Exchanges(router.id, router.mode, settings, AddressTable(journal, slots), slots, journal)
    refused: dict[int, str] = {}
    entities: list[ExchangeConfig | BindingConfig] = [*configuration.exchanges, *configuration.bindings]
    for entity in entities:
        try:
            trial.add(entity)
        except ExchangeRefusedError as error:
            refused[id(entity)] = refusal(entity, error)
    if not refused:
        return configuration, []
    kept = [each for each in configuration.entities() if id(each) not in refused]
    warnings = [("ROUTER_CORE", text) for text in refused.values()]
    return Configuration.of(configuration.path, kept, configuration.warnings), warnings
