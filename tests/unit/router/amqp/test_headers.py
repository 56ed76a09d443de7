"""Texts of Dispatch for protocol headers that are not supported or not expected (routing-semantics.md 1.1)."""

import pytest

from sluice.router.amqp.headers import AMQP_HEADER, SASL_HEADER, TLS_HEADER, bad_header, not_expected, shown_octets


def test_octets_that_cannot_be_printed_are_shown_in_hexadecimal() -> None:
    assert shown_octets(b"GET \x00\x7f~") == r"GET \x00\x7f~"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3])
def test_header_of_other_amqp_version_is_incompatible(protocol: int) -> None:
    error = bad_header(b"AMQP" + bytes([protocol, 0, 9, 1]))
    assert (error.layer, error.condition) == ("transport", "amqp:connection:framing-error")
    assert error.description == rf"Incompatible AMQP connection detected: 'AMQP\x{protocol:02x}\x00\x09\x01'"


@pytest.mark.parametrize("octets", [b"GET / HT", b"AMQP\x04\x01\x00\x00", b"amqp\x00\x01\x00\x00"])
def test_header_of_other_protocol_is_unknown(octets: bytes) -> None:
    assert bad_header(octets).description == f"Unknown protocol detected: '{shown_octets(octets)}'"


@pytest.mark.parametrize(
    ("octets", "name"),
    [
        (AMQP_HEADER, "AMQP 1.0 layer"),
        (SASL_HEADER, "AMQP SASL layer"),
        (TLS_HEADER, "AMQP TLS layer"),
        (b"AMQP\x00\x00\x09\x01", "Unknown AMQP connection"),
        (b"GET / HT", "Unknown protocol"),
    ],
)
def test_unexpected_header_names_both_layers(octets: bytes, name: str) -> None:
    text = not_expected("SASL", octets).description
    assert text == f"Expected SASL protocol header got: {name} ['{shown_octets(octets)}']"
