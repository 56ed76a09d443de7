"""Resolved addresses that are remembered: they follow the settings, and the memory for them is bounded."""

import pytest

from sluice.router.addressing.settings import AddressSetting, AddressSettings
from sluice.supervisor.links.attach import NOT_FOUND, TABLE_FULL, AttachAccepted, AttachDecider, AttachRefused
from sluice.supervisor.links.resolved_addresses import MOST_LENGTH, MOST_RESOLVED, ResolvedAddress, ResolvedAddresses
from tests.unit.supervisor.harness import attach
from tests.unit.supervisor.journaled_table import JournaledTable


class RememberingRouter:
    """Decider about attaches, whose settings change."""

    def __init__(self, limit: int = 1000) -> None:
        self.settings = AddressSettings([("way/#", AddressSetting(ingress_phase=0, egress_phase=1))])
        self.journaled = JournaledTable(limit)
        self.attaching = AttachDecider("QDR", "standalone", self.settings, self.journaled.table)

    def decide(self, direction: str, address: str, **more: object) -> AttachAccepted | AttachRefused:
        decision = self.attaching.decide(attach(1, direction, address, **more), "normal")
        assert isinstance(decision, (AttachAccepted, AttachRefused))
        return decision

    def accepted(self, direction: str, address: str, **more: object) -> AttachAccepted:
        decision = self.decide(direction, address, **more)
        assert isinstance(decision, AttachAccepted), decision
        return decision


@pytest.fixture
def router() -> RememberingRouter:
    return RememberingRouter()


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("address", ["plain", "/plain", "amqp://host/plain", "way/a", "$management", "_local/x"])
def test_second_attach_is_decided_as_first(router: RememberingRouter, direction: str, address: str) -> None:
    assert router.accepted(direction, address) == router.accepted(direction, address)


def test_attach_with_capabilities_or_tenant_is_not_taken_for_remembered_one(router: RememberingRouter) -> None:
    plain = router.accepted("out", "a")
    waypoint = router.accepted("out", "a", caps=[["qd.waypoint.2"], False])
    tenant = router.accepted("out", "a", tenant="acme/")
    assert [each.record and each.record.key for each in (plain, waypoint, tenant)] == ["M0a", "M1a", "M0acme/a"]
    assert router.accepted("out", "a").record is plain.record


def test_removed_record_is_created_again_by_its_setting(router: RememberingRouter) -> None:
    first = router.accepted("out", "way/a").record
    router.journaled.table.before_delta()  # without users it is removed
    second = router.accepted("out", "way/a").record
    assert first is not None
    assert second is not None
    assert second is not first
    assert second.key == first.key == "M1way/a"


def test_changed_settings_apply_to_addresses_attached_before(router: RememberingRouter) -> None:
    assert router.accepted("in", "way/a").phase == 0
    router.settings.put("way/#", AddressSetting(ingress_phase=2, egress_phase=1))
    assert router.accepted("in", "way/a").phase == 2
    router.settings.drop("way/#")
    assert router.accepted("in", "way/a").phase == 0
    router.journaled.table.before_delta()
    router.settings.set_default("unavailable")
    assert router.decide("in", "way/a") is NOT_FOUND
    router.settings.become(AddressSettings([("#", AddressSetting(ingress_phase=3))]))
    assert router.accepted("in", "way/a").phase == 3


def test_full_table_refuses_remembered_address() -> None:
    router = RememberingRouter()
    router.accepted("in", "a")
    router.journaled.table.before_delta()
    while not isinstance(router.decide("in", f"b{len(router.journaled.table.records)}"), AttachRefused):
        pass
    assert router.decide("in", "a") is TABLE_FULL


def test_remembered_addresses_are_bounded_in_number_and_length() -> None:
    resolved, setting = ResolvedAddresses(), AddressSetting()
    for number in range(3 * MOST_RESOLVED):
        resolved.remember(f"a{number}", True, ResolvedAddress("", "", 0, setting))
        assert len(resolved.consumers) <= MOST_RESOLVED
    resolved.remember("b" * (MOST_LENGTH + 1), False, ResolvedAddress("", "", 0, setting))
    assert not resolved.producers
