"""JSON payloads: values that fit a type, and the type that fits sampled values."""

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa

from sluice.pipeline.payloads.codec import PayloadError
from sluice.router import json_codec

#: Levels of lists and objects that an inferred type has; deeper values, and values of several types, are text.
DEPTH = 8
#: Names of the objects of one type; others are left out.
NAMES_MOST = 1000


class JsonCodec:
    """Decoder of JSON texts to a type. Names that the type lacks are ignored; names that a text lacks are null."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind

    def decode(self, body: bytes) -> Any:
        return fit(parse(body), self.type)


def parse(body: bytes) -> Any:
    try:
        return json_codec.decode(body)
    except ValueError as error:
        raise PayloadError(f"not JSON: {error}") from None


def fit(value: Any, kind: pa.DataType, at: str = "") -> Any:
    """Return a value of JSON as a value of an Arrow type. Raises PayloadError with the place of what does not fit."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {each.name: fit(value.get(each.name), each.type, f"{at}.{each.name}") for each in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [fit(each, kind.value_type, f"{at}[{number}]") for number, each in enumerate(value)]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(key, fit(each, kind.item_type, f"{at}.{key}")) for key, each in value.items()]
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    if pa.types.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1:
            raise PayloadError(f"{at or 'the value'}: {value} is out of range of {kind}")
        return value
    if pa.types.is_floating(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else _text(value, at)
    try:
        if pa.types.is_timestamp(kind) and isinstance(value, str):
            found = datetime.fromisoformat(value)
            if (found.tzinfo is None) != (kind.tz is None):
                raise ValueError
            # A time in UTC outside of the years 1 to 9999 would be an error in each reader of the table.
            return found if found.tzinfo is None else found.astimezone(UTC)
        if pa.types.is_date(kind) and isinstance(value, str):
            return date.fromisoformat(value)
        if pa.types.is_decimal(kind) and isinstance(value, str | int | float) and not isinstance(value, bool):
            return _decimal(Decimal(str(value)), kind)
    except (ValueError, OverflowError, InvalidOperation, Inexact):
        pass
    raise PayloadError(f"{at or 'the value'}: {_shown(value)} is not {kind}")


def _decimal(value: Decimal, kind: pa.DataType) -> Decimal:
    """Return a number with the scale of an Arrow type. Raises InvalidOperation, Inexact if it does not fit.

    Arrow itself crashes at exponents such as that of 1e-9999999 (pyarrow 26).
    """
    context = Context(prec=kind.precision, traps=[InvalidOperation, Inexact])
    return value.quantize(Decimal((0, (1,), -kind.scale)), context=context)


def _shown(value: Any) -> str:
    try:
        return repr(str(value)[:40])
    except RecursionError:
        return "a value with too many levels"


def _text(value: Any, at: str) -> str:
    try:
        return json_codec.encode(value).decode()
    except TypeError as error:  # JSON can be decoded to more levels than can be encoded
        raise PayloadError(f"{at or 'the value'} cannot be a text: {error}") from None


def infer(values: Iterable[Any]) -> pa.DataType:
    """Return a type that fits all these values of JSON. Raises ValueError if there are none but null."""
    found = None
    for value in values:
        found = _join(found, _type_of(value, DEPTH))
    if found is None:
        raise ValueError("there are no JSON payloads to infer a schema from")
    return _closed(found)


def _type_of(value: Any, depth: int) -> pa.DataType | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(1 << 63) <= value < 1 << 63 else pa.float64()
    if isinstance(value, float):
        return pa.float64() if math.isfinite(value) else pa.string()
    if isinstance(value, dict) and value and depth:
        fields = [(name, _type_of(each, depth - 1)) for name, each in list(value.items())[:NAMES_MOST]]
        return pa.struct([pa.field(name, kind or pa.null()) for name, kind in fields])
    if isinstance(value, list) and depth:
        kind = None
        for each in value:
            kind = _join(kind, _type_of(each, depth - 1))
        return pa.list_(kind or pa.null())
    return pa.string()


def _join(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """Return a type for the values of both."""
    if one is None or other is None or one == other:
        return one if other is None else other
    if pa.types.is_null(one) or pa.types.is_null(other):
        return other if pa.types.is_null(one) else one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {each.name: each.type for each in one}
        for each in other:
            if each.name in fields or len(fields) < NAMES_MOST:
                fields[each.name] = _join(fields.get(each.name), each.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_join(one.value_type, other.value_type))
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()


def _closed(kind: pa.DataType) -> pa.DataType:
    """Replace types of values that were always null by text, and objects whose names clash.

    Spark takes names that differ only in case for one column, and writes no table with two of them.
    """
    if pa.types.is_struct(kind):
        if len({each.name.lower() for each in kind}) < kind.num_fields:
            return pa.string()
        return pa.struct([pa.field(each.name, _closed(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_closed(kind.value_type))
    return pa.string() if pa.types.is_null(kind) else kind
