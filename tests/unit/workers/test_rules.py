"""Policy rules of a worker by number, with the quotas that their connections share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice.router.control import messages as control
from sluice.router.policy.quota import TenantQuota
from sluice.workers.loop import Loop
from sluice.workers.orders import OrderHandlers
from sluice.workers.rules import RuleStore
from tests.unit.workers.loop_connections import REGION

QUOTA = (0, 100, 0, 0)  # slot, messages per second, octets per second, buffered octets


class RuleOrders:
    """Store of a worker with its loop, and the orders that it handles."""

    def __init__(self) -> None:
        worker = SimpleNamespace(region=REGION, setup=SimpleNamespace(worker=0), loop=Loop(REGION, 0))
        self.store = RuleStore(cast("Any", worker))
        self._orders = OrderHandlers({})
        self.store.messages(self._orders.others)

    def add(self, number: int, *items: str, patterns: bool = False, quotas: tuple[Any, ...] = ()) -> None:
        self._orders.handle(control.Rules(number, list(items), patterns, list(quotas)), None)

    def remove(self, number: int) -> None:
        self._orders.handle(control.RulesGone(number), None)


@pytest.fixture
def orders() -> RuleOrders:
    return RuleOrders()


@pytest.mark.parametrize(("patterns", "permitted"), [(False, ["a*"]), (True, ["a/*"])])
def test_rules_are_lists_or_patterns_of_names(orders: RuleOrders, patterns: bool, permitted: list[str]) -> None:
    orders.add(3, *permitted, patterns=patterns)
    rules = orders.store.rules(3)
    assert rules.permits("a/b", None)
    assert not rules.permits("b", None)
    assert rules.permits("a/b/c", None) is not patterns


def test_rules_have_quota_only_if_ordered(orders: RuleOrders) -> None:
    orders.add(3, "a")
    orders.add(4, "a", quotas=(QUOTA,))
    assert orders.store.quota(3) is None
    assert isinstance(orders.store.quota(4), TenantQuota)
    assert orders.store.quota(4) is orders.store.quota(4), "all connections share it"


def test_removed_rules_are_forgotten_with_their_quota(orders: RuleOrders) -> None:
    orders.add(4, "a", quotas=(QUOTA,))
    orders.add(5, "b")
    orders.remove(4)
    with pytest.raises(KeyError):
        orders.store.rules(4)
    assert orders.store.quota(4) is None
    assert orders.store.rules(5).permits("b", None)
    orders.remove(4)  # there are none any more
