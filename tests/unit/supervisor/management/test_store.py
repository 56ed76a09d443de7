"""Entity store: look-up, READ, QUERY, and the texts of refusals (management.md 5.4 to 5.10)."""

import pytest

from sluice.router.config.schema import SCHEMA
from sluice.router.log import MODULES
from tests.peer.management import PREFIX
from tests.peer.types import Symbol
from tests.unit.supervisor.management.managed_router import ManagedRouter, request


@pytest.fixture(scope="module")
def router():
    return ManagedRouter()


LOG_OPERATIONS = "['UPDATE', 'READ']"


TARGETS = [
    # properties, status, text
    ({"operation": "READ", "type": "bogus"}, 400, "No such entity type 'bogus'"),
    ({"operation": "READ", "type": PREFIX + "bogus"}, 400, f"No such entity type '{PREFIX}bogus'"),
    ({"operation": "READ", "type": "Listener"}, 400, "No such entity type 'Listener'"),
    ({"operation": "READ", "type": 5}, 400, "No such entity type '5'"),
    ({"operation": "READ", "type": "listener"}, 400, f"{PREFIX}listener: No name or identity provided"),
    ({"operation": "READ", "name": "nope"}, 404, "No entity with name=nope"),
    ({"operation": "READ", "identity": "nope"}, 404, "No entity with identity=nope"),
    ({"operation": "READ", "name": "nope", "identity": "i"}, 404, "No entity with name=nope identity=i"),
    ({"operation": "READ", "name": "main", "identity": "i"}, 400, "Conflicting name=main identity=i"),
    ({"operation": "READ", "name": "main", "type": "log"}, 400,
     f"Entity type '{PREFIX}listener' does not extend requested type '{PREFIX}log'"),
    ({"operation": "READ", "name": "main", "type": "configurationEntity"}, 404,
     f"Entity type '{PREFIX}listener' does match requested type '{PREFIX}configurationEntity'"),
    ({"operation": "READ", "name": "self", "type": "org.amqp.management"}, 404,
     f"Entity type '{PREFIX}management' does match requested type '{PREFIX}org.amqp.management'"),
    ({"operation": "UPDATE", "name": "main"}, 501,
     f"Operation 'UPDATE' not implemented for '{PREFIX}listener' ['CREATE', 'DELETE', 'READ']"),
    ({"operation": "delete", "name": "log/AGENT"}, 501,
     f"Operation 'DELETE' not implemented for '{PREFIX}log' {LOG_OPERATIONS}"),
    ({"operation": "GET-TYPES", "name": "log/AGENT"}, 501,
     f"Operation 'GET-TYPES' not implemented for '{PREFIX}log' {LOG_OPERATIONS}"),
    ({"operation": "DELETE", "name": "AGENT"}, 501,
     f"Operation 'DELETE' not implemented for '{PREFIX}logStats' ['READ']"),
    ({"operation": "QUERY", "name": "main"}, 501,
     f"Operation 'QUERY' not implemented for '{PREFIX}listener' ['CREATE', 'DELETE', 'READ']"),
    ({"operation": "QUERY", "entityType": "bogus"}, 400, "No such entity type 'bogus'"),
]  # fmt: skip


@pytest.mark.parametrize(("properties", "status", "text"), TARGETS)
def test_requests_for_wrong_targets_are_refused(router, properties, status, text):
    (answer,) = router.raw(request(properties, {}))
    assert answer.outcome == (status, text)
    assert answer.body == {}


@pytest.mark.parametrize("operation", ["REGISTER", "DEREGISTER", "GET_TYPES", "NONSENSE", "CALLME"])
@pytest.mark.parametrize("properties", [{}, {"name": "self"}, {"name": "self", "type": "org.amqp.management"}])
def test_unknown_operations_are_refused(router, operation, properties):
    answer = router.ask(operation, **properties)
    listed = list(SCHEMA.types["management"].operations)
    assert answer.outcome == (501, f"Operation '{operation}' not implemented for '{PREFIX}management' {listed}")


