"""Brokers without a router: checks the behaviour on which the tests with a router rely."""

from __future__ import annotations

import pytest

from tests.interop.brokers import BrokerProcess
from tests.interop.conftest import ClientLauncher

#: Starting the brokers takes half a minute of processor time.
pytestmark = pytest.mark.long


@pytest.fixture(params=["rabbitmq", "artemis"])
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """Broker under test: each of both in turn."""
    found: BrokerProcess = request.getfixturevalue(request.param)
    return found


def test_broker_delivers_sent_messages(broker: BrokerProcess, proton: ClientLauncher) -> None:
    assert proton("simple_send", broker.port, "alone.examples", 20).result() == 20
    assert proton("simple_recv", broker.port, "alone.examples", 20).result() == [{"sequence": n} for n in range(20)]


def test_durable_messages_survive_broker_kill(
    broker: BrokerProcess, proton: ClientLauncher, go: ClientLauncher
) -> None:
    proton("durable_queue", broker.port, "alone.durable").result()
    broker.wait_until_kept("alone.durable")
    address = broker.existing("alone.durable")
    assert go("send", broker.port, address, 5).result() == 5
    broker.restart()
    assert go("receive", broker.port, address, 5).result() == [str(n) for n in range(5)]


def test_selectors_filter_messages(artemis: BrokerProcess, jms: ClientLauncher, proton: ClientLauncher) -> None:
    assert jms("send", artemis.port, "alone.selected", 6).result() == 6
    even = "parity = 'even'"
    assert proton("filtered", artemis.port, "alone.selected", 3, even, "browse").result() == ["0", "2", "4"]
    assert proton("filtered", artemis.port, "alone.selected", 3, even).result() == ["0", "2", "4"]
    assert jms("browse", artemis.port, "alone.selected").result() == ["1", "3", "5"]


def test_transactions_commit_and_roll_back(
    artemis: BrokerProcess, jms: ClientLauncher, rust: ClientLauncher, proton: ClientLauncher
) -> None:
    committed = [f"committed {n}" for n in range(3)]
    assert proton("transact", artemis.port, "alone.transacted", 3).result() == [committed, committed]
    assert jms("transact", artemis.port, "alone.transacted.jms", 3).result() == ["0", "1", "2"]
    assert rust("transact", artemis.port, "alone.transacted.rust", 3).result() == ["0", "1", "2"]
