"""What workers know of listeners, and for how long."""

from dataclasses import replace

import pytest

from router.config.load import load_text
from supervisor.offers import Offers
from supervisor.table import Table
from tests.unit.supervisor.harness import configuration_text

(LISTENER,) = load_text("router.conf", configuration_text()).listeners


class Setup:
    def __init__(self):
        self.table = Table(10)
        self.offers = Offers(self.table, [LISTENER])

    def delta(self):
        delta = self.table.take_delta()
        return [] if delta is None else [op[:2] for op in delta[1]]

    def keys(self):
        return [op[1] for op in self.offers.ops()]


@pytest.fixture
def setup():
    return Setup()


def test_a_new_offer_is_announced_beside_the_old_one(setup):
    offer, epoch = setup.offers.add(replace(LISTENER, link_capacity=7))
    assert epoch == setup.table.next_epoch
    assert setup.delta() == [["offer", offer]]
    assert setup.keys() == ["main", offer]
    assert [op[2]["linkCapacity"] for op in setup.offers.ops()] == [250, 7]


def test_an_offer_goes_with_its_last_connection(setup):
    setup.offers.enter("main")
    setup.offers.enter("main")
    setup.offers.leave("main")
    setup.offers.retire("main")
    assert setup.keys() == ["main"]
    assert setup.delta() == []
    setup.offers.leave("main")
    assert setup.keys() == []
    assert setup.delta() == [["-offer", "main"]]


def test_an_unused_offer_goes_at_once_and_its_key_is_not_used_again(setup):
    offers = []
    for _ in range(2):
        offer, _ = setup.offers.add(LISTENER)
        setup.offers.retire(offer)
        offers.append(offer)
    assert len(set(offers)) == 2
    assert setup.keys() == ["main"]
