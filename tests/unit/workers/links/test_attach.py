"""Fields of an attach, as the worker reads them, and the fields of the answer."""

import pytest

from sluice.router.amqp.codec import encode_uint, encode_ulong, encode_value
from sluice.router.amqp.errors import RemoteError
from sluice.workers.links.attach import (
    INITIAL_COUNT,
    MAX_SIZE,
    RCV_FIRST,
    RCV_MODE,
    RCV_SECOND,
    RECEIVER,
    SENDER,
    SND_MIXED,
    SND_MODE,
    SND_SETTLED,
    attach_reply,
    check_attach,
    initial_count,
    message_limit,
    padded,
    settle_mode,
)
from sluice.workers.links.encoded import NULL, TRUE

UBYTE_1 = b"\x50\x01"
ULONG_1 = b"\x53\x01"  # another type of the same number
SOURCE_OCTETS = b"\x00\x53\x28\x45"
TARGET_OCTETS = b"\x00\x53\x29\x45"


def attach(**fields: bytes) -> list[bytes]:
    """Return padded items with these fields. A field is named after its constant, in lower case."""
    places = {"snd": SND_MODE, "rcv": RCV_MODE, "count": INITIAL_COUNT, "most": MAX_SIZE}
    items = padded([b"\xa1\x01n", encode_uint(0), TRUE])
    for name, octets in fields.items():
        items[places[name]] = octets
    return items


@pytest.mark.parametrize("octets", [UBYTE_1, ULONG_1])
def test_settle_mode_of_any_integer_type_is_read(octets: bytes) -> None:
    items = attach(snd=octets, rcv=octets)
    assert (settle_mode(items, SND_MODE), settle_mode(items, RCV_MODE)) == (SND_SETTLED, RCV_SECOND)


def test_settle_mode_that_is_absent_has_default() -> None:
    items = attach()
    assert (settle_mode(items, SND_MODE), settle_mode(items, RCV_MODE)) == (SND_MIXED, RCV_FIRST)


@pytest.mark.parametrize(("name", "field"), [("snd", "snd-settle-mode"), ("rcv", "rcv-settle-mode")])
@pytest.mark.parametrize("octets", [b"\x50\x03", TRUE, b"\xa1\x011"])
def test_settle_mode_that_is_invalid_is_refused(name: str, field: str, octets: bytes) -> None:
    with pytest.raises(RemoteError, match=f"attach: {field} is not valid"):
        check_attach(attach(**{name: octets}))


@pytest.mark.parametrize(("octets", "count"), [(NULL, 0), (b"\x43", 0), (encode_uint(7), 7), (TRUE, 0)])
def test_initial_count_is_number_or_zero(octets: bytes, count: int) -> None:
    assert initial_count(attach(count=octets)) == count


@pytest.mark.parametrize(
    ("octets", "most"), [(NULL, 0), (encode_ulong(0), 0), (encode_ulong(2**64 - 1), 2**64 - 1), (encode_value("x"), 0)]
)
def test_message_limit_is_number_or_zero(octets: bytes, most: int) -> None:
    assert message_limit(attach(most=octets)) == most


def test_reply_has_all_fields() -> None:
    """Some clients index the fields of an attach without checking their number."""
    items = attach(snd=ULONG_1, rcv=UBYTE_1)
    reply = attach_reply(items, 300, True, SOURCE_OCTETS, TARGET_OCTETS, 1000)
    assert reply == [
        items[0], encode_uint(300), SENDER, b"\x50\x01", b"\x50\x01", SOURCE_OCTETS, TARGET_OCTETS, NULL, NULL, b"\x43",
        encode_ulong(1000), NULL, NULL, NULL,
    ]  # fmt: skip
    assert attach_reply(items, 0, False, NULL, NULL, 0)[2] == RECEIVER
