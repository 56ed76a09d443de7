"""Brokers killed, stopped and frozen at random under load, with auto links and link routes at once."""

from __future__ import annotations

import pytest

from loadtests.killed import make_queues, run
from tests.interop.brokers import BrokerProcess

#: Starting the brokers takes half a minute of processor time.
pytestmark = pytest.mark.long

SECONDS = 8.0  # duration of the random failures; each broker fails at least once
SEED = 20


@pytest.mark.timeout(240)
@pytest.mark.parametrize("workers", [1, 3], ids=["1-worker", "3-workers"])
def test_brokers_killed_at_random_lose_no_message(
    rabbitmq: BrokerProcess, artemis: BrokerProcess, workers: int
) -> None:
    brokers = [rabbitmq, artemis]
    for broker in brokers:
        make_queues(broker)
    outcome = run(brokers, workers, SECONDS, SEED + workers, 2)
    assert not outcome.faults, str(outcome)
    assert outcome.accepted > 0
    assert outcome.links_lost > 0, "brokers were lost"
