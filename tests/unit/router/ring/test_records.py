"""Ring records between workers: the decoder reads what the encoder wrote, and never octets beyond the record."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sluice.router.testing import records

STATED = 8  # F_STATE of a TRANSFER
SERVED = 64  # K_SERVED
CONTINUE, UPDATE, WINDOW = 2, 3, 6
LINK_TRANSFER, LINK_TOLD = 16, 22
#: Little-endian words to write over lengths, which then reach far beyond the record, or a little.
LENGTHS = st.sampled_from([0, 1, 3, 4, 5, 8, 64, 255, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF])
OCTET, WORD, KEY = st.integers(0, 0xFF), st.integers(0, 0xFFFFFFFF), st.integers(0, 2**64 - 1)
PART = st.binary(max_size=40)
TARGETS = st.lists(st.tuples(WORD, WORD), max_size=5)
TRANSFERS = st.tuples(OCTET, OCTET, OCTET, WORD, KEY, TARGETS, PART, PART, PART, PART)
DELIVERIES = st.tuples(st.integers(UPDATE, WINDOW - 1), OCTET, OCTET, KEY, WORD, PART)
LINKS = st.tuples(st.just(LINK_TRANSFER), OCTET, OCTET, WORD, WORD, KEY, PART, PART, PART)
TOLD = st.tuples(st.just(LINK_TOLD), OCTET, OCTET, WORD, WORD, KEY, st.just(b""), PART, PART)
STATES_OF_LINKS = st.tuples(
    st.integers(LINK_TRANSFER + 1, LINK_TOLD - 1), OCTET, OCTET, WORD, WORD, KEY, st.just(b""), PART, st.just(b"")
)
#: Positions in the head, where lengths and flags are, and the words written there.
CHANGES = st.lists(st.tuples(st.integers(0, 60), st.one_of(LENGTHS, WORD)), max_size=3)


def octets_of(record: bytes, part: tuple[int, int] | None) -> bytes:
    if part is None:
        return b""
    at, size = part
    assert at >= 0
    assert size >= 0
    assert at + size <= len(record), "a part reaches beyond its record"
    return record[at : at + size]


def check_within(record: bytes, fields: dict[str, Any]) -> None:
    for part in fields.values():
        if isinstance(part, tuple):
            octets_of(record, part)


def changed(record: bytes, changes: list[tuple[int, int]], end: int) -> bytes:
    """Return the record cut at `end`, with other octets at some positions."""
    octets = bytearray(record)
    for at, value in changes:
        if at + 4 <= len(octets):
            octets[at : at + 4] = value.to_bytes(4, "little")
    return bytes(octets[:end])


@given(TRANSFERS)
def test_transfer_with_any_parts_round_trips(parts: tuple[Any, ...]) -> None:
    flags, kind, phase, message_format, key, targets, *octets = parts
    record = records.transfer(*parts)
    fields = records.read_transfer(record)
    assert fields is not None
    to, served, state, data = octets
    assert fields["flags"] == flags & ~STATED | (STATED if state else 0)
    assert fields["kind"] == kind & ~SERVED | (SERVED if served else 0)
    assert (fields["phase"], fields["format"], fields["key"]) == (phase, message_format, key)
    assert octets_of(record, fields["targets"]) == b"".join(
        number.to_bytes(4, "little") for target in targets for number in target
    )
    for name, expected in zip(("to", "served", "state", "data"), (to, served, state, data), strict=True):
        assert octets_of(record, fields[name]) == expected, name


@given(DELIVERIES)
def test_delivery_record_with_any_state_round_trips(parts: tuple[Any, ...]) -> None:
    record = records.delivery(*parts)
    fields = records.read_delivery(record)
    assert fields is not None
    kind, flags, state, key, count, body = parts
    assert (fields["type"], fields["flags"], fields["kind"]) == (kind, flags, state)
    assert (fields["key"], fields["count"]) == (key, count)
    assert octets_of(record, fields["body"]) == body


@given(KEY, PART)
def test_continue_record_round_trips(key: int, body: bytes) -> None:
    record = records.delivery(CONTINUE, 0, 0, key, 0, body, stated=False)
    fields = records.read_delivery(record)
    assert fields is not None
    assert (fields["type"], fields["key"], octets_of(record, fields["body"])) == (CONTINUE, key, body)


@given(KEY, WORD)
def test_window_record_round_trips(key: int, octets: int) -> None:
    fields = records.read_delivery(records.window(key, octets))
    assert fields is not None
    assert (fields["type"], fields["key"], fields["format"], fields["body"]) == (WINDOW, key, octets, None)
    assert records.read_delivery(records.window(key, octets) + b"x") is None


@given(st.one_of(LINKS, TOLD, STATES_OF_LINKS))
def test_link_record_with_any_parts_round_trips(parts: tuple[Any, ...]) -> None:
    record = records.link(*parts)
    fields = records.read_link(record)
    assert fields is not None
    assert tuple(fields[name] for name in ("type", "flags", "kind", "slot", "generation", "key")) == parts[:6]
    for name, expected in zip(("tag", "state", "data"), parts[6:], strict=True):
        assert octets_of(record, fields[name]) == expected, name


@given(TRANSFERS, CHANGES, st.integers(0, 200))
def test_changed_transfer_never_reaches_beyond_the_record(
    parts: tuple[Any, ...], changes: list[tuple[int, int]], end: int
) -> None:
    record = changed(records.transfer(*parts), changes, end)
    fields = records.read_transfer(record)
    if fields is not None:
        check_within(record, fields)


@given(TRANSFERS)
def test_transfer_cut_in_front_of_its_message_is_refused(parts: tuple[Any, ...]) -> None:
    record = records.transfer(*(*parts[:-1], b""))
    for end in range(len(record)):
        assert records.read_transfer(record[:end]) is None


@given(DELIVERIES, CHANGES, st.integers(0, 100))
def test_changed_delivery_record_never_reaches_beyond_the_record(
    parts: tuple[Any, ...], changes: list[tuple[int, int]], end: int
) -> None:
    record = changed(records.delivery(*parts), changes, end)
    fields = records.read_delivery(record)
    if fields is not None:
        check_within(record, fields)


@given(DELIVERIES, st.integers(1, 40))
def test_delivery_record_of_another_size_is_refused(parts: tuple[Any, ...], more: int) -> None:
    record = records.delivery(*parts)
    assert records.read_delivery(record + bytes(more)) is None
    assert records.read_delivery(record[: max(0, len(record) - more)]) is None


@given(st.one_of(LINKS, TOLD, STATES_OF_LINKS), CHANGES, st.integers(0, 200))
def test_changed_link_record_never_reaches_beyond_the_record(
    parts: tuple[Any, ...], changes: list[tuple[int, int]], end: int
) -> None:
    record = changed(records.link(*parts), changes, end)
    fields = records.read_link(record)
    if fields is not None:
        check_within(record, fields)


@given(st.integers(0, 255), st.binary(max_size=100))
def test_record_of_unknown_type_is_refused(kind: int, rest: bytes) -> None:
    if not CONTINUE <= kind <= WINDOW:
        assert records.read_delivery(bytes([kind]) + rest) is None
    if not LINK_TRANSFER <= kind <= LINK_TOLD:
        assert records.read_link(bytes([kind]) + rest) is None
