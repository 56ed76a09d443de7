"""Ports as numbers and as names of services."""

import json

import pytest

from tests.unit.router.config.sections import LONG, errors, listener


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("5672", 5672), ("65535", 65535), ("00080", 80), ("amqp", 5672), ("amqps", 5671), ("http", 80)],
)
def test_port_is_a_number_or_a_service(text, number):
    assert listener("name: l", f"port: {text}").port == number


@pytest.mark.parametrize("text", ["65536", "000080", "-1", "٥", "0x50", "amqpx", "a\0b"])
def test_port_that_is_neither_is_refused(text):
    found = errors(json.dumps([["listener", {"name": "l", "port": text}]]), "x.json")
    assert found == [(1, f"{LONG}listener: port '{text}' is neither 0 to 65535 nor a known service")]
