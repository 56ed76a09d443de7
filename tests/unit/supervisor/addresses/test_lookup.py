"""Search for the record that receives messages to an address."""

from __future__ import annotations

import pytest

from sluice.router.addressing.settings import CLOSEST, DEFAULT_OVERFLOW, AddressSetting, AddressSettings
from sluice.supervisor.addresses.lookup import RecordFinder
from tests.unit.supervisor.journaled_table import JournaledTable

PHASES = AddressSettings([("way", AddressSetting(ingress_phase=1, egress_phase=2))])


def finder(mode: str, *keys: str) -> RecordFinder:
    """Return the search at router A in a table with these records."""
    table = JournaledTable().table
    for record_key in keys:
        table.create(record_key, CLOSEST, None, DEFAULT_OVERFLOW)
    return RecordFinder("A", mode, PHASES, table)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a", "M0a"),
        ("amqp:/a", "M0a"),
        ("amqp://host/a", "M0a"),
        ("_local/l", "Ll"),
        ("_topo/0/A/l", "Ll"),
        ("way", "M1way"),
        ("other", None),
    ],
)
def test_text_of_address_finds_its_record(text: str, found: str | None) -> None:
    record = finder("interior", "M0a", "Ll", "M1way", "M2way", "L_edge").find(text)
    assert (None if record is None else record.key) == found


@pytest.mark.parametrize(("text", "found"), [("a", "M0a"), ("other", "L_edge"), ("_local/other", None)])
def test_edge_router_asks_its_uplink_for_unknown_mobile_address(text: str, found: str | None) -> None:
    record = finder("edge", "M0a", "L_edge").find(text)
    assert (None if record is None else record.key) == found
