"""Context of a display: router, options, output."""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from sluice.router.cli.client import ManagementClient, Properties, Row
from sluice.router.cli.table import Cells, Display


class StatContext(Struct):
    """Router to show, options and output. `at` is its management node; None: that of the command line."""

    client: ManagementClient
    display: Display
    verbose: bool = False
    limit: int | None = None
    at: str | None = None

    def rows(self, short_type: str, attributes: list[str] | None = None, *, limited: bool = False) -> list[Row]:
        """Return the rows of a type as maps. `limited`: the option --limit applies."""
        return self.client.rows(short_type, attributes, self.limit if limited else None, self.at)

    def router(self) -> Row:
        """Return the row of the router itself."""
        return self.rows("router")[0]

    def node_call(self, operation: str, properties: Properties | None = None) -> Any:
        """Call an operation of the router's management node."""
        return self.client.node_call(operation, properties, self.at)

    def heading(self) -> None:
        """Print the heading of the output: time, router id, empty line. The router has to answer first."""
        router = self.router()["id"]
        self.time()
        self.display.line(router)
        self.display.line()

    def time(self) -> None:
        """Print the line with the time."""
        now = datetime.now(UTC).replace(tzinfo=None)
        self.display.line(f"{now.isoformat(sep=' ', timespec='microseconds')} UTC")

    def table(self, title: str, heads: list[str], rows: list[Cells]) -> None:
        """Print a table."""
        self.display.table(title, heads, rows)


def sorted_by(heads: list[str], rows: list[Cells], column: str) -> list[Cells]:
    """Return the rows sorted by the text of one column."""
    at = heads.index(column)
    return sorted(rows, key=lambda row: str(row[at]))
