"""Policy rules for messages, as connections refer to them, with the quotas that connections of one tenant share."""

from typing import TYPE_CHECKING, Final

from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable
from sluice.router.policy.names import NameRules, compile_names
from sluice.router.policy.quota import TenantQuota

if TYPE_CHECKING:
    from sluice.workers.worker import WorkerRuntime


class RuleStore:
    """Compiled rules by number. Owner: the worker."""

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker: Final = worker
        self._rules: dict[int, NameRules] = {}
        self._quotas: dict[int, TenantQuota] = {}  # of the rules that have quotas

    def messages(self, handlers: HandlerTable[bytes | None]) -> None:
        """Register the handlers of orders about rules."""
        handlers.on(control.Rules, lambda _, order: self._add(order))
        handlers.on(control.RulesGone, lambda _, order: self._remove(order))

    def rules(self, number: int) -> NameRules:
        """Return the rules with a number."""
        return self._rules[number]

    def quota(self, number: int) -> TenantQuota | None:
        """Return the quota of the rules with a number; None: they have none."""
        return self._quotas.get(number)

    def _add(self, order: control.Rules) -> None:
        worker = self._worker
        self._rules[order.number] = compile_names(order.items, order.patterns)
        if order.quotas:
            self._quotas[order.number] = TenantQuota(
                worker.region, worker.setup.worker, worker.loop.scheduler, worker.loop.call_at, order.quotas
            )

    def _remove(self, order: control.RulesGone) -> None:
        self._rules.pop(order.number, None)
        self._quotas.pop(order.number, None)
