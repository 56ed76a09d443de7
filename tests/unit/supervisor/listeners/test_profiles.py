"""Listener profiles: announcement to the workers, and lifetime."""

import pytest
from msgspec.structs import replace

from router.config.load import load_text
from supervisor.addresses.table import Table
from supervisor.listeners.profiles import ListenerProfiles
from tests.unit.engine.ops import wire
from tests.unit.supervisor.harness import configuration_text

(LISTENER,) = load_text("router.conf", configuration_text()).listeners


class Setup:
    def __init__(self):
        self.table = Table(10)
        self.profiles = ListenerProfiles(self.table, [LISTENER], lambda listener: False)

    def delta(self):
        delta = self.table.take_delta()
        return [] if delta is None else [op[:2] for op in wire(delta[1])]

    def keys(self):
        return [op[1] for op in wire(self.profiles.snapshot_ops())]


@pytest.fixture
def setup():
    return Setup()


def test_a_new_offer_is_announced_beside_the_old_one(setup):
    profile, epoch = setup.profiles.add(replace(LISTENER, link_capacity=7))
    assert epoch == setup.table.next_epoch
    assert setup.delta() == [["profile", profile]]
    assert setup.keys() == ["main", profile]
    assert [op[2]["linkCapacity"] for op in wire(setup.profiles.snapshot_ops())] == [250, 7]


def test_an_offer_goes_with_its_last_connection(setup):
    setup.profiles.enter("main")
    setup.profiles.enter("main")
    setup.profiles.leave("main")
    setup.profiles.retire("main")
    assert setup.keys() == ["main"]
    assert setup.delta() == []
    setup.profiles.leave("main")
    assert setup.keys() == []
    assert setup.delta() == [["-profile", "main"]]


def test_an_unused_offer_goes_at_once_and_its_key_is_not_used_again(setup):
    profiles = []
    for _ in range(2):
        profile, _ = setup.profiles.add(LISTENER)
        setup.profiles.retire(profile)
        profiles.append(profile)
    assert len(set(profiles)) == 2
    assert setup.keys() == ["main"]
