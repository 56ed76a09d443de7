"""Address settings from ops."""

from typing import Any

import pytest

from router.routing.pattern import DuplicatePatternError
from router.routing.settings import AddressSettings, Setting, from_ops

FULL: dict[str, object] = {
    "distribution": "closest",
    "ingressPhase": 1,
    "egressPhase": 2,
    "priority": 7,
    "fallback": True,
    "presettledOverflow": "block",
}


def test_lookup():
    settings = AddressSettings([("a/#", FULL), ("b/*", {"distribution": "multicast"})], "unavailable")
    assert settings.lookup("a.x") == Setting("closest", 1, 2, 7, True, "block")
    assert settings.lookup("b.x") == Setting("multicast", 0, 0, None, False, "throttle")
    assert settings.lookup("c") == Setting("unavailable")
    assert settings.lookup("c") is settings.default


def test_null_attributes_have_their_defaults():
    assert AddressSettings([("a", dict.fromkeys(FULL))]).lookup("a") == Setting()


def test_tenants_have_settings_of_their_own():
    settings = AddressSettings([("multicast/#", {"distribution": "multicast"})])
    assert settings.lookup("acme.com/multicast/z") == settings.default


def test_duplicates_are_refused():
    with pytest.raises(DuplicatePatternError):
        AddressSettings([("a/#", {}), ("a.#", {})])


def test_the_last_settings_op_counts():
    ops: list[list[Any]] = [
        ["addr", 1, "M0a", {}],
        ["settings", [["a", {"distribution": "closest"}]], "balanced"],
        ["settings", [["b", {"distribution": "closest"}]], "multicast"],
    ]
    settings = from_ops(ops)
    assert settings.lookup("a").distribution == "multicast"
    assert settings.lookup("b").distribution == "closest"
    assert from_ops([]).lookup("a") == Setting()
