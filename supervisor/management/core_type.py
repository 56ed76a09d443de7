"""Base class of types with columns: rows from live state, each column of a fixed AMQP type.

management.md 5.5 to 5.10 and the column lists of schema.json.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, ClassVar, Final

from sluice.router.amqp import codec
from sluice.router.config.schema import SCHEMA
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.query_rows import QueryRows
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import (
    BAD_REQUEST,
    FORBIDDEN,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    OK,
    Outcome,
    Response,
    StatusError,
    Steps,
)

# Function from a row to the encoded value of a column.
Column = Callable[[Any], bytes]

PREFIX = "org.apache.qpid.dispatch."
MAX_NAMES = 64  # at least this many attribute names mean all columns, as in 1.19
ROWS_A_STEP = 20  # rows between which other events are handled


class CoreType:
    """Entity type answered from live state. Owner: the agent."""

    name: ClassVar[str]  # long name
    columns: ClassVar[Mapping[str, Column]]  # default columns, in this order
    more: ClassVar[Mapping[str, Column]] = {}  # columns returned only when requested by name

    def __init__(self, context: AgentContext) -> None:
        self.context = context
        found = SCHEMA.find(self.name)
        assert found is not None
        self.entity_type: Final = found

    # To be overridden by subclasses

    def rows(self) -> Iterable[Any]:
        """Return all objects in order of creation. The result must not change while it is iterated."""
        raise NotImplementedError

    def rows_for(self, request: Request) -> Iterable[Any]:
        """Return the objects that the requester may see."""
        return self.rows()

    def row(self, item: Any) -> Any:
        """Return the source of an object's columns, or None if the object is gone."""
        return item

    def find(self, identity: str | None, name: str | None) -> Any:
        """Return the object with this identity, otherwise with this name. Raises StatusError."""
        raise NotImplementedError

    def create(self, request: Request) -> Outcome:
        """Answer CREATE. Raises StatusError."""
        raise StatusError(NOT_IMPLEMENTED, body=values.NULL)

    def update(self, request: Request) -> Outcome:
        """Answer UPDATE, or return None if the answer follows. Raises StatusError."""
        raise StatusError(NOT_IMPLEMENTED)

    def delete(self, request: Request) -> Outcome:
        """Answer DELETE. Raises StatusError."""
        raise StatusError(NOT_IMPLEMENTED)

    def read(self, request: Request) -> Response:
        """Answer READ. Raises StatusError."""
        return self.shown(self.find(request.identity, request.name))

    # QUERY

    def query(self, request: Request) -> Steps:
        """Answer QUERY, some rows at a time. Raises StatusError."""
        names, columns = self._wanted(request)
        offset, count = request.number("offset") or 0, request.number("count")
        items: list[Any] = []
        if offset >= 0:
            stop = offset + count if count is not None and count > 0 else None
            items = list(islice(self.rows_for(request), *_within(offset, stop)))
        sheet = QueryRows(names, paged=bool(count and count > 0), listed=names != list(self.columns))
        return self._steps(sheet, columns, items, offset)

    def _steps(self, sheet: QueryRows, columns: list[Column], items: list[Any], offset: int) -> Steps:
        for number, item in enumerate(items, 1):
            row = self.row(item)
            if row is not None and not sheet.add([column(row) for column in columns]):
                break
            if number % ROWS_A_STEP == 0:
                yield None
        return sheet.response(offset)

    def _wanted(self, request: Request) -> tuple[list[str], list[Column]]:
        """Return names and columns of a request: all, unless it lists some. Raises StatusError for an unknown name.

        A schema attribute without a column is null in each row.
        """
        known = {**self.entity_type.attributes, **self.columns, **self.more}
        names = request.attribute_names(known, self.entity_type)
        if not names or len(names) >= MAX_NAMES:
            return list(self.columns), list(self.columns.values())
        return names, [self.columns.get(name) or self.more.get(name, _null) for name in names]

    def shown(self, item: Any, status: int = OK) -> Response:
        """Return all columns of an object, for READ, CREATE and UPDATE. Raises StatusError if the object is gone."""
        row = self.row(item)
        if row is None:
            raise StatusError(NOT_FOUND)
        pairs = []
        for name, column in self.columns.items():
            pairs += [values.string(name), column(row)]
        return Response(status, codec.encode_map(pairs))


def _within(offset: int, stop: int | None) -> tuple[int, int | None]:
    """Return bounds for islice. No table has more rows than the limit here."""
    limit = 2**62
    return min(offset, limit), None if stop is None else min(stop, limit)


def _null(row: Any) -> bytes:
    return values.NULL


def constant(encoded: bytes) -> Column:
    """Return a column with the same value in all rows."""
    return lambda row: encoded


def given(request: Request, what: str = "name") -> tuple[str | None, str | None]:
    """Return identity and name of a request, at least one of them. Raises StatusError."""
    if request.identity is None and request.name is None:
        raise StatusError(BAD_REQUEST, f"No {what} or identity provided")
    return request.identity, request.name


def forbidden(request: Request) -> Response:
    """Refuse an operation that no client may perform."""
    raise StatusError(FORBIDDEN)
