"""Properties of an open as JSON, and lists of failover servers."""

from __future__ import annotations

import json

import pytest

from sluice.router.amqp.codec import Symbol
from sluice.router.control.ops import ProfileFailoverServer
from sluice.workers.connections.open_properties import failover, plain, plain_map


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (Symbol("s"), "s"),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (2**64, str(2**64)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (b"\x01\xff", "01ff"),
        ([1, [b"\x02"]], [1, ["02"]]),
        ((1, 2), [1, 2]),
        ({Symbol("a"): {1: b"\x03"}}, {"a": {"1": "03"}}),
        (1j, "1j"),
    ],
)
def test_value_becomes_json(value: object, expected: object) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found)


def test_keys_of_map_become_text() -> None:
    assert plain_map({Symbol("product"): "x", 7: None}) == {"product": "x", "7": None}


@pytest.mark.parametrize(
    ("server", "entry"),
    [
        (ProfileFailoverServer("amqps", "h", "1"), {"network-host": "h", "port": "1", "scheme": "amqps"}),
        (ProfileFailoverServer("", "h", ""), {"network-host": "h", "port": "5672"}),
    ],
)
def test_failover_server_has_default_port_and_optional_scheme(
    server: ProfileFailoverServer, entry: dict[str, str]
) -> None:
    assert failover(server) == entry
