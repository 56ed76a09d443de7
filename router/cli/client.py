"""Management client: one connection to a router, one request at a time (management.md 5.2, 5.3 and 8.1).

Only commands that talk to a router import this module, because others do not need the client.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from sluice.router.cli.connection import ToolConnection
from sluice.router.cli.errors import SendException, Timeout, ToolError
from sluice.router.cli.options import MANAGEMENT, QueryTarget, address, router_of
from sluice.router.client.blocking import SyncReceiver, SyncSender
from sluice.router.client.message import Message

PREFIX: Final = "org.apache.qpid.dispatch."  # prefix of long type names
NODE: Final = {"type": "org.amqp.management", "name": "self"}  # properties that select the management node itself

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
NOT_IMPLEMENTED: Final = 501
_NAMES: Final = {OK: "OK", CREATED: "Created", NO_CONTENT: "No Content"}

PAGE: Final = 500  # rows per request
ROWS_MOST: Final = 4_000_000  # rows of a query without limit: more than a router has, so pages have an end
GRACE: Final = 0.25  # seconds without credit after which the client queries whether the target router is known

# Operations that Dispatch does not have, with their purpose.
OWN_OPERATIONS: Final = {
    "EXPLAIN": "explain addresses",
    "EXPLAIN-POLICY": "explain their policy",
    "GET-WORKERS": "show their workers",
    "GET-CONFIGURATION": "show their configuration as a file",
    "TRACE": "show the frames of a connection as they pass",
    "RELOAD": "read their configuration file again",
    "DRAIN": "drain",
}

Row = dict[str, Any]
Properties = Mapping[str, Any]  # properties of a request other than the operation


class ManagementError(Exception):
    """Raised when the router answers with an error status; its text is the description in the answer."""

    status = 0

    @staticmethod
    def of(status: int, description: str) -> "ManagementError":
        """Return the error of the class for a status."""
        kind = _ERRORS.get(status, ManagementError)
        error = kind(description)
        error.status = status
        return error


class BadRequestStatus(ManagementError):
    """Status 400."""


class UnauthorizedStatus(ManagementError):
    """Status 401."""


class ForbiddenStatus(ManagementError):
    """Status 403."""


class NotFoundStatus(ManagementError):
    """Status 404."""


class InternalServerErrorStatus(ManagementError):
    """Status 500."""


class NotImplementedStatus(ManagementError):
    """Status 501."""


class UnknownRouter(ManagementError):
    """Raised when the target router of a request is not in the network."""


_ERRORS: Final[dict[int, type[ManagementError]]] = {
    400: BadRequestStatus,
    401: UnauthorizedStatus,
    403: ForbiddenStatus,
    404: NotFoundStatus,
    500: InternalServerErrorStatus,
    NOT_IMPLEMENTED: NotImplementedStatus,
}


class ManagementClient:
    """Connection to a router. Not thread-safe. As a context manager, it closes the connection."""

    def __init__(self, target: QueryTarget) -> None:
        """Connect. Raises ToolError, and OSError for an unknown host."""
        self._target = target
        self._connection = ToolConnection(target)
        self._senders: dict[str, SyncSender] = {}
        self._receiver: SyncReceiver | None = None
        self._credit = 1  # on the reply link
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; ignore a router that does not answer."""
        self._connection.close()

    # Requests

    def call(
        self,
        operation: str,
        properties: Properties,
        body: Any = None,
        *,
        expect: int | None = OK,
        at: str | None = None,
    ) -> Any:
        """Send a request to the management node `at` (default: that of the target). Return the body of the answer.

        `expect` is the expected status; None: any success. Raises ManagementError, and ValueError for an unexpected
        success.
        """
        return _body(self._exchange(operation, properties, body, at or self._target.address), expect, operation)

    def _exchange(self, operation: str, properties: Properties, body: Any, at: str) -> Message:
        """Send a request and return the first answer. Errors name the target router if it is a remote one."""
        try:
            number = self._send(operation, properties, body, at)
            return self._reply(number, self._target.timeout, "Waiting for response")
        except (Timeout, SendException) as error:
            router = router_of(at)
            if router is None:
                raise
            if isinstance(error, SendException):  # no router accepts the message
                raise UnknownRouter(_unknown(router)) from error
            raise Timeout(f"Router '{router}' does not answer: {error}") from error

    def node_call(self, operation: str, properties: Properties | None = None, at: str | None = None) -> Any:
        """Call an operation of the management node itself."""
        return self.call(operation, {**NODE, **(properties or {})}, at=at)

    def query(
        self,
        entity_type: str | None,
        attributes: list[str] | None = None,
        limit: int | None = None,
        at: str | None = None,
    ) -> tuple[list[str], list[list[Any]]]:
        """Return the columns and rows of a type, requested page by page. `limit` None or 0: all rows.

        Raises ManagementError as `call` does, and for pages without end.
        """
        properties: dict[str, Any] = {**NODE}
        if entity_type is not None:
            properties["entityType"] = entity_type
        request = {"attributeNames": attributes or []}
        columns: list[str] = []
        rows: list[list[Any]] = []
        while True:
            count = min(PAGE, limit - len(rows)) if limit else PAGE
            page = self.call("QUERY", {**properties, "offset": len(rows), "count": count}, request, at=at)
            columns = columns or list(page["attributeNames"])
            rows += page["results"]
            if len(page["results"]) < count or (limit and len(rows) >= limit):
                return columns, rows
            if len(rows) > ROWS_MOST:
                raise ManagementError(f"the router's answers have no end: more than {ROWS_MOST} rows")

    def rows(
        self, short_type: str, attributes: list[str] | None = None, limit: int | None = None, at: str | None = None
    ) -> list[Row]:
        """Return the rows of a type as maps. `short_type` is its name without the prefix."""
        columns, rows = self.query(PREFIX + short_type, attributes, limit, at)
        return [dict(zip(columns, row, strict=False)) for row in rows]

    def stream(self, operation: str, properties: Properties, credit: int) -> Iterator[Any]:
        """Call an operation with several answers. Yield the body of each message after the first one.

        The answers have the same reply-to and correlation-id; one with an empty body is the last. Raises the errors of
        `call`.
        """
        first = self._exchange(operation, {**NODE, **properties}, None, self._target.address)
        _body(first, OK, operation)
        number = str(self._number)
        self._credit = credit
        self._replies().flow(credit)
        while body := self._reply(number, None, "").body:
            yield plain(body)

    def _send(self, operation: str, properties: Properties, body: Any, address: str) -> str:
        sender = self._sender(address)
        replies = self._replies()
        self._check_credit(sender, address)
        self._number += 1
        message = Message(
            to=address,
            reply_to=replies.address,
            correlation_id=str(self._number),
            properties={**properties, "operation": operation},
            body={} if body is None else body,
        )
        self._connection.send(sender, message)
        return str(self._number)

    def _sender(self, address: str) -> SyncSender:
        sender = self._senders.get(address)
        if sender is None:
            sender = self._senders[address] = self._connection.sender(address)
        return sender

    def _replies(self) -> SyncReceiver:
        """Return the reply link, attached at the first request."""
        if self._receiver is None:
            self._receiver = self._connection.receiver()
            self._receiver.flow(self._credit)
        return self._receiver

    def _check_credit(self, sender: SyncSender, to: str) -> None:
        """Wait a short time for credit to send to a remote router. Without credit, query whether that router is known.

        Raises UnknownRouter if it is not. Otherwise the sender continues to wait, since the router may be slow.
        """
        router = router_of(to)
        if router is None:
            return
        try:
            self._connection.wait(lambda: sender.state.ready, min(GRACE, self._target.timeout))
        except Timeout:
            try:
                known = self._knows(router, to)
            except (ManagementError, ToolError, ValueError):
                return  # the router may exist
            if not known:
                raise UnknownRouter(_unknown(router)) from None

    def _knows(self, router: str, to: str) -> bool:
        """Return whether a router is known, or may exist, according to the routers that can be queried.

        Raises ManagementError, ToolError.
        """
        try:
            answer = self.node_call("EXPLAIN", {"address": to, "limit": 1}, MANAGEMENT)
            for further in answer.get("further", ()):  # an edge router refers to its interior router
                if not further["edge"] and further["router"] != router:
                    where = address("", further["router"], None)
                    answer = self.node_call("EXPLAIN", {"address": to, "limit": 1}, where)
        except NotImplementedStatus:  # a router of 1.19; as an edge router it knows no other routers
            nodes = [router_of(node.removeprefix("amqp:/")) for node in self.node_call("GET-MGMT-NODES", at=MANAGEMENT)]
            return not nodes or router in nodes or not to.startswith("_topo/")
        return answer["reachable"] is not False

    def _reply(self, number: str, timeout: float | None, what: str) -> Message:
        """Wait for the next answer to a request (`timeout` None: no limit). Late answers to older ones are dropped."""
        deadline = None if timeout is None else time.monotonic() + timeout
        replies = self._replies()
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            delivery = self._connection.wait(replies.state.take, left, what)
            assert delivery is not None, "the wait ends with a delivery"
            delivery.accept()
            replies.flow(self._credit)
            if delivery.message.correlation_id == number:
                return delivery.message


def _unknown(router: str) -> str:
    return f"router '{router}' is not in the network"


def _body(reply: Message, expect: int | None, operation: str) -> Any:
    """Return the body of a successful answer. Raises ManagementError and ValueError."""
    properties: dict[str, Any] = reply.properties or {}
    status, description = int(properties.get("statusCode", 0)), str(properties.get("statusDescription", ""))
    if not 200 <= status < 300:
        if status == NOT_IMPLEMENTED and operation in OWN_OPERATIONS:
            description = f"Only Sluice routers {OWN_OPERATIONS[operation]}: this router is not Sluice, or too old"
        raise ManagementError.of(status, description)
    if expect is not None and status != expect:
        was, wanted = (f"{code}({_NAMES.get(code, '')})" for code in (status, expect))
        raise ValueError(f"Response was {was} but expected {wanted}: {description}")
    return plain(reply.body)


def plain(value: Any) -> Any:
    """Convert AMQP's types in a value to Python's own. Symbols and timestamps would otherwise print their types."""
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
