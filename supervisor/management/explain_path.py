"""EXPLAIN with property `path`: answers of all routers on the paths of an address, asked over the network.

Only the router that the client is connected to follows a path, because it alone knows which agents the client may ask.
It asks each of them for an EXPLAIN without `path`, with the rights of the client. Property `first`: management address
of the router where the paths begin; absent: this router. The body is a map:

`routers` (the answer of each, the first router's first; of a router without an answer `router` and `error`), `ways`
(lists of router ids: each a path from the first router to one that has consumers or may have them, or to the router
where the path breaks off).
"""

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct, field

from sluice.router.addressing.address import EDGE_MODE, EVERY, normalise
from sluice.router.amqp import codec
from sluice.router.amqp.errors import RemoteError
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.policy.management import MANAGEMENT, address_for
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.explain import explain
from sluice.supervisor.management.nodes import management_address
from sluice.supervisor.management.query_rows import MOST_VALUES, count
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import (
    BAD_REQUEST,
    FORBIDDEN,
    INTERNAL_ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    OK,
    TEXTS,
    Response,
    StatusError,
    Steps,
)

FOLLOWED: Final = 10  # interior routers with consumers whose paths are followed; likewise edge routers
MOST_ROUTERS: Final = 100  # routers asked for one request
ANSWER_SECONDS: Final = 2.0  # time for one answer
PATH_SECONDS: Final = 4.0  # time for all answers, less than the tools wait
MOST_OCTETS: Final = 2 << 20  # octets of all answers, those included that are not kept
MOST_REQUEST_OCTETS: Final = 1 << 14  # of the client's request, which is repeated for each router
MOST_ID: Final = 256  # characters of a router id
_ANSWER_VALUES: Final = MOST_VALUES * 3 // 4  # values of all answers; the rest is for the paths
_SHOWN: Final = 200  # characters of another router's text in an error
_TOO_OLD: Final = "Only Sluice routers explain addresses: this one is no Sluice, or too old"


class _Remote(Struct, rename="camel"):
    router: str
    next_hop: str | None


class _Record(Struct):
    remotes: list[_Remote]


class _Further(Struct):
    router: str
    edge: bool


class _Explained(Struct):
    """Fields of an answer to EXPLAIN that lead to other routers, and those that each display needs."""

    address: str
    router: str
    kind: str = field(name="class")
    reachable: bool | None
    findings: list[str]
    setting: dict[str, Any] | None
    records: list[_Record]
    further: list[_Further] = []  # absent in answers of older versions


class Hops(NamedTuple):
    """Routers that an answer leads to."""

    next_hops: Mapping[str, str | None] = {}  # by id of each remote router with consumers
    further: Sequence[tuple[str, bool]] = ()  # behind edge connections: id, and whether it is an edge router


def find_paths(first: str, answers: Mapping[str, Hops]) -> tuple[list[list[str]], dict[str, bool]]:
    """Return the paths from a router as far as they are known: over next hops, uplinks and to edge routers.

    The second result are the routers on them without an answer: id, and whether it is an edge router.
    """
    asked = {first: False}

    def ask(router: str, edge: bool = False) -> Hops:
        asked.setdefault(router, edge)
        return answers.get(router, Hops())

    def interior_paths(begin: list[str]) -> list[list[str]]:
        found = []
        for goal in list(ask(begin[-1]).next_hops)[:FOLLOWED]:
            path = list(begin)
            while path[-1] != goal:
                following = ask(path[-1]).next_hops.get(goal)
                if following is None or following in path:
                    break
                path.append(following)
            ask(path[-1])
            found.append(path)
        return found

    ways = interior_paths([first])
    for router, edge in ask(first).further[:FOLLOWED]:
        ask(router, edge)
        ways.append([first, router])
        if not edge:
            ways += interior_paths([first, router])
    for way in list(ways):
        for router, edge in ask(way[-1]).further[:FOLLOWED]:
            if edge and router not in asked:
                ask(router, True)
                ways.append([*way, router])
    return ways, {router: edge for router, edge in asked.items() if router not in answers}


def explain_path(request: Request, context: AgentContext) -> Steps:
    """Explain an address at this router or, with property `path`, along its paths. Raises StatusError."""
    if request.properties.get("path") is not True:
        return (yield from explain(request, context))
    with context.remote_agents.follow_path(request.connection):
        return (yield from _Path(request, context).follow())


