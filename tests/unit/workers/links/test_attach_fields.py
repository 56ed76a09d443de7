"""Properties that routers add to routed links, and fields that they leave out."""

import pytest

from sluice.workers.links.attach import padded
from sluice.workers.links.attach_fields import leave_out, route_of, with_route
from tests.peer.codec import decode, encode
from tests.peer.frames import source
from tests.peer.types import Map, Symbol, UByte, ULong

NULL = b"\x40"
USER = encode(Map([(Symbol("a"), 1), ("text", [1, None, "x"])]))


def value(octets: bytes):
    return decode(octets, 0)[0]


@pytest.mark.parametrize("properties", [NULL, USER, encode(Map([])), encode(Map([(Symbol("k"), "x" * 300)]))])
def test_route_property_is_added_and_removed(properties):
    sent = with_route(properties, ["C", "A"])
    assert route_of(sent) == ["C", "A"]
    assert list(value(sent))[-1] == "sluice.route"
    longer = with_route(sent, ["C", "A", "B"])
    assert route_of(longer) == ["C", "A", "B"]
    back = with_route(longer, [])
    assert (value(back) or {}) == (value(properties) or {})
    assert route_of(properties) == []
    assert with_route(properties, []) is properties


@pytest.mark.parametrize("route", [1, "A", [1], [None], {"a": "b"}, ["A"] * 3000])
def test_malformed_route_property_is_ignored(route):
    properties = encode(Map([(Symbol("sluice.route"), route)]))
    assert route_of(properties) == []
    assert with_route(properties, []) == NULL


def test_text_equal_to_route_key_is_kept():
    properties = encode(Map([("say", Symbol("sluice.route"))]))
    assert route_of(properties) == []
    assert value(with_route(properties, [])) == {"say": "sluice.route"}


def test_attach_for_dispatch_1_19_omits_unsupported_fields():
    items = padded([encode("name"), encode(ULong(0)), encode(True), encode(UByte(1)), encode(UByte(1))])
    items[5] = encode(source("a", default_outcome=source("x"), capabilities=Symbol("queue")))
    items[7:] = [encode({"tag": None}), encode(True), encode(0), encode(ULong(5)), *(encode([Symbol("x")]),) * 3]
    leave_out(items)
    assert [value(item) for item in items[3:5]] == [2, 0]
    assert items[7:9] == [NULL, NULL]
    assert items[10:] == [b"\x44", NULL, NULL, NULL]
    fields = value(items[5]).value
    assert (fields[0], fields[8], fields[10]) == ("a", None, "queue")
