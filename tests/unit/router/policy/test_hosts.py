"""Remote hosts from which a group's users may connect (security.md P-14)."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.policy.hosts import HostError, HostRules, known, names, resolve_host


def rules(*specifications: str, **addresses: str) -> HostRules:
    return HostRules(specifications, known(addresses))


def test_wildcard_allows_any_host():
    assert rules("*").allows("10.1.2.3")
    assert rules("*").allows("::1")


def test_empty_rules_allow_no_host():
    assert not rules().allows("10.1.2.3")


def test_addresses_and_ranges_are_matched():
    found = rules("10.0.0.5", "10.0.0.10-10.0.1.3", "fe80::1-fe80::ff", "::1")
    allowed = ["10.0.0.5", "10.0.0.10", "10.0.0.255", "10.0.1.3", "fe80::1", "fe80::80", "fe80::80%eth0", "::1"]
    refused = ["10.0.0.4", "10.0.0.6", "10.0.0.9", "10.0.1.4", "fe80::", "fe80::100", "::2", "", "here"]
    assert [host for host in allowed + refused if found.allows(host)] == allowed


def test_address_families_never_match_each_other():
    found = rules("here", here="127.0.0.1")
    assert found.allows("127.0.0.1")
    assert not found.allows("::1")
    assert not found.allows("::7f00:1")


@pytest.mark.parametrize(
    ("specification", "text"),
    [
        ("10.0.0.2-10.0.0.1", "host specs in range must have lower numeric address first"),
        ("10.0.0.2-::1", "mixed IPv4 and IPv6 host specs in range not allowed"),
        ("10.0.0.2-10.0.0.3-10.0.0.4", "hostspec must contain 1 or 2 host names"),
        ("", "HostStruct: '' is no host"),
        ("10.0.0.2-", "HostStruct: '' is no host"),
        ("nowhere", "HostStruct: 'nowhere' failed to resolve: 'unknown'"),
    ],
)
def test_invalid_specification_is_refused(specification, text):
    with pytest.raises(HostError, match=f"^{text}"):
        rules(specification)


def test_host_names_to_resolve_are_listed():
    assert [*names(["*", "10.0.0.1", "a", "::1-b", "c - d"])] == ["a", "b", "c", "d"]


def test_host_name_with_several_addresses_is_refused(monkeypatch):
    answer = [(socket.AF_INET, 1, 6, "", ("10.0.0.1", 0)), (socket.AF_INET6, 1, 6, "", ("::1", 0, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answer)
    with pytest.raises(HostError, match="'x' resolves to multiple IP addresses"):
        resolve_host("x")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answer[:1] * 3)
    assert resolve_host("x") == "10.0.0.1"


NUMBERS = st.integers(0, 300)


@given(st.lists(st.tuples(NUMBERS, NUMBERS)), NUMBERS)
def test_ranges_allow_union_of_addresses(pairs, number):
    def address(at: int) -> str:
        return str(ipaddress.IPv4Address(at))

    found = rules(*(f"{address(min(pair))}-{address(max(pair))}" for pair in pairs))
    assert found.allows(address(number)) == any(min(pair) <= number <= max(pair) for pair in pairs)
