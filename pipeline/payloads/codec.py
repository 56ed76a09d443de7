"""Codecs of payloads, and columns that they make of bodies."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

ERROR_MOST = 200  # characters of an error in a row
#: Values (of fields, items and entries) that a body may become: some, and more for each octet. Few octets of JSON or
#: Protobuf, such as an empty object, become as many values as the type has fields.
VALUES_BASE, VALUES_PER_OCTET = 10_000, 64
#: Values that a body may become, beside one for each octet.
VALUES_MOST = 4_000_000
#: Fields of a type; also items, entries and references to other types.
FIELDS_MOST = 10_000
#: Values of which columns are made at a time.
VALUES_OF_SLICE = 1_000_000


class PayloadError(ValueError):
    """Raised for a body that is not of the expected form."""


class ValueCount:
    """Count of the values that a body becomes, which its size bounds. octets: of the body."""

    __slots__ = ("_most", "made")

    def __init__(self, octets: int) -> None:
        self.made = 0
        self._most = VALUES_BASE + min(VALUES_PER_OCTET * octets, VALUES_MOST + octets)

    def add(self, number: int) -> None:
        """Count values that are about to be made. Raises PayloadError if there are too many."""
        self.made += number
        if self.made > self._most:
            raise PayloadError(f"the body would become more than {self._most} values")


class FieldCount:
    """Count of the fields of a type that is made from a schema.

    A schema of some hundred octets can have types that contain the next one twice each, and so any number of fields.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made = 0

    def add(self) -> None:
        """Count a field. Raises ValueError if there are too many."""
        self._made += 1
        if self._made > FIELDS_MOST:
            raise ValueError(f"the type has more than {FIELDS_MOST} fields, with those of types that it contains")


class PayloadCodec(Protocol):
    """Decoder of one format and schema. Instances are pickled."""

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the values."""

    def decode(self, body: bytes, count: ValueCount | None = None) -> Any:
        """Return the value of a body, and count its values. Raises PayloadError."""


@runtime_checkable
class PreparedCodec(Protocol):
    """Codec that looks at the bodies of a batch before it decodes them."""

    def prepare(self, bodies: pa.Array) -> None: ...

    def take_retries(self) -> tuple[int, str | None]:
        """Return the number of requests that were repeated since the last call, and the last reason for one."""
        ...


#: Kinds of bodies (column body_kind) whose octets are those of the payload. JSON may also be any AMQP value.
KINDS: Mapping[str, Sequence[str]] = {
    "json": ("data", "string", "binary", "json"),
    "avro": ("data", "binary"),
    "protobuf": ("data", "binary"),
}


#: Kinds of bodies with the framing of a schema registry (registered.py).
FRAMED = ("data", "binary")


def payload_columns(
    codec: PayloadCodec, kinds: Sequence[str], wanted: Iterable[bool], bodies: pa.Array, found: pa.Array
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the columns of payloads and of errors, a slice of the rows at a time.

    wanted: False for a message that is not to be decoded: neither payload nor error. found: the body_kind of each.
    """
    values: list[Any] = []
    errors: list[str | None] = []
    made = 0
    for decoded, body, kind in zip(wanted, bodies, found.to_pylist(), strict=True):
        value, error = None, None
        if decoded:
            try:
                if kind not in kinds:
                    raise PayloadError(f"body_kind is {kind}; expected {', '.join(kinds)}")
                octets = body.as_buffer().to_pybytes()
                count = ValueCount(len(octets))
                value = codec.decode(octets, count)
                made += count.made
            except PayloadError as caught:
                error = str(caught)[:ERROR_MOST]
        values.append(value)
        errors.append(error)
        if made >= VALUES_OF_SLICE:
            yield _payloads(values, errors, codec.type), pa.array(errors, pa.string())
            values, errors, made = [], [], 0
    if values:
        yield _payloads(values, errors, codec.type), pa.array(errors, pa.string())


def _payloads(values: list[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """Return values as a column; a value that does not fit becomes an error."""
    refused = (pa.ArrowException, ValueError, TypeError, OverflowError)
    try:
        return pa.array(values, kind)
    except refused:
        pass
    for at, value in enumerate(values):
        try:
            pa.array([value], kind)
        except refused as caught:
            values[at], errors[at] = None, str(caught).splitlines()[0][:ERROR_MOST]
    return pa.array(values, kind)
