"""Settings of a log: texts of `enable`, and plain values for other processes (management.md 4.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.log import (
    ALL_LEVELS,
    CRITICAL,
    DEBUG,
    ERROR,
    INFO,
    LEVEL_NAMES,
    LEVELS,
    NOTICE,
    WARNING,
    LogSettings,
    ModuleSettings,
    parse_enable,
)

INFO_AND_ABOVE = INFO | NOTICE | WARNING | ERROR | CRITICAL


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("info", INFO),
        ("info+", INFO_AND_ABOVE),
        ("WARN+;i: deb", WARNING | ERROR | CRITICAL | INFO | DEBUG),
        ("trace+", ALL_LEVELS),
        ("critical+", CRITICAL),
        ("none", 0),
        ("", 0),
        ("none, error", ERROR),
        ("default", None),
        ("d", None),
        ("de", None),
        ("info default", None),
        ("n", 0),
        ("not", NOTICE),
        (" ,info,, error; ", INFO | ERROR),
    ],
)
def test_enable_text_gives_level_mask(text, mask):
    assert parse_enable(text) == mask


@pytest.mark.parametrize("text", ["bogus", "info,bogus", "trace,bogus", "+", "info++", "infos", "info +", "3"])
def test_enable_with_invalid_text_is_refused(text):
    expected = f"'{text}' is not a valid log level. Should be one of "
    with pytest.raises(ValueError, match="is not a valid log level") as caught:
        parse_enable(text)
    assert str(caught.value) == expected + "{none, trace, debug, info, notice, warning, error, critical}."


@given(st.sets(st.sampled_from(LEVEL_NAMES)), st.sampled_from([" ", ",", ";", ":", ", "]))
def test_enable_combines_level_names(names, separator):
    assert parse_enable(separator.join(names)) == sum(LEVELS[name] for name in names)


def test_settings_are_converted_to_plain_values_and_back():
    modules = {"DEFAULT": ModuleSettings(3, True, None, "x", "json"), "AGENT": ModuleSettings()}
    settings = LogSettings(modules, "%T", utc=True)
    plain = settings.to_dict()
    assert plain["modules"]["DEFAULT"] == [3, True, None, "x", "json"]
    assert LogSettings.from_dict(plain) == settings
