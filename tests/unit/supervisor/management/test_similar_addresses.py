"""EXPLAIN: suggestions for an address that may be misspelt."""

from __future__ import annotations

import pytest

from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.management import similar_addresses
from tests.unit.supervisor.management.managed_router import ManagedRouter


@pytest.fixture
def router() -> ManagedRouter:
    return ManagedRouter()


def findings(router: ManagedRouter, address: str) -> list[str]:
    found: list[str] = router.ask("EXPLAIN", address=address).body["findings"]
    return found


def test_misspelt_address_names_similar_ones_with_consumers(router: ManagedRouter) -> None:
    connection = router.connection()
    for name in ("orders", "orders.eu", "orders.us", "invoices"):
        router.link(connection, "out", name, credit=1)
    router.link(connection, "in", "ordens", credit=1)
    assert findings(router, "ordres")[1:] == ["Is it misspelt? There are consumers at 'orders'"]
    router.link(connection, "in", "orders.ue", credit=0)
    last = "Is it misspelt? There are consumers at 'orders.us', 'orders.eu', 'orders'"
    assert findings(router, "orders.ue")[1:] == [last], "with a producer, too"
    assert len(findings(router, "something.else")) == 1
    assert findings(router, "orders") == ["1 consumer with credit"]


def test_addresses_of_router_are_not_suggested(router: ManagedRouter) -> None:
    router.link(router.connection(), "out", "_$qd.addr_lookup", credit=1)
    assert len(findings(router, "_$qd.addr_lookups")) == 1
    assert len(findings(router, "$managements")) == 1


def test_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Yields let the supervisor handle other events; long names are not compared."""

    def record(number: int, name: str) -> AddressRecord:
        made = AddressRecord(number, f"M0{name}", "balanced", None, "throttle")
        made.consumers = {1: 250}
        return made

    records = [record(number, f"a{number:05}") for number in range(2_000)] + [record(2_000, "x" * 5_000)]
    steps = similar_addresses.similar_addresses(records, "x" * 5_000)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value == []
    steps = similar_addresses.similar_addresses(records, "a0000")
    for _ in range(2_000 // similar_addresses._EXAMINED_A_STEP):
        next(steps)
    monkeypatch.setattr(similar_addresses, "_EXAMINED_MOST", 3)
    with pytest.raises(StopIteration) as few:
        next(similar_addresses.similar_addresses(records[::-1], "a00000"))
    assert few.value.value == []
