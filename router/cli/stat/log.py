"""`qdstat --log`: show the latest lines of the router's log."""

import time
from typing import Any

from sluice.router.cli.stat.context import StatContext
from sluice.router.escapes import CONTINUED


def show(context: StatContext) -> None:
    """Show the log entries that the router keeps, with local times."""
    limit: dict[str, Any] = {} if context.limit is None else {"limit": context.limit}
    for module, level, text, _, _, seconds in context.node_call("GET-LOG", limit):
        first, *further = text.split(CONTINUED)  # further lines: traceback of an internal error
        context.display.line(f"{time.ctime(seconds)} {module} ({level}) {first}")
        for line in further:
            context.display.line(CONTINUED.removeprefix("\n") + line)
