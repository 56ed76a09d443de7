"""Connections that are not open yet: the choice of the connection to close when there is no room."""

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

from sluice.supervisor.connections.unopened import UnopenedConnections


def connection(number: int, host: str) -> Any:
    return SimpleNamespace(number=number, peer=f"{host}:{1000 + number}")


def evicted(unopened: UnopenedConnections, peer: str) -> int | None:
    """Return the number of the connection that would be closed."""
    found = unopened.connection_to_evict(peer)
    return None if found is None else found.number


def are_sorted(unopened: UnopenedConnections) -> bool:
    return unopened._sorted is not None


def test_oldest_connection_of_largest_host_is_evicted():
    unopened = UnopenedConnections()
    for number, host in enumerate(["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"]):
        unopened.add(connection(number, host))
    assert evicted(unopened, "10.0.0.3:1") == 1
    assert evicted(unopened, "10.0.0.1:1") == 1
    assert unopened.connection_to_evict("10.0.0.2:1") is None
    unopened.add(connection(9, "10.0.0.1"))
    assert (
        unopened.connection_to_evict("10.0.0.1:1") is None
    )  # the host would then have as many as the other one has now
    unopened.remove(connection(1, "10.0.0.2"))
    unopened.remove(connection(1, "10.0.0.2"))
    assert evicted(unopened, "10.0.0.3:1") in (0, 2)


def test_ipv6_network_counts_as_one_host():
    unopened = UnopenedConnections()
    for number in range(3):
        unopened.add(connection(number, f"2001:db8::{number}"))
    assert unopened.connection_to_evict("2001:db8::9:1") is None
    assert evicted(unopened, "10.0.0.1:1") == 0


def test_eviction_choice_matches_plain_counting():
    rng = Random(7)
    unopened = UnopenedConnections()
    hosts: dict[int, str] = {}
    for number in range(3000):
        if hosts and rng.random() < 0.49:
            gone = rng.choice(list(hosts))
            unopened.remove(connection(gone, hosts.pop(gone)))
        else:
            hosts[number] = f"10.0.0.{rng.randrange(6)}"
            unopened.add(connection(number, hosts[number]))
        counts = Counter(hosts.values())
        most = max(counts.values(), default=0)
        found = evicted(unopened, "10.0.0.0:1")
        if most <= counts["10.0.0.0"] + 1:
            assert found is None
        else:
            assert found is not None
            host = hosts[found]
            assert counts[host] == most
            assert found == min(each for each, its in hosts.items() if its == host)
    for each, host in hosts.items():
        unopened.remove(connection(each, host))
    assert (unopened._hosts, unopened._host_of, unopened._sorted) == ({}, {}, None)


def test_hosts_are_sorted_from_the_first_choice_until_no_connection_is_left():
    unopened = UnopenedConnections()
    for number, host in enumerate(["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"]):
        unopened.add(connection(number, host))
    assert not are_sorted(unopened)
    unopened.remove(connection(3, "10.0.0.3"))
    assert unopened.connection_to_evict("10.0.0.2:1") is None
    assert are_sorted(unopened)
    unopened.add(connection(4, "10.0.0.1"))
    unopened.add(connection(5, "10.0.0.1"))
    assert evicted(unopened, "10.0.0.4:1") == 0
    for number, host in [(0, "10.0.0.1"), (1, "10.0.0.2"), (2, "10.0.0.2"), (4, "10.0.0.1"), (5, "10.0.0.1")]:
        assert are_sorted(unopened)
        unopened.remove(connection(number, host))
    assert not are_sorted(unopened)
    assert unopened.count == 0
