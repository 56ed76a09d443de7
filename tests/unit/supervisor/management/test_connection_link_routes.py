"""Link routes that belong to a connection: requests, answers, and their removal with the connection
(brokers-and-edge.md 6)."""

from typing import Any

import pytest

from router.control import messages
from supervisor.linkroutes.local import MAX_PER_CONNECTION
from tests.peer.management import PREFIX, Answer
from tests.unit.supervisor.management.desk import Desk

KIND = "router.connection.linkRoute"
NOT_FOUND = (404, "Not Found")


@pytest.fixture
def desk():
    return Desk()


def create(desk: Desk, connection: Any, name: str | None = None, **body: Any) -> Answer:
    return ask(desk, "CREATE", connection, body, **({} if name is None else {"name": name}))


def ask(desk: Desk, operation: str, connection: Any, body: Any = None, **properties: Any) -> Answer:
    return desk.ask(operation, body, connection and connection.number, type=PREFIX + KIND, **properties)


def rows(desk: Desk, connection: Any) -> list[dict[str, Any]]:
    answer = desk.ask("QUERY", {}, connection and connection.number, entityType=PREFIX + KIND)
    assert answer.outcome == (200, "OK")
    return [dict(zip(answer.body["attributeNames"], row, strict=True)) for row in answer.body["results"]]


def test_created_and_shown(desk):
    connection = desk.connection(container="me")
    answer = create(desk, connection, "mine", pattern="con.#", direction="in", containerId="another")
    assert answer.outcome == (201, "Created")
    identity = answer.body["identity"]
    assert identity.isdigit()
    assert answer.body == {
        "name": "mine", "identity": identity, "type": PREFIX + KIND, "pattern": "con.#", "direction": "in",
        "containerId": "me",
    }  # fmt: skip
    for which in ({"name": "mine"}, {"identity": identity}, {"identity": identity, "name": "other"}):
        assert ask(desk, "READ", connection, **which).body == answer.body
    assert rows(desk, connection) == [answer.body]
    assert list(answer.body) == ["name", "identity", "type", "pattern", "direction", "containerId"]
    unnamed = create(desk, connection, pattern=".con.x.", direction="out").body
    assert (unnamed["name"], unnamed["pattern"]) == (None, "con.x")
    keys = {row["key"]: row["containerCount"] for row in desk.query("router.address")}
    assert (keys["Ccon"], keys["Fcon.x"]) == (1, 1)
    assert desk.query("router.config.linkRoute") == []
    assert create(desk, connection, pattern="x", direction="in", name="given in the body").body["name"] is not None


def test_only_the_connection_that_made_it_sees_it(desk):
    connection, other = desk.connection(), desk.connection(worker=1)
    identity = create(desk, connection, "mine", pattern="a", direction="in").body["identity"]
    for asking in (other, None):
        assert rows(desk, asking) == []
        for operation in ("READ", "DELETE"):
            assert ask(desk, operation, asking, name="mine").outcome == NOT_FOUND
            assert ask(desk, operation, asking, identity=identity).outcome == NOT_FOUND
    assert len(rows(desk, connection)) == 1
    for operation in ("READ", "DELETE"):
        assert ask(desk, operation, connection).outcome == (400, "No name or identity provided")
        assert ask(desk, operation, connection, name="x").outcome == NOT_FOUND
    assert ask(desk, "UPDATE", connection, {}, name="mine").outcome == (501, "Not Implemented")


def test_names_and_patterns_may_repeat(desk):
    connection = desk.connection()
    first, second, unnamed = (
        create(desk, connection, name, pattern="a", direction="in").body["identity"] for name in ("n", "n", None)
    )
    assert ask(desk, "READ", connection, name="n").body["identity"] == first
    assert ask(desk, "DELETE", connection, name="n").outcome == (204, "No Content")
    assert [row["identity"] for row in rows(desk, connection)] == [second, unnamed]
    assert desk.core.link_routes.match("in", "a").containers == 1
    for identity in (second, unnamed):
        assert ask(desk, "DELETE", connection, identity=identity).status == 204
    assert desk.core.link_routes.match("in", "a") is None
    assert not [row for row in desk.query("router.address") if row["key"] == "Ea"]


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
def test_refused(desk, body, text):
    connection = desk.connection()
    answer = ask(desk, "CREATE", connection, body)
    assert (answer.outcome, answer.body) == ((400, text), None)
    assert rows(desk, connection) == []


def test_refused_without_a_connection(desk):
    answer = create(desk, None, pattern="a", direction="in")
    assert (answer.outcome, answer.body) == ((400, "Parent connection no longer exists"), None)


def test_a_connection_has_a_limit(desk):
    connection = desk.connection()
    for number in range(MAX_PER_CONNECTION):
        assert create(desk, connection, pattern=f"a{number}", direction="in").status == 201
    assert create(desk, connection, pattern="more", direction="in").outcome == (400, "creation failed")
    assert create(desk, desk.connection(), pattern="more", direction="in").status == 201


def test_the_end_of_the_connection(desk):
    before = len(desk.query("router.address"))
    connection, other = desk.connection(), desk.connection(worker=1)
    for each in (connection, other):
        create(desk, each, "x", pattern="a.#", direction="in")
    create(desk, connection, pattern="b", direction="out")
    assert {row["key"]: row["containerCount"] for row in desk.query("router.address")}["Ca"] == 2
    desk.core.receive(desk.workers[0], messages.Closed(conn=connection.number, error=None))
    address = desk.core.link_routes.match("in", "a.b")
    assert address.choose() is other
    assert desk.core.link_routes.match("out", "b") is None
    desk.core.receive(desk.workers[1], messages.Closed(conn=other.number, error=None))
    assert len(desk.query("router.address")) == before
