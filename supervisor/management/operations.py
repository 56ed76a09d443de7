"""Operations of the management entity by name: those of 1.19 and additional ones (management.md 5.11)."""

import functools
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from sluice.router import json_codec
from sluice.router.config.schema import SCHEMA, EntityType
from sluice.router.policy.management import OPERATE
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.explain_path import explain_path
from sluice.supervisor.management.explain_policy import explain_policy
from sluice.supervisor.management.history_view import get_history
from sluice.supervisor.management.nodes import management_address
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, INTERNAL_ERROR, OK, Outcome, Response, StatusError
from sluice.supervisor.management.workers_view import get_workers

if TYPE_CHECKING:
    import cProfile

Operation = Callable[[Request, AgentContext], Outcome]

# By name in capitals. The case in requests is ignored.
OPERATIONS: Final[dict[str, Operation]] = {}
_PROFILE_LINES: Final = 40
_VERBOSE: Final = ("trace", "debug")  # levels of log lines with frames or requests


def register(name: str, function: Operation) -> None:
    """Register an operation. `function` returns its answer and may raise StatusError."""
    OPERATIONS[name.upper()] = function


def _types(request: Request) -> Iterator[EntityType]:
    """Yield the type that `entityType` names, or all types. Raises StatusError."""
    kind = _asked(request)
    yield from SCHEMA.listed if kind is None else (kind,)


def _asked(request: Request) -> EntityType | None:
    given = request.properties.get("entityType")
    found = SCHEMA.find(given) if isinstance(given, str) else None
    if given not in (None, "") and found is None:
        raise StatusError(BAD_REQUEST, f"No such entity type '{given}'")
    return found


def get_types(request: Request, context: AgentContext) -> Response:
    """Return types with their base types, nearest first."""
    kind = _asked(request)
    found = SCHEMA.listed if kind is None else SCHEMA.derived(kind)
    return Response.of(OK, {each.long_name: [base.long_name for base in each.bases] for each in found})


def get_attributes(request: Request, context: AgentContext) -> Response:
    """Return types with the names of their attributes."""
    return Response.of(OK, {each.long_name: list(each.attributes) for each in _types(request)})


def get_operations(request: Request, context: AgentContext) -> Response:
    """Return types with the names of their operations."""
    if (kind := _asked(request)) is not None:
        return Response.of(OK, {kind.long_name: list(kind.operations)})
    return Response.of(OK, {each.long_name: list(each.listed_operations) for each in SCHEMA.listed})


def get_annotations(request: Request, context: AgentContext) -> Response:
    """Return an empty map, because there are no annotations."""
    return Response()


def get_management_nodes(request: Request, context: AgentContext) -> Response:
    """Return the management addresses of all routers of the network, this one's first; none without a network."""
    routers = context.core.routers
    own = context.changes.configuration.router.id
    found = () if routers is None else (own, *routers.ids())
    return Response.of(OK, [f"amqp:/{management_address(router)}" for router in found])


@functools.cache
def _schema() -> bytes:
    return values.value(SCHEMA.dump())


def get_schema(request: Request, context: AgentContext) -> Response:
    """Return the schema as a map."""
    return Response(OK, _schema())


def get_json_schema(request: Request, context: AgentContext) -> Response:
    """Return the schema as JSON text, on one line unless `indent` is given."""
    return Response.of(OK, json_codec.dispatch_text(SCHEMA.dump(), _number(request, "indent")))


def _number(request: Request, key: str) -> int | None:
    """Return a number that may be absent. Raises StatusError (500, as in 1.19)."""
    given = request.properties.get(key)
    try:
        number = request.number(key)
    except StatusError as error:
        text = f"ValueError: invalid literal for int() with base 10: '{given}'"
        raise StatusError(INTERNAL_ERROR, text) from error
    if number is None and given is not None:
        raise StatusError(INTERNAL_ERROR, f"TypeError: {key} must be a number, not {type(given).__name__}")
    if key == "indent" and number is not None and not -1 <= number <= 100:
        raise StatusError(INTERNAL_ERROR, f"ValueError: indent {number} is not between -1 and 100")
    return number


def get_log(request: Request, context: AgentContext) -> Response:
    """Return the last lines of the log, oldest first."""
    limit = _number(request, "limit")
    entries = context.log.recent(limit if limit is not None and limit > 0 else None)
    if not request.rights.includes(OPERATE):
        # frames and requests may contain payload
        entries = [entry for entry in entries if entry.level not in _VERBOSE]
    return Response.of(OK, [entry.as_list() for entry in entries])


class _Profiler:
    """Running profiler of the supervisor."""

    running: "cProfile.Profile | None" = None


def profile(request: Request, context: AgentContext) -> Response:
    """Start the profiler of the supervisor, or stop it and return its report."""
    import cProfile  # here: a start need not read them
    import pstats

    if request.properties.get("start") is not None:
        if _Profiler.running is None:
            _Profiler.running = cProfile.Profile()
            _Profiler.running.enable()
        return Response()
    if _Profiler.running is None:
        raise StatusError(BAD_REQUEST, "Profiler not started")
    if request.properties.get("stop") is None:
        raise StatusError(BAD_REQUEST, f"Bad profile request {request}")
    taken, _Profiler.running = _Profiler.running, None
    taken.disable()
    report = io.StringIO()
    pstats.Stats(taken, stream=report).sort_stats("cumulative").print_stats(_PROFILE_LINES)
    return Response.of(OK, report.getvalue())


register("GET-TYPES", get_types)
register("GET-ATTRIBUTES", get_attributes)
register("GET-OPERATIONS", get_operations)
register("GET-ANNOTATIONS", get_annotations)
register("GET-MGMT-NODES", get_management_nodes)
register("GET-SCHEMA", get_schema)
register("GET-JSON-SCHEMA", get_json_schema)
register("GET-SCHEMA-JSON", get_json_schema)
register("GET-LOG", get_log)
register("PROFILE", profile)
register("GET-WORKERS", get_workers)
register("GET-HISTORY", get_history)
register("EXPLAIN", explain_path)
register("EXPLAIN-POLICY", explain_policy)
