"""Entity store: look-up, READ, QUERY, and the texts of refusals (management.md 5.4 to 5.10)."""

import pytest

from router.config.schema import SCHEMA
from router.log import MODULES
from tests.peer.management import PREFIX
from tests.peer.types import Symbol
from tests.unit.supervisor.management.desk import Desk, request


@pytest.fixture(scope="module")
def desk():
    return Desk()


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
def test_refusals(desk, properties, status, text):
    (answer,) = desk.raw(request(properties, {}))
    assert answer.outcome == (status, text)
    assert answer.body == {}


@pytest.mark.parametrize("operation", ["REGISTER", "DEREGISTER", "GET_TYPES", "NONSENSE", "CALLME"])
@pytest.mark.parametrize("properties", [{}, {"name": "self"}, {"name": "self", "type": "org.amqp.management"}])
def test_unknown_operations(desk, operation, properties):
    answer = desk.ask(operation, **properties)
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
def test_read(desk, operation, target):
    answer = desk.ask(operation, **target)
    assert answer.outcome == (200, "OK")
    assert (answer.body["name"], answer.body["type"]) == ("main", PREFIX + "listener")
    assert (answer.body["host"], answer.body["port"], answer.body["maxFrameSize"]) == ("127.0.0.1", "0", 16384)
    assert None not in answer.body.values(), "attributes without a value are left out"


@pytest.mark.parametrize(
    "target", [{"name": "self"}, {}, {"name": "self", "type": "management"}, {"type": "management"}]
)
def test_read_the_management_entity(desk, target):
    assert desk.ask("READ", **target).body == {"name": "self", "identity": "self", "type": PREFIX + "management"}


def test_the_store_form_of_the_router(desk):
    for target in ({"name": "router/QDR"}, {"identity": "router/QDR", "type": "router"}):
        body = desk.ask("READ", **target).body
        assert (body["id"], body["mode"], body["area"], body["version"]) == ("QDR", "standalone", "0", "9.9")
        assert body["hostName"]
        assert (body["addrCount"], body["linkCount"], body["nodeCount"]) == (0, 0, 0)
        assert body["helloIntervalSeconds"] == 1


def test_query_of_a_type(desk):
    answer = desk.ask("QUERY", entityType="listener")
    assert answer.body["attributeNames"] == list(SCHEMA.types["listener"].attributes)
    assert [row[answer.body["attributeNames"].index("name")] for row in answer.body["results"]] == ["main", "tenants"]


def test_query_of_some_attributes(desk):
    rows = desk.query("listener", "port", "name", "port")
    assert list(rows[0].items()) == [("port", "0"), ("name", "main")]
    answer = desk.ask("QUERY", {"attributeNames": ["port", "name", "port"]}, entityType="listener")
    assert answer.body["results"][0] == ["0", "main", "0"]


def test_unknown_attributes(desk):
    answer = desk.ask("QUERY", {"attributeNames": ["a", "name", "b"]}, entityType="listener")
    assert answer.outcome == (404, f"Unknown attributes ['a', 'b'] for type {PREFIX}listener.")
    assert desk.ask("QUERY", {"attributeNames": ["a"]}).outcome == (404, "Unknown attributes ['a'].")


def test_rows_without_a_value_are_left_out(desk):
    assert [row["module"] for row in desk.query("log", "module")] == [*MODULES]
    assert desk.query("listener", "linkCapacity") == []
    assert desk.query("listener", "multiTenant", "linkCapacity")[1]["multiTenant"] is True


def test_base_types(desk):
    everything = {row["identity"] for row in desk.query("entity", "identity")}
    configured = {row["identity"] for row in desk.query("configurationEntity", "identity")}
    operational = {row["identity"] for row in desk.query("operationalEntity", "identity")}
    assert configured | operational == everything
    assert {"router/QDR", "log/AGENT", "policy/None", "listener/127.0.0.1:0:main", "address/0"} <= configured
    assert {"self", "logStats/AGENT", "allocator/qdr_link_t"} <= operational
    answer = desk.ask("QUERY", entityType="entity")
    assert answer.body["attributeNames"] == ["name", "identity", "type"]
    assert [row[0] for row in desk.ask("QUERY", entityType="org.amqp.management").body["results"]] == ["self"]


def test_untyped_query(desk):
    answer = desk.ask("QUERY")
    names = answer.body["attributeNames"]
    assert set(names) == {name for kind in SCHEMA.types.values() for name in kind.attributes}
    types = {row[names.index("type")].removeprefix(PREFIX) for row in answer.body["results"]}
    assert {"listener", "log", "logStats", "allocator", "router", "policy", "management"} <= types
    assert not types & {"connection", "router.link", "router.address"}


def test_pages(desk):
    every = [row["identity"] for row in desk.query("entity", "identity")]
    assert len(every) == len(set(every)) > 40
    pages: list[str] = []
    while page := desk.query("entity", "identity", offset=len(pages), count=7):
        pages += [row["identity"] for row in page]
    assert pages == every
    assert desk.query("entity", "identity", offset=-1) == []
    assert len(desk.query("entity", "identity", offset=3, count=0)) == len(every) - 3


def test_a_lower_case_query_of_a_core_type_has_no_rows(desk):
    desk.connection()
    assert desk.ask("query", entityType=PREFIX + "connection").body["results"] == []


def test_policy():
    desk = Desk()
    desk.connection()
    desk.core.connections.denied += 2
    (row,) = desk.query("policy")
    assert (row["identity"], row["maxConnections"]) == ("policy/None", 65535)
    assert [row[f"connections{name}"] for name in ("Processed", "Denied", "Current")] == [3, 2, 1]
    assert (row["totalDenials"], row["linksDenied"], row["maxMessageSizeDenied"]) == (2, 0, 0)


def test_log_statistics(desk):
    before = {row["name"]: row["noticeCount"] for row in desk.query("logStats")}
    desk.log.notice("HTTP", "x")
    after = {row["name"]: row["noticeCount"] for row in desk.query("logStats")}
    assert after["HTTP"] == before["HTTP"] + 1
    assert set(after) == {*MODULES, "MAIN", "DISPLAYNAME"}


def test_allocators_have_what_tools_need(desk):
    rows = desk.query(
        "allocator", "identity", "typeSize", "transferBatchSize", "localFreeListMax", "totalAllocFromHeap",
        "heldByThreads", "batchesRebalancedToThreads", "batchesRebalancedToGlobal",
    )  # fmt: skip
    assert rows
    assert all(value is not None for row in rows for value in row.values())
    fresh = Desk()
    fresh.link(fresh.connection())
    (slots,) = [row for row in fresh.query("allocator") if row["typeName"] == "qdr_link_t"]
    assert (slots["typeSize"], slots["totalAllocFromHeap"]) == (fresh.region.link_stride, 1)


@pytest.mark.parametrize("kind", ["router.node", "vhost", "vhostStats", "sslProfile", "connector"])
def test_types_without_rows(desk, kind):
    answer = desk.ask("QUERY", entityType=kind)
    assert (answer.body["results"], answer.body["attributeNames"]) == ([], list(SCHEMA.types[kind].attributes))


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
def test_creates_that_cannot_be(desk, properties, body, status, text):
    assert desk.ask("CREATE", body, **properties).outcome == (status, text)
