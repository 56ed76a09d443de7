"""Rows of an answer to QUERY, limited to the size that clients decode.

management.md 5.6. Proton's decoders keep at most 65,535 values of a message and omit the rest without an error, so
that tools would show some of the rows as if they were all. Tools request pages of 500 rows, and take a shorter page as
the last one. An answer that is too large is therefore first reduced in ways that lose no row, and it states what is
missing.
"""

from typing import Final

from sluice.router.amqp import codec
from sluice.supervisor.management import values
from sluice.supervisor.management.response import BAD_REQUEST, OK, Response, StatusError

MOST_VALUES: Final = 65_535
_AROUND: Final = 16  # values of an answer besides names and rows
_COMPOUND: Final = frozenset(b"\xc0\xd0\xc1\xd1\xe0\xf0")  # constructors of lists, maps and arrays


class QueryRows:
    """Rows of encoded cells. Owner: one query."""

    def __init__(self, names: list[str], *, paged: bool, listed: bool) -> None:
        """Create a sheet. paged: the request has a `count`. listed: the request names the columns."""
        self._names = names
        self._paged = paged
        self._listed = listed
        self._rows: list[list[bytes]] = []
        room = MOST_VALUES - _AROUND - len(names)
        # Number of values left: with whole rows; without their trailing nulls; and without lists and maps.
        self._whole = self._trimmed = self._slim = room
        self._cut = False

    def add(self, cells: list[bytes]) -> bool:
        """Add a row. Returns False if the row does not fit and no more can be added. Raises StatusError."""
        inner = sum(_inner(cell) for cell in cells if cell[0] in _COMPOUND)
        used = 1 + (len(cells) if self._listed else _used(cells))
        whole, trimmed, slim = self._whole - 1 - len(cells) - inner, self._trimmed - used - inner, self._slim - used
        if (trimmed if self._listed else slim) < 0:
            if self._paged:
                text = f"The rows have more than {MOST_VALUES} values: ask for {len(self._rows)} at a time"
                raise StatusError(BAD_REQUEST, text)
            self._cut = True
            return False
        self._whole, self._trimmed, self._slim = whole, trimmed, slim
        self._rows.append(cells)
        return True

    def response(self, offset: int) -> Response:
        """Return the answer. offset: of its first row."""
        rows = self._rows
        lacks = []
        if self._whole < 0:
            rows = [row[: _used(row)] for row in rows]
        if self._trimmed < 0:
            pairs = {pair for row in rows for pair in zip(self._names, row, strict=False)}
            lacks += sorted({name for name, cell in pairs if cell[0] in _COMPOUND})
            rows = [[values.NULL if cell[0] in _COMPOUND else cell for cell in row] for row in rows]
        if self._cut:
            lacks.append(f"rows from {max(offset, 0) + len(rows)} on")
        text = f"OK, without {', '.join(lacks)}: an answer has at most {MOST_VALUES} values" if lacks else None
        return Response(OK, table(self._names, [codec.encode_list(row) for row in rows]), text)


def table(names: list[str], rows: list[bytes]) -> bytes:
    """Return the body of an answer to QUERY. rows: encoded."""
    encoded: bytes = codec.encode_map(
        [values.string("attributeNames"), values.strings(names), values.string("results"), codec.encode_list(rows)]
    )
    return encoded


def _used(cells: list[bytes]) -> int:
    """Return the number of cells without trailing nulls."""
    used = len(cells)
    while used and cells[used - 1] == values.NULL:
        used -= 1
    return used


def _inner(cell: bytes) -> int:
    """Return the number of values in a list or map, including nested ones."""
    return count(codec.decode_one(cell)) - 1


def count(value: object) -> int:
    """Return the number of values in a value, including itself."""
    if isinstance(value, dict):
        return 1 + sum(count(key) + count(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return 1 + sum(map(count, value))
    return 1
