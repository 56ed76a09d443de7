"""Listener profiles: announcement to the workers, and lifetime."""

import pytest
from msgspec.structs import replace

from sluice.router.config.load import load_text
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.listeners.profiles import ListenerProfiles
from tests.unit.ops import wire
from tests.unit.supervisor.harness import configuration_text

(LISTENER,) = load_text("router.conf", configuration_text()).listeners


class AnnouncedProfiles:
    def __init__(self):
        self.journal = Journal()
        self.profiles = ListenerProfiles(self.journal, [LISTENER], lambda listener: False)

    def delta(self):
        delta = self.journal.take_delta()
        return [] if delta is None else [op[:2] for op in wire(delta[1])]

    def keys(self):
        return [op[1] for op in wire(self.profiles.snapshot_ops())]


@pytest.fixture
def announced():
    return AnnouncedProfiles()


def test_new_profile_is_announced_beside_old_one(announced):
    profile, epoch = announced.profiles.add(replace(LISTENER, link_capacity=7))
    assert epoch == announced.journal.next_epoch
    assert announced.delta() == [["profile", profile]]
    assert announced.keys() == ["main", profile]
    assert [op[2]["linkCapacity"] for op in wire(announced.profiles.snapshot_ops())] == [250, 7]


def test_retired_profile_is_removed_with_last_connection(announced):
    announced.profiles.enter("main")
    announced.profiles.enter("main")
    announced.profiles.leave("main")
    announced.profiles.retire("main")
    assert announced.keys() == ["main"]
    assert announced.delta() == []
    announced.profiles.leave("main")
    assert announced.keys() == []
    assert announced.delta() == [["-profile", "main"]]


def test_unused_profile_is_removed_and_key_not_reused(announced):
    profiles = []
    for _ in range(2):
        profile, _ = announced.profiles.add(LISTENER)
        announced.profiles.retire(profile)
        profiles.append(profile)
    assert len(set(profiles)) == 2
    assert announced.keys() == ["main"]
