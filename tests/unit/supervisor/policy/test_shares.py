"""Shares that connections have in common, and the slots of their quotas."""

import pytest

from sluice.router.config.policy_entities import SharedLimits
from sluice.router.ring.region import MAX_QUOTAS, Region
from sluice.supervisor.policy.shared_usage import VHOST, LimitedUsage, SharedUsage, SharedUsages

RATE = SharedLimits(messages_per_second=5)


@pytest.fixture
def region():
    made = Region.create(2, 4, 4, 4096)
    yield made
    made.close()


def test_links_and_addresses_count_until_detached():
    share = SharedUsage()
    bound = LimitedUsage(share, SharedLimits(links=3, addresses=2))
    share.attach(True, "a")
    share.attach(False, "a")
    assert (share.links, share.senders, dict(share.addresses)) == (2, 1, {"a": 2})
    assert bound.full("b") is None
    share.attach(False, None)
    assert bound.full("a") == "maxLinks"
    share.detach(False, None)
    share.attach(True, "b")
    share.detach(True, "a")
    assert bound.full("c") == "maxAddresses"
    assert bound.full("a") is bound.full(None) is None
    for consumer, address in ((False, "a"), (True, "b")):
        share.detach(consumer, address)
    assert (share.links, share.senders, share.addresses) == (0, 0, {})


def test_share_without_limits_has_room():
    share = SharedUsage()
    for number in range(10):
        share.attach(False, str(number))
    assert LimitedUsage(share, SharedLimits()).full("x") is None


def test_quota_slot_is_taken_when_limit_needs_it(region):
    shares = SharedUsages(pytest.fail)
    shares.connect(region)
    assert shares.bound("v", VHOST, SharedLimits(links=1)).scope is None
    bound = shares.bound("v", VHOST, RATE)
    assert bound.scope == (0, 5, 0, 0)
    assert shares.bound("v", VHOST, SharedLimits(octets_per_second=7, buffered_octets=9)).scope == (0, 0, 7, 9)
    assert shares.bound("v", "g", RATE).scope == (1, 5, 0, 0)
    assert [group for group, _ in shares.of_vhost("v")] == [VHOST, "g"]
    bound.share.attach(False, "a")
    assert bound.share.shown()["messages"] == 0


def test_quota_slot_is_released_with_vhost_and_group(region):
    shares = SharedUsages(pytest.fail)
    shares.connect(region)
    used = shares.bound("v", VHOST, RATE)
    used.share.connections = 1
    shares.bound("v", "g", RATE)
    shares.keep({"v": frozenset()})
    assert shares.bound("v", "other", RATE).scope == (1, 5, 0, 0), "the group was removed"
    shares.keep({})
    assert used.share.slot == 0, "a connection uses it"
    used.share.connections = 0
    shares.keep({})
    assert list(shares.of_vhost("v")) == []
    assert {shares.bound("w", str(number), RATE).share.slot for number in range(2)} == {0, 1}


def test_missing_quota_slot_is_reported(region):
    refused: list[str] = []
    shares = SharedUsages(refused.append)
    shares.connect(region)
    for number in range(MAX_QUOTAS):
        assert shares.bound("v", str(number), RATE).scope is not None
    assert shares.bound("v", "more", RATE).scope is None
    whose = "vhost 'v', group 'more'"
    assert refused == [f"Shared limits of {whose} are not enforced: all {MAX_QUOTAS} quotas are in use"]


def test_shares_without_shared_memory_measure_nothing():
    shares = SharedUsages(pytest.fail)
    bound = shares.bound("v", VHOST, RATE)
    assert bound.scope is None
    assert bound.share.shown()["octets"] is None
    shares.worker_lost(0)
