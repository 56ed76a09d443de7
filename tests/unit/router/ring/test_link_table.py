"""Table of links by slot: a freed link leaves it, even if its owner forgot to remove it."""

import pytest

from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.ring.link_table import LinkTable
from sluice.router.testing.engine import linked_slots


def test_table_with_freed_link_has_no_entry_for_slot() -> None:
    table, link = LinkTable(16), ConsumerLink()
    table.enter(3, 7, link)
    assert linked_slots(table) == [3]
    del link
    assert linked_slots(table) == []


def test_link_that_outlives_table_is_freed_without_it() -> None:
    table, link = LinkTable(16), ConsumerLink()
    table.enter(3, 7, link)
    del table
    LinkTable(16).enter(0, 1, link)
    other = LinkTable(16)
    other.enter(1, 1, link)
    del link
    assert linked_slots(other) == []


def test_link_that_replaces_another_in_its_slot_stays() -> None:
    table, first, second = LinkTable(16), ConsumerLink(), ConsumerLink()
    table.enter(3, 7, first)
    table.enter(3, 8, second)
    del first
    assert linked_slots(table) == [3]
    table.leave(3)
    assert linked_slots(table) == []
    table.enter(4, 9, second)


def test_entry_with_used_link_or_invalid_slot_is_refused() -> None:
    table, link = LinkTable(16), ConsumerLink()
    with pytest.raises(IndexError):
        table.enter(16, 1, link)
    table.enter(3, 7, link)
    with pytest.raises(ValueError, match="has a slot"):
        table.enter(4, 7, link)
    assert linked_slots(table) == [3]
