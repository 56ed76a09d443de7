"""Codecs of payloads, and columns that they make of bodies."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

ERROR_MOST = 200  # characters of an error in a row


class PayloadError(ValueError):
    """Raised for a body that is not of the expected form."""


class PayloadCodec(Protocol):
    """Decoder of one format and schema. Instances are pickled."""

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the values."""

    def decode(self, body: bytes) -> Any:
        """Return the value of a body. Raises PayloadError."""


@runtime_checkable
class PreparedCodec(Protocol):
    """Codec that looks at the bodies of a batch before it decodes them."""

    def prepare(self, bodies: pa.Array) -> None: ...


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
) -> tuple[pa.Array, pa.Array]:
    """Return the columns of payloads and of errors.

    wanted: False for a message that is not to be decoded: neither payload nor error. found: the body_kind of each.
    """
    values: list[Any] = []
    errors: list[str | None] = []
    for decoded, body, kind in zip(wanted, bodies, found.to_pylist(), strict=True):
        value, error = None, None
        if decoded:
            try:
                if kind not in kinds:
                    raise PayloadError(f"body_kind is {kind}; expected {', '.join(kinds)}")
                value = codec.decode(body.as_buffer().to_pybytes())
            except PayloadError as caught:
                error = str(caught)[:ERROR_MOST]
        values.append(value)
        errors.append(error)
    return _payloads(values, errors, codec.type), pa.array(errors, pa.string())


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
