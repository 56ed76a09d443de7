"""Type router.connection.linkRoute: link routes that a client creates for its own connection.

Only that connection sees and removes them (brokers-and-edge.md 6; management.md 5.5 to 5.10).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from sluice.router.addressing.pattern import MAX_TOKENS, address_tokens
from sluice.router.config.entities import LinkRouteConfig
from sluice.router.config.roles import EDGE, INTER_EDGE, INTER_ROUTER
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.linkroutes.local import IN, OUT, LinkRoute
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.core_type import PREFIX, Column, CoreType, constant, given
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import (
    BAD_REQUEST,
    CREATED,
    FORBIDDEN,
    NO_CONTENT,
    NOT_FOUND,
    Response,
    StatusError,
)

MAX_TEXT: Final = 1_024  # limit in characters of a name or pattern


def _fits(pattern: str) -> bool:
    return len(pattern) <= MAX_TEXT and len(address_tokens(pattern)) <= MAX_TOKENS


def _refused(text: str) -> StatusError:
    return StatusError(BAD_REQUEST, text, values.NULL)


class ConnectionLinkRoutes(CoreType):
    """Link routes of the requesting connection, in order of creation."""

    name = PREFIX + "router.connection.linkRoute"
    columns: ClassVar[Mapping[str, Column]] = {
        "name": lambda route: values.string(route.config.name or None),
        "identity": lambda route: values.string(str(route.number)),
        "type": constant(values.string(name)),
        "pattern": lambda route: values.string(route.config.pattern),
        "direction": lambda route: values.string(route.config.direction),
        "containerId": lambda route: values.string(route.config.container_id),
    }

    def __init__(self, context: AgentContext) -> None:
        super().__init__(context)
        self._routes = context.core.link_routes

    def _connection(self, request: Request) -> RegisteredConnection | None:
        """Return the connection of a request, or None if the request came through another router or the connection is
        gone.

        An edge router creates link routes for its own connection at its interior router. Requests that reach an edge
        router over its uplink, or from another edge router, belong to a client there.
        """
        found = None if request.connection is None else self.context.core.connections.opened.get(request.connection)
        if found is None or found.origin.role in (INTER_ROUTER, INTER_EDGE):
            return None
        return None if found.origin.role == EDGE and found.initiator is not None else found

    def rows_for(self, request: Request) -> Iterable[LinkRoute]:
        """Return the link routes of the requesting connection."""
        connection = self._connection(request)
        return [] if connection is None else self._routes.own(connection)

    def _wanted_one(self, request: Request) -> LinkRoute:
        """Return the requested link route: by identity, otherwise the first with the name. Raises StatusError."""
        identity, name = given(request)
        matches: Callable[[Any], bool] = (
            (lambda route: str(route.number) == identity)
            if identity is not None
            else (lambda route: route.config.name == name)
        )
        found = next(filter(matches, self.rows_for(request)), None)
        if found is None:
            raise StatusError(NOT_FOUND)
        return found

    def read(self, request: Request) -> Response:
        """Return one link route."""
        return self.shown(self._wanted_one(request))

    def create(self, request: Request) -> Response:
        """Create a link route for the requesting connection."""
        if not self.context.core.policy.permits_link_routes(request.connection):
            raise StatusError(FORBIDDEN, body=values.NULL)
        connection = self._connection(request)
        if connection is None or connection.closing:
            raise _refused("Parent connection no longer exists")
        config = _config(request, connection)
        request.refuse_unknown(self.entity_type)
        core = self.context.core
        route = None
        if len(config.name) <= MAX_TEXT and _fits(config.pattern or ""):
            route = self._routes.create_for(connection, config, core.take_identity())
        if route is None:
            raise _refused("creation failed")
        return self.shown(route, CREATED)

    def delete(self, request: Request) -> Response:
        """Remove a link route. Attached links stay."""
        self._routes.delete_for(self._wanted_one(request))
        return Response(NO_CONTENT)


def _config(request: Request, connection: RegisteredConnection) -> LinkRouteConfig:
    """Return the link route that a request describes, with checks in the order of 1.19. Raises StatusError."""
    body = request.body()
    if not isinstance(body, dict):
        raise _refused("Body of request must be a map")
    if body.get("pattern") is None:
        raise _refused("Pattern field is required")
    if not isinstance(body["pattern"], str) or not body["pattern"]:
        raise _refused("Pattern must be a non-empty string type")
    pattern = body["pattern"].strip("./")
    if not pattern:
        raise _refused("Pattern invalid - no tokens")
    direction = body.get("direction")
    if direction is None:
        raise _refused("Missing value for 'direction'")
    if direction not in (IN, OUT):
        raise _refused("Invalid value for 'direction'")
    name = body.get("name") if isinstance(body.get("name"), str) else None
    return LinkRouteConfig(
        name=request.name or name or "",
        identity="",
        named=True,
        line=None,
        values={},
        prefix=None,
        pattern=str(pattern),
        direction=str(direction),
        container_id=connection.container,
        connection=None,
        add_prefix=None,
        delete_prefix=None,
    )
