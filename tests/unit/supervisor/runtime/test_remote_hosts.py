"""Shares of remote hosts."""

import pytest

from sluice.supervisor.runtime.remote_hosts import HostCounts, remote_host


def test_host_share_is_bounded():
    shares = HostCounts(5, 2)
    assert [shares.take("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert [shares.take(f"10.0.0.{number}") for number in range(2, 6)] == [True, True, True, False]
    shares.give_back("10.0.0.1")
    assert shares.total == 4
    assert shares.take("10.0.0.1")
    with pytest.raises(KeyError):
        shares.give_back("10.0.0.9")


def test_host_without_shares_is_forgotten():
    shares = HostCounts(5, 2)
    for number in range(100):
        shares.take(f"10.0.0.{number}")
        shares.give_back(f"10.0.0.{number}")
    assert not shares._hosts


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::7", "2001:db8::/64"),
        ("[2001:db8::7]", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_ipv6_network_counts_as_one_host(address, host):
    assert remote_host(address) == host
