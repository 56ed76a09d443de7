"""The context of a display: router, options, output."""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from router.cli.client import Client, Properties, Row
from router.cli.table import Cells, Display


class Context(Struct):
    """One router and how to show it. `at`: the management node, None for the one that the command line names."""

    client: Client
    display: Display
    verbose: bool = False
    limit: int | None = None
    at: str | None = None

    def rows(self, short_type: str, attributes: list[str] | None = None, *, limited: bool = False) -> list[Row]:
        """Rows of a type, as maps; `limited`: --limit applies."""
        return self.client.rows(short_type, attributes, self.limit if limited else None, self.at)

    def router(self) -> Row:
        """The row of the router itself."""
        return self.rows("router")[0]

    def node_call(self, operation: str, properties: Properties | None = None) -> Any:
        """Call an operation of the management node."""
        return self.client.node_call(operation, properties, self.at)

    def heading(self) -> None:
        """Time, router, empty line: above the output, once the router has answered."""
        router = self.router()["id"]
        self.time()
        self.display.line(router)
        self.display.line()

    def time(self) -> None:
        """The line with the time."""
        now = datetime.now(UTC).replace(tzinfo=None)
        self.display.line(f"{now.isoformat(sep=' ', timespec='microseconds')} UTC")

    def table(self, title: str, heads: list[str], rows: list[Cells]) -> None:
        """Print a table."""
        self.display.table(title, heads, rows)


def sorted_by(heads: list[str], rows: list[Cells], column: str) -> list[Cells]:
    """The rows in the order of one column's text."""
    at = heads.index(column)
    return sorted(rows, key=lambda row: str(row[at]))
