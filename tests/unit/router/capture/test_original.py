"""Originals of copies: address, annotations and sections."""

from typing import Any

import pytest
from msgspec.structs import replace

from sluice.router.capture.original import ADDRESS, Original, read_original, zero_body
from sluice.router.client.message import DataSections, Message, decode

MESSAGE = Message(b"body", durable=True, subject="s", properties={"k": 1}, footer={"f": 1})


def copy(annotations: dict[str, Any], delivery_annotations: dict[str, Any] | None = None) -> bytes:
    return replace(MESSAGE, annotations=annotations, delivery_annotations=delivery_annotations or {}).encode()


@pytest.mark.parametrize("others", [{}, {"a": 1, "b": [1, "x"]}])
def test_annotation_of_the_tap_becomes_the_address(others: dict[str, Any]) -> None:
    octets = copy({**others, ADDRESS: "orders/a"}, {"d": 1})
    assert read_original(octets, payload=True) == Original("orders/a", copy(others))


def test_copy_without_annotation_has_no_address() -> None:
    assert read_original(copy({"a": 1}), payload=True) == Original("", copy({"a": 1}))


def test_original_without_payload_has_its_size() -> None:
    octets = copy({ADDRESS: "a"})
    original = read_original(octets, payload=False)
    found = decode(original.octets)
    assert (found.subject, found.properties, found.body, found.footer) == ("s", {"k": 1}, None, {})
    assert len(original.octets) + original.omitted == len(copy({}))


@pytest.mark.parametrize("size", [5, 6, 259, 260, 263, 264, 1000, 70_000])
def test_zero_body_has_the_wanted_size(size: int) -> None:
    octets = zero_body(size)
    body = decode(octets).body
    assert not any(body)
    assert len(octets) == size or (260 < size < 264 and abs(len(octets) - size) <= 3)


def test_several_data_sections_are_kept() -> None:
    octets = Message(DataSections([b"a", b"b"])).encode()
    assert read_original(octets, payload=True).octets == octets
    assert read_original(octets, payload=False) == Original("", b"", len(octets))


@pytest.mark.parametrize(
    "octets",
    [b"\x40", b"\x00\x53", b"\x00\x53\x75\xa0\x05a", b"\x00\x00\x00", b"\x00\x53\x72\x40", b"\x00\x53\x75\x10"],
)
def test_octets_that_are_no_message_are_refused(octets: bytes) -> None:
    with pytest.raises(ValueError, match="message"):
        read_original(octets, payload=True)


@pytest.mark.parametrize(
    "octets",
    [
        copy({ADDRESS: "a"}) + copy({ADDRESS: "b"}),
        Message(b"body").encode() + Message(annotations={ADDRESS: "b"}).encode()[:-4],
        Message(annotations={ADDRESS: "a"}).encode()[:-4] * 2,
    ],
)
def test_section_in_a_wrong_place_is_refused(octets: bytes) -> None:
    with pytest.raises(ValueError, match="of the message follows section"):
        read_original(octets, payload=True)
