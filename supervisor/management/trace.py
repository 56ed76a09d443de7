"""Operation TRACE: sends the frames of a connection, or the spans of deliveries to an address, to the requester as they
pass. Not in Dispatch."""

from typing import Final

from sluice.supervisor.connections.watches import MAX_WATCHES, Lines, WatchesFullError
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.operations import register
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, INTERNAL_ERROR, NOT_FOUND, OK, Response, StatusError
from sluice.supervisor.management.trace_address import trace_address

SUBJECT: Final = "trace"
MAX_SECONDS: Final = 7 * 24 * 3600
MAX_DIGITS: Final = 20  # limit for the digits of an identity


def trace(request: Request, context: AgentContext) -> Response:
    """Start a trace, and return the identity of the connection.

    Messages with subject `trace` follow, whose body is a list of `[seconds since the epoch, text]`. An empty list is
    the last one: the connection has ended, or a limit in the request (`seconds`, `lines`) is reached. Raises
    StatusError.
    """
    if "address" in request.properties:
        return trace_address(request, context)
    identity = str(request.properties.get("connection"))
    short = identity[:MAX_DIGITS]
    number = int(identity) if short == identity and identity.isascii() and identity.isdigit() else None
    connection = context.core.connections.opened.get(number) if number is not None else None
    if connection is None:
        raise StatusError(NOT_FOUND, f"No connection with identity '{short}'")

    def send_lines(lines: Lines) -> bool:
        body = [[float(seconds), text] for seconds, text in lines]
        return context.answer(request, Response(OK, values.value(body), subject=SUBJECT))

    try:
        context.core.watches.add(connection, send_lines, _seconds(request), _lines(request))
    except WatchesFullError:
        text = f"{MAX_WATCHES} connections are being traced already"
        raise StatusError(INTERNAL_ERROR, text) from None
    return Response.of(OK, {"connection": str(number)})


def _seconds(request: Request) -> float | None:
    given = request.properties.get("seconds")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given <= MAX_SECONDS:
        raise StatusError(BAD_REQUEST, f"'seconds' must be a number above 0, at most {MAX_SECONDS}")
    return float(given)


def _lines(request: Request) -> int | None:
    given = request.number("lines")
    if given is not None and given < 1:
        raise StatusError(BAD_REQUEST, "'lines' must be above 0")
    return given


register("TRACE", trace)
