"""Operations of the management entity (management.md 5.11)."""

import json

import pytest

from sluice.router.config.schema import SCHEMA
from sluice.router.log import KEPT_LINES
from tests.peer.management import PREFIX
from tests.peer.types import Int, ULong
from tests.unit.supervisor.management.managed_router import VERBOSE, ManagedRouter


@pytest.fixture(scope="module")
def router():
    return ManagedRouter()


@pytest.mark.parametrize("operation", ["GET-TYPES", "get-types", "Get-Types"])
@pytest.mark.parametrize("target", [{}, {"name": "self"}, {"identity": "self", "type": "org.amqp.management"}])
def test_get_types_lists_all_types(router, operation, target):
    body = router.ask(operation, **target).body
    assert list(body) == [kind.long_name for kind in SCHEMA.listed]
    assert len(body) == len(SCHEMA.listed)
    assert body[PREFIX + "listener"] == [PREFIX + "configurationEntity", PREFIX + "entity"]
    assert body[PREFIX + "entity"] == []


def test_get_types_lists_derived_types(router):
    body = router.ask("GET-TYPES", entityType="org.amqp.management").body
    assert list(body) == [PREFIX + "org.amqp.management", PREFIX + "management"]


def test_attributes_and_operations_are_listed(router):
    attributes = router.ask("GET-ATTRIBUTES", entityType="log").body
    assert attributes == {
        PREFIX + "log": [
            "module",
            "enable",
            "includeTimestamp",
            "includeSource",
            "outputFile",
            "format",
            "inFile",
            "name",
            "identity",
            "type",
        ]
    }
    assert len(router.ask("GET-ATTRIBUTES").body) == len(SCHEMA.listed)
    operations = router.ask("GET-OPERATIONS").body
    assert operations[PREFIX + "entity"] == []
    assert operations[PREFIX + "log"] == ["UPDATE", "READ"]
    assert operations[PREFIX + "management"] == [
        "GET-SCHEMA", "GET-JSON-SCHEMA", "GET-LOG", "PROFILE", "QUERY", "GET-TYPES", "GET-ANNOTATIONS",
        "GET-OPERATIONS", "GET-ATTRIBUTES", "GET-MGMT-NODES", "READ",
    ]  # fmt: skip


@pytest.mark.parametrize("operation", ["GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS"])
@pytest.mark.parametrize("given", ["nope", 5])
def test_unknown_types_are_refused(router, operation, given):
    assert router.ask(operation, entityType=given).outcome == (400, f"No such entity type '{given}'")


def test_annotations_and_nodes_are_empty(router):
    assert router.ask("GET-ANNOTATIONS").body == {}
    assert router.ask("GET-MGMT-NODES").body == []


def test_schema_is_returned_as_map(router):
    body = router.ask("GET-SCHEMA").body
    assert body == SCHEMA.dump()
    assert list(body) == ["prefix", "entityTypes"]


@pytest.mark.parametrize("operation", ["GET-JSON-SCHEMA", "GET-SCHEMA-JSON"])
def test_json_schema_is_returned_as_text(router, operation):
    text = router.ask(operation).body
    assert json.loads(text) == SCHEMA.dump()
    assert "\n" not in text
    assert text.startswith('{"prefix": "org.apache.qpid.dispatch", ')
    assert router.ask(operation, indent=ULong(2)).body.startswith('{\n  "prefix"')
    assert router.ask(operation, indent="4").body.startswith('{\n    "prefix"')


@pytest.mark.parametrize("indent", ["x", 1.5, 10**9, True])
def test_invalid_indent_is_refused(router, indent):
    assert router.ask("GET-JSON-SCHEMA", indent=indent).status == 500


def test_get_log_returns_recent_lines():
    router = ManagedRouter(log=VERBOSE)
    for number in range(5):
        router.log.info("HTTP", f"line {number}")
    rows = router.ask("GET-LOG", limit=100).body
    texts = [row[2] for row in rows]
    at = texts.index("line 0")
    assert texts[at : at + 5] == [f"line {number}" for number in range(5)]
    row = rows[at]
    assert row[:2] == ["HTTP", "info"]
    assert row[3].endswith("test_operations.py")
    assert [type(value) for value in row[4:]] == [Int, Int]
    for limit in (0, -5, None, "0"):
        assert len(router.ask("GET-LOG", limit=limit).body) > 6
    assert len(router.ask("GET-LOG", limit="2").body) == 2
    assert router.ask("GET-LOG", limit="two").outcome == (
        500,
        "ValueError: invalid literal for int() with base 10: 'two'",
    )
    for number in range(KEPT_LINES + 10):
        router.log.info("HTTP", f"more {number}")
    assert len(router.ask("GET-LOG").body) == KEPT_LINES


def test_requests_are_logged():
    """The operation appears in the log at level debug, as it was sent (management.md 4.7)."""
    router = ManagedRouter(log=VERBOSE)
    router.ask("Get-Types")
    router.ask("READ", name="nope")
    rows = [row for row in router.ask("GET-LOG").body if row[0] == "AGENT"]
    assert any(
        row[1] == "debug" and row[2].startswith("Agent request Message(") and "Get-Types" in row[2] for row in rows
    )
    assert any(row[1] == "debug" and row[2].startswith("Agent response: Message(") for row in rows)
    assert ["error", "Error performing READ: No entity with name=nope"] in [row[1:3] for row in rows]


def test_failed_requests_do_not_fill_the_log():
    router = ManagedRouter(log=VERBOSE)
    for number in range(100):
        assert router.ask("READ", name=f"nope {number}").outcome[0] == 404
    errors = [row[2] for row in router.ask("GET-LOG").body if row[1] == "error"]
    assert errors == ["Error performing READ: No entity with name=nope 0"]
    assert router.log.counters()["AGENT"]["error"] == 100


def test_profile_is_started_and_stopped():
    router = ManagedRouter()
    assert router.ask("PROFILE", stop=1).outcome == (400, "Profiler not started")
    assert router.ask("PROFILE").outcome == (400, "Profiler not started")
    assert (router.ask("PROFILE", start="yes").status, router.ask("PROFILE", start="again").status) == (200, 200)
    bad = router.ask("PROFILE")
    assert (bad.status, bad.description[:20]) == (400, "Bad profile request ")
    router.query("listener")
    report = router.ask("PROFILE", stop=True)
    assert (report.status, "store.py" in report.body) == (200, True)
    assert router.ask("PROFILE", stop=1).outcome == (400, "Profiler not started")
