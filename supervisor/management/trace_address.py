"""Operation TRACE with an address: sends the spans of deliveries to the requester as they end. Not in Dispatch."""

from typing import Final

from sluice.router.addressing.pattern import MAX_TOKENS, PatternError, address_tokens
from sluice.router.tracing.spans import DeliverySpan
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, INTERNAL_ERROR, OK, Response, StatusError
from sluice.supervisor.tracing.delivery_traces import MAX_REQUESTERS, RequestersFullError

SUBJECT: Final = "trace"
DEFAULT_SECONDS: Final = 60
MAX_SECONDS: Final = 3600


def trace_address(request: Request, context: AgentContext) -> Response:
    """Start to sample the deliveries to an address or pattern, and return the pattern and the router's id.

    Messages with subject `trace` follow, whose body is a list of spans as maps. An empty list is the last one: a limit
    in the request (`seconds`, `lines`) is reached. Raises StatusError.
    """
    pattern = request.properties.get("address")
    if not isinstance(pattern, str) or len(address_tokens(pattern)) > MAX_TOKENS:
        raise StatusError(BAD_REQUEST, f"'address' must be a string with at most {MAX_TOKENS} tokens")

    router = context.changes.configuration.router.id

    def send_spans(spans: list[DeliverySpan]) -> bool:
        body = [{"router": router, **span.as_map()} for span in spans]
        return context.answer(request, Response(OK, values.value(body), subject=SUBJECT))

    seconds = _number(request, "seconds", DEFAULT_SECONDS, MAX_SECONDS)
    ratio = _number(request, "ratio", 1.0, 1.0)
    spans = request.number("lines")
    if spans is not None and spans < 1:
        raise StatusError(BAD_REQUEST, "'lines' must be above 0")
    try:
        context.core.delivery_traces.add(pattern, ratio, seconds, spans, send_spans)
    except PatternError as error:
        raise StatusError(BAD_REQUEST, f"'address': {error}") from error
    except RequestersFullError:
        text = f"{MAX_REQUESTERS} requests to trace addresses are being served already"
        raise StatusError(INTERNAL_ERROR, text) from None
    return Response.of(OK, {"address": pattern, "router": router})


def _number(request: Request, name: str, default: float, most: float) -> float:
    given = request.properties.get(name, default)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given <= most:
        raise StatusError(BAD_REQUEST, f"'{name}' must be a number above 0, at most {most:g}")
    return float(given)
