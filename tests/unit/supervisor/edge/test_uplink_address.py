"""Address for messages to unknown addresses: its consumers are the anonymous links to interior routers."""

from __future__ import annotations

import pytest

from sluice.router.config.load import load_text
from sluice.router.log import ProcessLog
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.edge.absence import UplinkAbsence
from sluice.supervisor.edge.uplink_address import UPLINK_KEY, UplinkAddress
from sluice.supervisor.runtime.waker import Waker
from tests.unit.supervisor.edge.edge_router import QUIET
from tests.unit.supervisor.harness import configuration_text
from tests.unit.supervisor.journaled_table import JournaledTable


class AnonymousLinks:
    """Uplink address with anonymous links of two workers."""

    def __init__(self) -> None:
        self.journaled = JournaledTable()
        table, journal = self.journaled.table, self.journaled.journal
        self.address = UplinkAddress(table, UplinkAbsence(0, table, journal, Waker(), ProcessLog(QUIET)))
        listener = load_text("router.conf", configuration_text()).listeners[0]
        connection = RegisteredConnection(1, listener, "l", "p", "key")
        self.first, self.second = (RegisteredLink(n, "", True, n, 1, connection, n) for n in (0, 1))

    @property
    def consumers(self) -> list[bool]:
        """Return for each link whether the table has it as a consumer."""
        table = self.journaled.table
        record = table.records[UPLINK_KEY]
        links = (self.first, self.second)
        return [table.has_consumer(record, link.worker, link.slot, link.generation) for link in links]


@pytest.fixture
def links() -> AnonymousLinks:
    return AnonymousLinks()


def test_wanted_links_are_consumers_until_they_are_unwanted(links: AnonymousLinks) -> None:
    links.address.use(links.first, True)
    links.address.use(links.second, True)
    assert links.consumers == [True, True]
    links.address.use(links.first, False)
    assert links.consumers == [False, True]
    assert links.first.record is None


def test_repeated_use_changes_nothing(links: AnonymousLinks) -> None:
    links.address.use(links.first, False)
    links.address.use(links.first, True)
    links.journaled.take_ops()
    links.address.use(links.first, True)
    assert links.journaled.take_ops() == []
    assert links.consumers == [True, False]


def test_closed_link_is_left_alone(links: AnonymousLinks) -> None:
    links.first.closed = True
    links.address.use(links.first, True)
    assert links.consumers == [False, False]


def test_address_without_consumers_stays_in_table(links: AnonymousLinks) -> None:
    links.address.use(links.first, True)
    links.address.use(links.first, False)
    links.journaled.take_ops()
    assert UPLINK_KEY in links.journaled.table.records
