"""Changes to a message before it is sent again, because its receiver modified it (AMQP 1.0 part 3, 3.4.5)."""

from sluice.router.amqp import codec
from sluice.router.amqp.errors import RemoteError, malformed

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
#: Sections before the properties, in order.
LEADING = {
    HEADER: "amqp:header:list",
    DELIVERY_ANNOTATIONS: "amqp:delivery-annotations:map",
    MESSAGE_ANNOTATIONS: "amqp:message-annotations:map",
}
HEADER_FIELDS = 5
FIRST_ACQUIRER, DELIVERY_COUNT = 3, 4  # indexes of fields of the header
DELIVERY_COUNT_MOST = 0xFFFFFFFF
MODIFIED = 0x27
ANNOTATIONS = 2  # index of a field of the outcome
MAP_HEADS = {0xC1: 3, 0xD1: 9}  # octets before the first key, by constructor
NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"


def prepare_redelivery(octets: bytes, state: bytes) -> bytes:
    """Return the message as the next receiver is to get it. state: encoded `modified`, or another outcome.

    `delivery-failed` raises the delivery-count, and the annotations of the outcome replace those of the message. All
    other octets stay as they are. A message or state that is malformed changes nothing.
    """
    try:
        code, fields = codec.described_list(state)
        if code != MODIFIED:
            return octets
        sections, rest = _leading_sections(octets)
        if fields and codec.decode_one(fields[0]) is True:
            sections[HEADER] = _failed_header(sections.get(HEADER))
        if len(fields) > ANNOTATIONS and fields[ANNOTATIONS] != NULL:
            sections[MESSAGE_ANNOTATIONS] = _merge_maps(sections.get(MESSAGE_ANNOTATIONS), fields[ANNOTATIONS])
    except RemoteError:
        return octets
    return b"".join(bytes((0, 0x53, code)) + sections[code] for code in LEADING if code in sections) + rest


def _leading_sections(octets: bytes) -> tuple[dict[int, bytes], bytes]:
    """Return the encoded values of the leading sections, and all octets behind them. Raises RemoteError."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(octets) and octets[at] == 0:
        descriptor, value_at = codec.decode(octets, at + 1)
        code = next((code for code, symbol in LEADING.items() if descriptor in (code, symbol)), None)
        if code is None:
            break
        _, end = codec.decode(octets, value_at)
        found[code] = octets[value_at:end]
        at = end
    return found, octets[at:]


def _failed_header(header: bytes | None) -> bytes:
    fields = list(codec.fields(header)) if header is not None else []
    fields += [NULL] * (HEADER_FIELDS - len(fields))
    count = codec.decode_one(fields[DELIVERY_COUNT]) or 0
    if fields[FIRST_ACQUIRER] == TRUE:
        fields[FIRST_ACQUIRER] = FALSE
    fields[DELIVERY_COUNT] = codec.encode_uint(min(count + 1, DELIVERY_COUNT_MOST))
    return bytes(codec.encode_list(fields))


def _merge_maps(old: bytes | None, new: bytes) -> bytes:
    """Merge two encoded maps; entries of `new` replace those of `old`. Values keep their types."""
    entries = {**(_entries(old) if old is not None else {}), **_entries(new)}
    return bytes(codec.encode_map([part for entry in entries.items() for part in entry]))


def _entries(octets: bytes) -> dict[bytes, bytes]:
    """Return the encoded keys and values of a map. Raises RemoteError."""
    if octets == NULL:
        return {}
    codec.decode_one(octets)  # checks the map
    if octets[0] not in MAP_HEADS:
        raise malformed("annotations are not a map")
    at = MAP_HEADS[octets[0]]
    parts: list[bytes] = []
    while at < len(octets):
        _, end = codec.decode(octets, at)
        parts.append(octets[at:end])
        at = end
    return dict(zip(parts[::2], parts[1::2], strict=True))
