"""Decimals as Python values: octets that are encoded again as the type that came."""

import pytest

from sluice.router.amqp import codec


@pytest.mark.parametrize("octets", [b"\x74" + bytes(4), b"\x84" + bytes(8), b"\x94" + bytes(range(16))])
def test_decimal_is_encoded_as_it_came(octets):
    value = codec.decode_one(octets)
    assert isinstance(value, codec.DecimalOctets)
    assert value == octets[1:]
    assert codec.encode_value(value) == octets
    assert codec.encode_value([value]) == codec.encode_list([octets])


def test_binary_of_the_same_octets_stays_binary():
    value = codec.decode_one(b"\xa0\x04" + bytes(4))
    assert not isinstance(value, codec.DecimalOctets)
    assert codec.encode_value(value) == b"\xa0\x04" + bytes(4)
