"""Management client that behaves on the wire like the Python client of Dispatch's own tools and tests.

It has one blocking proton connection, without a SASL layer by default, with a sender to the management address and a
dynamic receiver with a credit of one. Requests are sent one at a time and matched by a text correlation-id. Operations
of the management node carry `name: self` and `type: org.amqp.management`. Queries fetch pages of 500 rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proton import Message, Url
from proton.utils import BlockingConnection, SyncRequestResponse

PREFIX = "org.apache.qpid.dispatch."
#: Rows that Dispatch's client requests at once.
PAGE = 500
#: Time limit in seconds for one answer; 10 is the default of Dispatch's client.
TIMEOUT = 10.0
#: Pages after which a query is considered endless: a router that ignores `offset` always answers with rows.
MOST_PAGES = 100

OK, CREATED, NO_CONTENT = 200, 201, 204


class DispatchStatusError(Exception):
    """Raised for an answer with an error status."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description


def qualified_name(kind: str) -> str:
    """Return the long name of a type given by its short or long name."""
    return kind if kind.startswith(PREFIX) else PREFIX + kind


class EntityProxy:
    """Proxy of one entity. Attributes are Python attributes and items; read, update and delete are methods."""

    def __init__(self, node: ManagementNode, attributes: dict[str, Any]) -> None:
        self.__dict__.update(node=node, attributes=dict(attributes))

    def __getattr__(self, name: str) -> Any:
        try:
            return self.attributes[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def __contains__(self, name: str) -> bool:
        return name in self.attributes

    def call(self, operation: str, expect: int = OK, **arguments: Any) -> Any:
        """Request any operation on this entity, addressed by type and identity; return the body of the answer."""
        request = self.node.request(operation=operation, type=self.type, identity=self.identity, **arguments)
        return self.node.call(request, expect).body

    def read(self) -> None:
        """Replace the attributes by those that the router returns."""
        self.__dict__["attributes"] = self.call("READ")

    def update(self) -> None:
        """Send all attributes, changed or not, and replace them by those of the answer."""
        self.__dict__["attributes"] = self.call("UPDATE", body=dict(self.attributes))

    def delete(self) -> None:
        """Delete the entity."""
        self.call("DELETE", NO_CONTENT)


class QueryResult:
    """Answer of a query: column names and rows."""

    def __init__(self, node: ManagementNode, names: list[str], results: list[list[Any]]) -> None:
        self.node = node
        self.names = names
        self.results = results

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as maps. Raises ValueError if a row and the list of columns differ in length."""
        return [dict(zip(self.names, row, strict=True)) for row in self.results]

    def entities(self) -> Iterator[EntityProxy]:
        """Return the rows as proxies."""
        return (EntityProxy(self.node, row) for row in self.dicts())


class ManagementNode:
    """Management node of a router. Connect with `ManagementNode.connect(port)`."""

    def __init__(self, connection: BlockingConnection, address: str) -> None:
        self.connection = connection
        self.address = address
        self.client = SyncRequestResponse(connection, address)

    @classmethod
    def connect(
        cls, port: int, router: str | None = None, address: str = "$management", sasl: bool = False, **options: Any
    ) -> ManagementNode:
        """Connect to a port of this machine. `router` is the id of the router to query over the network."""
        if router is not None:
            address = f"_topo/0/{router}/$management"
        url = Url(f"127.0.0.1:{port}")
        options.setdefault("timeout", TIMEOUT)
        return cls(BlockingConnection(url, sasl_enabled=sasl, **options), address)

    def close(self) -> None:
        """Close the connection. (Dispatch's programs drop it.)"""
        self.connection.close()

    # --- requests -------------------------------------------------------------------------------------------------

    def request(self, body: Any = None, **properties: Any) -> Message:
        """Return a request message. Properties that are None are omitted."""
        given = {key: value for key, value in properties.items() if value is not None}
        return Message(address=self.address, properties=given, body={} if body is None else body)

    def node_request(self, body: Any = None, **properties: Any) -> Message:
        """Return a request to the management node itself."""
        return self.request(body, name="self", type="org.amqp.management", **properties)

    def call(self, request: Message, expect: int = OK) -> Any:
        """Send a request and return the answer. Raises DispatchStatusError for an unexpected status."""
        response: Any = self.client.call(request)
        code = response.properties["statusCode"]
        if code != expect:
            if OK <= code < 300:
                raise ValueError(f"Response was {code} but expected {expect}")
            raise DispatchStatusError(code, response.properties["statusDescription"])
        return response

    # --- operations -----------------------------------------------------------------------------------------------

    def page(self, kind: str | None, names: list[str] | None, offset: int, count: int) -> QueryResult:
        """Send one QUERY with the given offset and count."""
        kind = None if kind is None else qualified_name(kind)
        request = self.node_request(
            {"attributeNames": names or []}, operation="QUERY", entityType=kind, offset=offset, count=count
        )
        body = self.call(request).body
        return QueryResult(self, body["attributeNames"], body["results"])

    def query(self, kind: str | None = None, names: list[str] | None = None, count: int = 0) -> QueryResult:
        """Fetch all rows of a type, or `count` of them, page by page."""
        columns: list[str] = []
        results: list[list[Any]] = []
        wanted = min(PAGE, count) if count else PAGE
        offset = 0
        for _ in range(MOST_PAGES):
            rows = self.page(kind, names, offset, wanted)
            columns = columns or rows.names
            results += rows.results
            if len(rows.results) < wanted or (count and len(results) >= count):
                return QueryResult(self, columns, results)
            offset += wanted
            if count:
                wanted = min(wanted, count - len(results))
        raise AssertionError(f"the query of {kind} does not end: {len(results)} rows")

    def rows(self, kind: str | None = None, **where: Any) -> list[dict[str, Any]]:
        """Return the rows of a type whose columns equal `where`."""
        found = self.query(kind).dicts()
        return [row for row in found if all(row.get(name) == value for name, value in where.items())]

    def one(self, kind: str, **where: Any) -> dict[str, Any]:
        """Return the only row whose columns equal `where`."""
        rows = self.rows(kind, **where)
        assert len(rows) == 1, f"{len(rows)} rows of {kind} with {where}"
        return rows[0]

    def create(self, kind: str | None, name: str | None = None, **attributes: Any) -> EntityProxy:
        """Send CREATE. As in Dispatch's client, type and name are in the properties and in the body."""
        body = dict(attributes)
        if kind is not None:
            body["type"] = qualified_name(kind)
        if name is not None:
            body["name"] = name
        request = self.request(body, operation="CREATE", type=body.get("type"), name=name)
        return EntityProxy(self, self.call(request, CREATED).body)

    def read(self, kind: str | None = None, name: str | None = None, identity: str | None = None) -> EntityProxy:
        """Send READ by name or identity, with or without a type."""
        kind = None if kind is None else qualified_name(kind)
        request = self.request(operation="READ", type=kind, name=name, identity=identity)
        return EntityProxy(self, self.call(request).body)

    def update(
        self, attributes: Any, kind: str | None = None, name: str | None = None, identity: str | None = None
    ) -> EntityProxy:
        """Send UPDATE by name or identity."""
        kind = None if kind is None else qualified_name(kind)
        request = self.request(attributes, operation="UPDATE", type=kind, name=name, identity=identity)
        return EntityProxy(self, self.call(request).body)

    def delete(self, kind: str | None = None, name: str | None = None, identity: str | None = None) -> None:
        """Send DELETE by name or identity."""
        kind = None if kind is None else qualified_name(kind)
        request = self.request(operation="DELETE", type=kind, name=name, identity=identity)
        assert self.call(request, NO_CONTENT).body == {}

    def ask(self, operation: str, **properties: Any) -> Any:
        """Request an operation of the management node itself (GET-TYPES, GET-LOG, ...); return the answer's body."""
        return self.call(self.node_request(operation=operation, **properties)).body

    def log(self, limit: int | None = None) -> list[list[Any]]:
        """Return the entries of GET-LOG."""
        entries: list[list[Any]] = self.ask("GET-LOG", limit=limit)
        return entries


def attempt(request: Any, *arguments: Any, **options: Any) -> Any:
    """Return the answer of a call, or status code and description as a tuple if the call fails."""
    try:
        return request(*arguments, **options)
    except DispatchStatusError as error:
        return error.code, error.description


def refused(request: Any, *arguments: Any, **options: Any) -> tuple[int, str]:
    """Return status code and description of a call that has to fail."""
    answer = attempt(request, *arguments, **options)
    assert isinstance(answer, tuple), f"was not refused, but answered {answer!r}"
    return answer[0], answer[1]