class _Path:
    """Routers on the paths of one address, while they are asked. Owner: its request."""

    def __init__(self, request: Request, context: AgentContext) -> None:
        router = context.changes.configuration.router
        self._request, self._context = request, context
        self._own = router.id
        self._reply_to = management_address(router.id, edge=router.mode == EDGE_MODE)
        self._until = time.monotonic() + PATH_SECONDS
        self._answers: dict[str, Hops] = {}
        self._encoded: list[bytes] = []  # answers in the order of arrival
        self._asked = 0  # routers
        self._octets, self._values = MOST_OCTETS, _ANSWER_VALUES  # left for further answers

    def follow(self) -> Steps:
        """Ask router after router; all that are known at a time at once. Raises the error of the first router."""
        if len(self._request.octets) > MOST_REQUEST_OCTETS:
            raise StatusError(BAD_REQUEST, f"The request has over {MOST_REQUEST_OCTETS} octets")
        given = self._request.text("first")
        first, edge = (self._own, False) if given is None else _router_at(given)
        error = (yield from self._ask({first: edge})).get(first)
        if error is not None:
            raise error
        while True:
            ways, wanted = find_paths(first, self._answers)
            if not wanted:
                break
            for router, error in (yield from self._ask(wanted)).items():
                self._answers[router] = Hops()
                text = _TOO_OLD if error.status == NOT_IMPLEMENTED else error.description[:_SHOWN]
                self._encoded.append(values.value({"router": router, "error": text}))
        pairs = (values.string("ways"), values.value(ways), values.string("routers"), codec.encode_list(self._encoded))
        return Response(OK, codec.encode_map(pairs))

    def _ask(self, wanted: Mapping[str, bool]) -> Generator[Any, None, dict[str, StatusError]]:
        """Ask routers, and keep their answers. Returns the errors by router."""
        errors: dict[str, StatusError] = {}
        awaited: dict[str, asyncio.Future[Request | None]] = {}
        for router, edge in wanted.items():
            try:
                if router == self._own:
                    response = yield from explain(self._request, self._context)
                    self._keep(router, response.body)
                else:
                    awaited[router] = self._send(router, edge)
            except StatusError as error:
                errors[router] = error
        for router, answer in awaited.items():
            yield answer
            try:
                self._keep(router, _encoded_answer(router, answer.result()))
            except StatusError as error:
                errors[router] = error
        return errors

    def _send(self, router: str, edge: bool) -> "asyncio.Future[Request | None]":
        """Send a request to a router, and return the future of its answer. Raises StatusError."""
        seconds = min(ANSWER_SECONDS, self._until - time.monotonic())
        self._asked += 1
        if seconds <= 0 or self._asked > MOST_ROUTERS:
            text = f"not asked: the path has over {MOST_ROUTERS} routers, or takes over {PATH_SECONDS:.0f} s"
            raise StatusError(INTERNAL_ERROR, text)
        request = self._request
        properties: dict[str, Any] = {"operation": "EXPLAIN", "type": "org.amqp.management", "name": "self"}
        properties |= {key: request.properties[key] for key in ("address", "limit") if key in request.properties}
        if self._values < _ANSWER_VALUES // 2:
            properties["limit"] = FOLLOWED
        to = self._permitted(management_address(router, edge=edge))
        answer = self._context.remote_agents.ask(request, to, self._reply_to, properties, seconds)
        if answer is None:
            raise StatusError(NOT_FOUND, f"router '{router}' is not in the network")
        return answer

    def _permitted(self, address: str) -> str:
        """Return the address that a message of the client to an agent would get. Raises StatusError if forbidden."""
        core, request = self._context.core, self._request
        connection = None if request.connection is None else core.connections.opened.get(request.connection)
        if connection is not None and connection.origin.role in BETWEEN_ROUTERS:
            raise StatusError(FORBIDDEN, "A path is followed by the router that the client is connected to")
        allowed = request.connection is None or (connection is not None and core.policy.may_send(connection, address))
        to = address_for(address, request.rights, self._own) if allowed else None
        if to is None:
            raise StatusError(FORBIDDEN, f"Policy forbids messages to '{address}'")
        return to

    def _keep(self, router: str, encoded: bytes) -> None:
        """Keep a valid answer; without its links if they are too many. Raises StatusError."""
        self._octets -= len(encoded)
        if self._octets < 0:
            raise StatusError(INTERNAL_ERROR, f"all answers about the path have over {MOST_OCTETS} octets")
        try:
            body = codec.decode_one(encoded)
            answer = msgspec.convert(body, _Explained)
        except (RemoteError, RecursionError, OverflowError, msgspec.ValidationError) as error:
            raise StatusError(INTERNAL_ERROR, f"its answer is invalid: {error}") from error
        if answer.router != router:
            raise StatusError(INTERNAL_ERROR, "its answer is that of another router")
        number = count(body)
        if number > self._values:
            for record in body["records"]:
                record |= {"consumers": [], "producers": []}
            encoded, number = values.value(body), count(body)
        if number > self._values:
            raise StatusError(INTERNAL_ERROR, "its answer does not fit into that about the path")
        self._values -= number
        self._encoded.append(encoded)
        pairs = [(each.router, each.next_hop) for record in answer.records for each in record.remotes]
        self._answers[router] = Hops(
            {goal: following for goal, following in pairs if _is_id(goal) and (following is None or _is_id(following))},
            [(each.router, each.edge) for each in answer.further if _is_id(each.router)],
        )


def _router_at(address: str) -> tuple[str, bool]:
    """Return the router of a management address, and whether it is an edge router. Raises StatusError."""
    match normalise(address).split("/"):
        case ["_topo", _, router, name] if name == MANAGEMENT and _is_id(router):
            return router, False
        case ["_edge", router, name] if name == MANAGEMENT and _is_id(router):
            return router, True
    raise StatusError(BAD_REQUEST, f"'first' is not the management address of a router: '{address[:_SHOWN]}'")


def _is_id(text: str) -> bool:
    """Return whether a text can be the id of one router in an address."""
    return 0 < len(text) <= MOST_ID and "/" not in text and text != EVERY


def _encoded_answer(router: str, answer: Request | None) -> bytes:
    """Return the body of a router's answer, which is not trusted. Raises StatusError."""
    if answer is None:
        raise StatusError(INTERNAL_ERROR, f"router '{router}' gives no answer in time")
    status = answer.number("statusCode") or 0
    if status != OK:
        known = status >= BAD_REQUEST and status in TEXTS
        raise StatusError(status if known else INTERNAL_ERROR, answer.text("statusDescription"))
    return answer.encoded_body()
