"""Management operation DRAIN, which `sluice drain` uses."""

from collections.abc import Callable
from typing import Final

from sluice.supervisor.drain.drain import DrainBegun
from sluice.supervisor.management import operations
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, OK, Response, StatusError

MOST_SECONDS: Final = 86400
MOST_PER_SECOND: Final = 1_000_000


def register_drain(begin: Callable[[int | None, int | None, str], DrainBegun]) -> None:
    """Register the operation DRAIN with properties `seconds` and `perSecond`. begin: begins the drain."""

    def drain(request: Request, context: AgentContext) -> Response:
        seconds = _positive(request, "seconds", MOST_SECONDS)
        per_second = _positive(request, "perSecond", MOST_PER_SECOND)
        begun = begin(seconds, per_second, f"management [C{request.connection}]")
        body = {
            "router": context.changes.configuration.router.id,
            "connections": begun.connections,
            "seconds": int(begun.seconds),
            "perSecond": begun.per_second,
        }
        return Response.of(OK, body)

    operations.register("DRAIN", drain)


def _positive(request: Request, key: str, most: int) -> int | None:
    """Return a number that may be absent. Raises StatusError."""
    number = request.number(key)
    if number is not None and not 0 < number <= most:
        raise StatusError(BAD_REQUEST, f"{key} must be from 1 to {most}")
    return number
