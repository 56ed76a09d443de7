"""SASLprep: the examples of RFC 4013, and refused texts."""

import pytest

from sluice.router.sasl.saslprep import PrepareError, prepare


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\N{SOFT HYPHEN}X", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\N{FEMININE ORDINAL INDICATOR}", "a"),
        ("\N{ROMAN NUMERAL NINE}", "IX"),
        ("a\N{NO-BREAK SPACE}b", "a b"),
        ("", ""),
        ("\u0627\u0031\u0628", "\u06271\u0628"),
    ],
)
def test_examples_of_rfc_4013_are_prepared(text, prepared):
    assert prepare(text) == prepared


@pytest.mark.parametrize("text", ["\x07", "a\0b", "\u0627\u0031", "\u0627a\u0628", "\ufffd", "\ue000", "\U000e0001"])
def test_prohibited_text_is_refused(text):
    with pytest.raises(PrepareError):
        prepare(text)


def test_stored_text_has_assigned_characters_only():
    assert prepare("\u0221") == "\u0221"
    with pytest.raises(PrepareError, match="not assigned"):
        prepare("\u0221", query=False)


def test_error_does_not_contain_text():
    with pytest.raises(PrepareError) as error:
        prepare("secret\x07")
    assert "secret" not in str(error.value)