@pytest.mark.parametrize(
    "target",
    [
        {"name": "main"}, {"identity": "listener/127.0.0.1:0:main"}, {"name": "main", "type": "listener"},
        {"name": "main", "type": PREFIX + "listener"}, {"name": Symbol("main"), "type": Symbol("listener")},
        {"name": "main", "identity": "listener/127.0.0.1:0:main"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("operation", ["READ", "read", "Read"])
def test_read_finds_entity_by_name_or_identity(router, operation, target):
    answer = router.ask(operation, **target)
    assert answer.outcome == (200, "OK")
    assert (answer.body["name"], answer.body["type"]) == ("main", PREFIX + "listener")
    assert (answer.body["host"], answer.body["port"], answer.body["maxFrameSize"]) == ("127.0.0.1", "0", 16384)
    assert None not in answer.body.values(), "attributes without a value are left out"


# management.md 6.6.
def test_query_of_type_returns_its_attributes(router):
    answer = router.ask("QUERY", entityType="listener")
    assert answer.body["attributeNames"] == list(SCHEMA.types["listener"].attributes)
    assert [row[answer.body["attributeNames"].index("name")] for row in answer.body["results"]] == ["main", "tenants"]


def test_query_of_some_attributes_keeps_order(router):
    rows = router.query("listener", "port", "name", "port")
    assert list(rows[0].items()) == [("port", "0"), ("name", "main")]
    answer = router.ask("QUERY", {"attributeNames": ["port", "name", "port"]}, entityType="listener")
    assert answer.body["results"][0] == ["0", "main", "0"]


def test_unknown_attributes_are_refused(router):
    answer = router.ask("QUERY", {"attributeNames": ["a", "name", "b"]}, entityType="listener")
    assert answer.outcome == (404, f"Unknown attributes ['a', 'b'] for type {PREFIX}listener.")
    assert router.ask("QUERY", {"attributeNames": ["a"]}).outcome == (404, "Unknown attributes ['a'].")


def test_rows_without_requested_values_are_omitted(router):
    assert [row["module"] for row in router.query("log", "module")] == [*MODULES]
    assert router.query("listener", "linkCapacity") == []
    assert router.query("listener", "multiTenant", "linkCapacity")[1]["multiTenant"] is True


def test_query_of_base_type_returns_derived_entities(router):
    everything = {row["identity"] for row in router.query("entity", "identity")}
    configured = {row["identity"] for row in router.query("configurationEntity", "identity")}
    operational = {row["identity"] for row in router.query("operationalEntity", "identity")}
    assert configured | operational == everything
    assert {"router/QDR", "log/AGENT", "policy/None", "listener/127.0.0.1:0:main", "address/0"} <= configured
    assert {"self", "logStats/AGENT", "allocator/qdr_link_t"} <= operational
    answer = router.ask("QUERY", entityType="entity")
    assert answer.body["attributeNames"] == ["name", "identity", "type"]
    assert [row[0] for row in router.ask("QUERY", entityType="org.amqp.management").body["results"]] == ["self"]


def test_query_without_type_returns_all_entities(router):
    answer = router.ask("QUERY")
    names = answer.body["attributeNames"]
    assert set(names) == {name for kind in SCHEMA.types.values() for name in kind.attributes}
    types = {row[names.index("type")].removeprefix(PREFIX) for row in answer.body["results"]}
    assert {"listener", "log", "logStats", "allocator", "router", "policy", "management"} <= types
    assert not types & {"connection", "router.link", "router.address"}


def test_pages_cover_all_entities(router):
    every = [row["identity"] for row in router.query("entity", "identity")]
    assert len(every) == len(set(every)) > 40
    pages: list[str] = []
    while page := router.query("entity", "identity", offset=len(pages), count=7):
        pages += [row["identity"] for row in page]
    assert pages == every
    assert router.query("entity", "identity", offset=-1) == []
    assert len(router.query("entity", "identity", offset=3, count=0)) == len(every) - 3


# management.md 1.
def test_lower_case_query_of_core_type_has_no_rows(router):
    router.connection()
    assert router.ask("query", entityType=PREFIX + "connection").body["results"] == []


CREATES = [
    ({}, {"host": "x"}, 400, "No 'type' attribute in {'host': 'x'}"),
    ({}, {"type": "listener"}, 400, "No 'type' attribute in {'type': 'listener'}"),
    ({"type": "listener"}, "text", 400, "Body of request must be a map"),
    ({"type": "listener"}, {"type": PREFIX + "listener"}, 400, "Conflicting values for 'type'"),
    ({"type": "listener", "name": "a"}, {"name": "b"}, 400, "Conflicting values for 'name'"),
    ({"type": "nope"}, {}, 400, "No such entity type 'nope'"),
    ({"type": "log"}, {}, 501, f"Operation 'CREATE' not implemented for '{PREFIX}log' {LOG_OPERATIONS}"),
]  # fmt: skip


@pytest.mark.parametrize(("properties", "body", "status", "text"), CREATES)
def test_invalid_creates_are_refused(router, properties, body, status, text):
    assert router.ask("CREATE", body, **properties).outcome == (status, text)
