"""Settings of addresses by pattern."""

import pytest

from sluice.router.addressing.pattern import DuplicatePatternError
from sluice.router.addressing.settings import AddressSetting, AddressSettings

FULL = AddressSetting("closest", 1, 2, 7, True, "block")


def test_lookup_returns_settings_of_best_pattern():
    settings = AddressSettings([("a/#", FULL), ("b/*", AddressSetting("multicast"))], "unavailable")
    assert settings.lookup("a.x") == FULL
    assert settings.lookup("b.x") == AddressSetting("multicast", 0, 0, None, False, "throttle")
    assert settings.lookup("c") == AddressSetting("unavailable")
    assert settings.lookup("c") is settings.default


def test_tenant_addresses_have_their_own_settings():
    settings = AddressSettings([("multicast/#", AddressSetting("multicast"))])
    assert settings.lookup("acme.com/multicast/z") == settings.default


def test_duplicate_setting_is_refused():
    with pytest.raises(DuplicatePatternError):
        AddressSettings([("a/#", AddressSetting()), ("a.#", AddressSetting())])


def test_changes_apply_at_once():
    settings = AddressSettings([("a/#", AddressSetting("closest"))])
    assert settings.lookup("a/b").distribution == "closest"
    settings.put("a/b", AddressSetting("multicast"))
    assert settings.lookup("a/b").distribution == "multicast"
    settings.drop("a/b")
    assert settings.lookup("a/b").distribution == "closest"
    settings.become(AddressSettings())
    assert settings.lookup("a/b").distribution == "balanced"
    settings.set_default("unavailable")
    assert settings.lookup("a/b").distribution == "unavailable"
