"""What a new configuration amounts to for a router that runs. Pure: may run in a thread, touches nothing."""

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from router.config.diff import Plan, diff
from router.config.entities import BindingConfig, Configuration, ExchangeConfig
from router.config.inventory import Inventory
from router.routing.settings import AddressSettings
from supervisor.configure import address_entries
from supervisor.exchanges import ExchangeError, Exchanges, refusal
from supervisor.table import Table

_HTTP = "supervisor.http.service"
_SCRATCH_RECORDS = 1 << 20  # addresses in the table that exchanges are tried on: more than any has


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan and all that is needed to carry it out.

    `reached`: the configuration in force afterwards, which leaves out what takes a restart; `inventory`: of that.
    `entries`, `settings`: its address settings, as attributes by canonical pattern and ready to be looked up.
    `changed`: patterns that differ from before. `warnings`: (log module, text).
    """

    plan: Plan
    reached: Configuration
    inventory: Inventory
    entries: dict[str, dict[str, Any]]
    settings: AddressSettings
    changed: list[str]
    warnings: list[tuple[str, str]]


def prepare(present: Configuration, wanted: Configuration) -> Prepared:
    """What leads from `present` to `wanted`."""
    entries, _ = address_entries(wanted.addresses)
    settings = AddressSettings(entries.items(), wanted.router.default_distribution)
    wanted, refusals = without_refused(wanted, settings)
    plan = diff(present, wanted)
    if any(listener.http for listener in wanted.listeners):
        load_http()
    before, _ = address_entries(present.addresses)
    changed = [pattern for pattern in {**before, **entries} if before.get(pattern) != entries.get(pattern)]
    reached = plan.reached()
    warnings = [*wanted.warnings, *refusals]
    return Prepared(plan, reached, Inventory(reached), entries, settings, changed, warnings)


def load_http() -> None:
    """Load what HTTP listeners need, which takes long the first time: in a thread, not in the event loop."""
    import_module(_HTTP)


def http_loaded() -> bool:
    """Whether that has been done."""
    return _HTTP in sys.modules


def without_refused(
    configuration: Configuration, settings: AddressSettings
) -> tuple[Configuration, list[tuple[str, str]]]:
    """The configuration without the exchanges and bindings that the core would refuse, and the refusals as warnings."""
    router = configuration.router
    trial = Exchanges(router.id, router.mode, settings, Table(_SCRATCH_RECORDS))
    refused: dict[int, str] = {}
    entities: list[ExchangeConfig | BindingConfig] = [*configuration.exchanges, *configuration.bindings]
    for entity in entities:
        try:
            trial.add(entity)
        except ExchangeError as error:
            refused[id(entity)] = refusal(entity, error)
    if not refused:
        return configuration, []
    kept = [each for each in configuration.entities() if id(each) not in refused]
    warnings = [("ROUTER_CORE", text) for text in refused.values()]
    return Configuration.of(configuration.path, kept, configuration.warnings), warnings

