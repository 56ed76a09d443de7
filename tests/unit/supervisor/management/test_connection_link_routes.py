"""Link routes that belong to a connection: requests, answers, and their removal with the connection
(brokers-and-edge.md 6)."""

from typing import Any

import pytest

from sluice.router.control import messages
from sluice.supervisor.linkroutes.local import MAX_PER_CONNECTION
from tests.peer.management import PREFIX, ManagementReply
from tests.unit.supervisor.management.managed_router import ManagedRouter

KIND = "router.connection.linkRoute"
NOT_FOUND = (404, "Not Found")


@pytest.fixture
def router():
    return ManagedRouter()


def create(router: ManagedRouter, connection: Any, name: str | None = None, **body: Any) -> ManagementReply:
    return ask(router, "CREATE", connection, body, **({} if name is None else {"name": name}))


def ask(router: ManagedRouter, operation: str, connection: Any, body: Any = None, **properties: Any) -> ManagementReply:
    return router.ask(operation, body, connection and connection.number, type=PREFIX + KIND, **properties)


def rows(router: ManagedRouter, connection: Any) -> list[dict[str, Any]]:
    answer = router.ask("QUERY", {}, connection and connection.number, entityType=PREFIX + KIND)
    assert answer.outcome == (200, "OK")
    return [dict(zip(answer.body["attributeNames"], row, strict=True)) for row in answer.body["results"]]


# brokers-and-edge.md CLR-1.
def test_link_route_of_connection_is_created_and_read(router):
    connection = router.connection(container="me")
    answer = create(router, connection, "mine", pattern="con.#", direction="in", containerId="another")
    assert answer.outcome == (201, "Created")
    identity = answer.body["identity"]
    assert identity.isdigit()
    assert answer.body == {
        "name": "mine", "identity": identity, "type": PREFIX + KIND, "pattern": "con.#", "direction": "in",
        "containerId": "me",
    }  # fmt: skip
    for which in ({"name": "mine"}, {"identity": identity}, {"identity": identity, "name": "other"}):
        assert ask(router, "READ", connection, **which).body == answer.body
    assert rows(router, connection) == [answer.body]
    assert list(answer.body) == ["name", "identity", "type", "pattern", "direction", "containerId"]
    unnamed = create(router, connection, pattern=".con.x.", direction="out").body
    assert (unnamed["name"], unnamed["pattern"]) == (None, "con.x")
    keys = {row["key"]: row["containerCount"] for row in router.query("router.address")}
    assert (keys["Ccon"], keys["Fcon.x"]) == (1, 1)
    assert router.query("router.config.linkRoute") == []
    assert create(router, connection, pattern="x", direction="in", name="given in the body").body["name"] is not None


def test_link_route_is_visible_to_its_connection_only(router):
    connection, other = router.connection(), router.connection(worker=1)
    identity = create(router, connection, "mine", pattern="a", direction="in").body["identity"]
    for asking in (other, None):
        assert rows(router, asking) == []
        for operation in ("READ", "DELETE"):
            assert ask(router, operation, asking, name="mine").outcome == NOT_FOUND
            assert ask(router, operation, asking, identity=identity).outcome == NOT_FOUND
    assert len(rows(router, connection)) == 1
    for operation in ("READ", "DELETE"):
        assert ask(router, operation, connection).outcome == (400, "No name or identity provided")
        assert ask(router, operation, connection, name="x").outcome == NOT_FOUND
    assert ask(router, "UPDATE", connection, {}, name="mine").outcome == (501, "Not Implemented")


def test_link_route_names_and_patterns_may_repeat(router):
    connection = router.connection()
    first, second, unnamed = (
        create(router, connection, name, pattern="a", direction="in").body["identity"] for name in ("n", "n", None)
    )
    assert ask(router, "READ", connection, name="n").body["identity"] == first
    assert ask(router, "DELETE", connection, name="n").outcome == (204, "No Content")
    assert [row["identity"] for row in rows(router, connection)] == [second, unnamed]
    assert router.core.link_routes.match("in", "a").containers == 1
    for identity in (second, unnamed):
        assert ask(router, "DELETE", connection, identity=identity).status == 204
    assert router.core.link_routes.match("in", "a") is None
    assert not [row for row in router.query("router.address") if row["key"] == "Ea"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([1], "Body of request must be a map"),
        ({}, "Pattern field is required"),
        ({"prefix": "a", "direction": "in"}, "Pattern field is required"),
        ({"pattern": "", "direction": "in"}, "Pattern must be a non-empty string type"),
        ({"pattern": 5}, "Pattern must be a non-empty string type"),
        ({"pattern": "./"}, "Pattern invalid - no tokens"),
        ({"pattern": "a"}, "Missing value for 'direction'"),
        ({"pattern": "a", "direction": "up"}, "Invalid value for 'direction'"),
        ({"pattern": "a", "direction": 1}, "Invalid value for 'direction'"),
        ({"pattern": "a" * 1025, "direction": "in"}, "creation failed"),
        ({"pattern": ".".join("a" * 101), "direction": "in"}, "creation failed"),
    ],
)
def test_invalid_link_route_is_refused(router, body, text):
    connection = router.connection()
    answer = ask(router, "CREATE", connection, body)
    assert (answer.outcome, answer.body) == ((400, text), None)
    assert rows(router, connection) == []


def test_link_route_without_connection_is_refused(router):
    answer = create(router, None, pattern="a", direction="in")
    assert (answer.outcome, answer.body) == ((400, "Parent connection no longer exists"), None)


def test_link_routes_per_connection_are_bounded(router):
    connection = router.connection()
    for number in range(MAX_PER_CONNECTION):
        assert create(router, connection, pattern=f"a{number}", direction="in").status == 201
    assert create(router, connection, pattern="more", direction="in").outcome == (400, "creation failed")
    assert create(router, router.connection(), pattern="more", direction="in").status == 201


def test_link_routes_end_with_connection(router):
    before = len(router.query("router.address"))
    connection, other = router.connection(), router.connection(worker=1)
    for each in (connection, other):
        create(router, each, "x", pattern="a.#", direction="in")
    create(router, connection, pattern="b", direction="out")
    assert {row["key"]: row["containerCount"] for row in router.query("router.address")}["Ca"] == 2
    router.core.receive(router.workers[0], messages.Closed(conn=connection.number, error=None))
    address = router.core.link_routes.match("in", "a.b")
    assert address.choose() is other
    assert router.core.link_routes.match("out", "b") is None
    router.core.receive(router.workers[1], messages.Closed(conn=other.number, error=None))
    assert len(router.query("router.address")) == before
