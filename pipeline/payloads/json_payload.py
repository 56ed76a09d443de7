"""JSON payloads: values that fit a type, and the type that fits sampled values."""

import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, NoReturn

import pyarrow as pa

from sluice.pipeline.payloads.codec import PayloadError, ValueCount
from sluice.router import json_codec

#: Levels of lists and objects that an inferred type has; deeper values, and values of several types, are text.
DEPTH = 8
#: Names of the objects of one type; others are left out.
NAMES_MOST = 1000


class JsonCodec:
    """Decoder of JSON texts to a type. Names that the type lacks are ignored; names that a text lacks are null."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._fit = _fit_of(kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonCodec, (self.type,)

    def decode(self, body: bytes, count: ValueCount | None = None) -> Any:
        value = parse(body)
        return None if value is None else self._fit(value, "", count or ValueCount(len(body)))


def parse(body: bytes) -> Any:
    try:
        return json_codec.decode(body)
    except ValueError as error:
        raise PayloadError(f"not JSON: {error}") from None


#: Function that makes a value of an Arrow type from a value of JSON that is not null. Its other arguments are the place
#: of the value and the count of values. Raises PayloadError with the place of what does not fit.
Fit = Callable[[Any, str, ValueCount], Any]


def _fit_of(kind: pa.DataType) -> Fit:
    """Return the function for an Arrow type."""
    if pa.types.is_struct(kind):
        return _struct_fit(kind)
    if pa.types.is_list(kind):
        return _list_fit(kind)
    if pa.types.is_map(kind):
        return _map_fit(kind)
    if pa.types.is_boolean(kind):
        return lambda value, at, count: value if isinstance(value, bool) else _refuse(value, kind, at)
    if pa.types.is_integer(kind):
        return _integer_fit(kind)
    if pa.types.is_string(kind):
        return lambda value, at, count: value if isinstance(value, str) else _text(value, at)
    return lambda value, at, count: _fit_other(value, kind, at)


def _struct_fit(kind: pa.DataType) -> Fit:
    fields = [(each.name, _fit_of(each.type)) for each in kind]

    def fit(value: Any, at: str, count: ValueCount) -> Any:
        if not isinstance(value, dict):
            _refuse(value, kind, at)
        count.add(len(fields))
        return {
            name: None if (found := value.get(name)) is None else fit_field(found, f"{at}.{name}", count)
            for name, fit_field in fields
        }

    return fit


def _list_fit(kind: pa.DataType) -> Fit:
    fit_item = _fit_of(kind.value_type)

    def fit(value: Any, at: str, count: ValueCount) -> Any:
        if not isinstance(value, list):
            _refuse(value, kind, at)
        count.add(len(value))
        return [None if each is None else fit_item(each, f"{at}[{n}]", count) for n, each in enumerate(value)]

    return fit


def _map_fit(kind: pa.DataType) -> Fit:
    fit_item = _fit_of(kind.item_type)

    def fit(value: Any, at: str, count: ValueCount) -> Any:
        if not isinstance(value, dict):
            _refuse(value, kind, at)
        count.add(2 * len(value))
        return [(key, None if each is None else fit_item(each, f"{at}.{key}", count)) for key, each in value.items()]

    return fit


def _integer_fit(kind: pa.DataType) -> Fit:
    most = 1 << kind.bit_width - 1

    def fit(value: Any, at: str, count: ValueCount) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            _refuse(value, kind, at)
        if not -most <= value < most:
            raise PayloadError(f"{at or 'the value'}: {value} is out of range of {kind}")
        return value

    return fit


def _fit_other(value: Any, kind: pa.DataType, at: str) -> Any:
    if pa.types.is_floating(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
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
    return _refuse(value, kind, at)


def _refuse(value: Any, kind: pa.DataType, at: str) -> NoReturn:
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
