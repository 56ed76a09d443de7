"""Management operation QUERY: columns and AMQP types, chosen columns, pages, errors, queries without a type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import symbol
from proton.utils import BlockingConnection

from tests.interop.dispatch.expected import COMMON, CORE, KINDS, EntityKind
from tests.interop.dispatch.node import PREFIX, ManagementNode, qualified_name, refused
from tests.system.router import RouterProcess, Section

SECTIONS: list[Section] = [
    ("router", {"metadata": "about this one", "helloIntervalSeconds": 2}),
    ("address", {"pattern": "p/#", "distribution": "closest", "name": "patterned", "priority": 3, "waypoint": True}),
    ("exchange", {"name": "ex", "address": "ex/in", "alternateAddress": "ex/other"}),
    ("binding", {"exchangeName": "ex", "bindingKey": "a.b", "nextHopAddress": "ex/out", "name": "bound"}),
]

#: Minimum number of rows, by core type that has rows here.
WITH_ROWS = {"router": 1, "router.address": 4, "router.link": 2, "connection": 1, "router.config.address": 5,
             "router.config.exchange": 1, "router.config.binding": 1}  # fmt: skip
#: Store types that always have entities.
STORED = ["listener", "log", "logStats", "management", "policy", "router"]
#: Log modules that have an entity.
MODULES = [
    "ROUTER", "ROUTER_CORE", "ROUTER_HELLO", "ROUTER_LS", "ROUTER_MA", "MESSAGE", "SERVER", "AGENT", "AUTHSERVICE",
    "CONTAINER", "ERROR", "POLICY", "HTTP", "CONN_MGR", "PYTHON", "PROTOCOL", "DEFAULT",
]  # fmt: skip


@pytest.fixture
def clients(shared_router: RouterProcess) -> Iterator[list[BlockingConnection]]:
    """Connection with a sender and a receiver, which appear in queries."""
    made = [BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10)]
    made[0].create_receiver("balanced/seen", name="seen")
    made[0].create_sender("balanced/seen")
    yield made
    for connection in made:
        connection.close()


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.name)
def test_core_columns_have_order_and_types(
    kind: EntityKind, node: ManagementNode, clients: list[BlockingConnection]
) -> None:
    """A query has all columns in a fixed order, and each value has the column's type."""
    rows = node.query(kind.name)
    assert rows.names == kind.column_names
    assert len(rows.results) >= WITH_ROWS.get(kind.name, 0)
    wrong = [each for row in rows.dicts() for each in kind.type_errors(row)]
    assert not wrong
    for row in rows.dicts():
        assert row.get("type", kind.long_name) == kind.long_name


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.name)
def test_chosen_core_columns_keep_requested_order(
    kind: EntityKind, node: ManagementNode, clients: list[BlockingConnection]
) -> None:
    """A query has exactly the requested columns, in that order, including repetitions."""
    names = [*reversed(kind.column_names), "identity", "identity"]
    rows = node.query(kind.name, names)
    assert rows.names == names
    assert all(len(row) == len(names) for row in rows.results)


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.name)
def test_unknown_column_is_refused(kind: EntityKind, node: ManagementNode) -> None:
    """1.19 answers with `name` in place of the unknown column."""
    text = f"Unknown attributes ['bogus'] for type {PREFIX}{kind.name}."
    assert refused(node.query, kind.name, ["identity", "bogus", "name"]) == (404, text)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_entity_types_can_be_queried(kind: EntityKind, node: ManagementNode) -> None:
    """Each type answers; entities have the requested type or a type derived from it."""
    if kind.name == "console":
        assert refused(node.query, "console") == (403, "Forbidden")
        return
    rows = node.query(kind.name)
    assert len(set(rows.names)) == len(rows.names)
    derived = {kind.long_name} | {each.long_name for each in KINDS.values() if kind.name in each.bases}
    if "type" in rows.names:
        assert {row["type"] for row in rows.dicts()} <= derived
    if not kind.columns:
        assert rows.names[-3:] == COMMON
        own = KINDS[kind.name].attributes
        assert [name for name in rows.names if name in own] == own


@pytest.mark.parametrize("kind", STORED)
def test_stored_entities_have_name_and_identity(kind: str, node: ManagementNode) -> None:
    """Stored entities always have name, identity and type; identities begin with the short type."""
    query = node.query(kind) if kind != "router" else node.query()
    rows = [row for row in query.dicts() if row["type"] == qualified_name(kind)]
    assert rows
    for row in rows:
        assert row["name"]
        assert row["identity"] == "self" if kind == "management" else row["identity"].startswith(kind + "/")


def test_untyped_query_returns_stored_entities(node: ManagementNode) -> None:
    """The query of `qdmanage query` has store entities, but no links, addresses or connections."""
    rows = node.query().dicts()
    types = {row["type"].removeprefix(PREFIX) for row in rows}
    assert {"listener", "log", "logStats", "router", "policy", "management"} <= types
    assert not types & {"router.link", "router.address", "connection"}
    identities = [row["identity"] for row in rows]
    assert len(set(identities)) == len(identities)
    short = {(row["name"], row["type"]) for row in node.query(names=["type", "name"]).dicts()}
    assert short == {(row["name"], row["type"]) for row in rows}


def test_untyped_query_columns_cover_attributes(node: ManagementNode) -> None:
    names = set(node.query().names)
    for kind in KINDS.values():
        assert names >= {*kind.attributes, *COMMON}, kind.name


def test_stored_router_shows_configuration(node: ManagementNode) -> None:
    """The stored router entity shows the configuration."""
    entity = node.read(identity="router/QDR")
    assert (entity.name, entity.type) == ("router/QDR", PREFIX + "router")
    assert (entity.id, entity.mode, entity.area) == ("QDR", "standalone", "0")
    assert entity.helloIntervalSeconds == 2
    assert entity.metadata == "about this one"
    assert entity.defaultDistribution == "balanced"
    assert entity.hostName
    assert entity.nodeCount == 0


def test_core_router_row_shows_state(node: ManagementNode, shared_router: RouterProcess) -> None:
    row = node.one("router")
    assert (row["name"], row["id"], row["identity"]) == ("QDR", "QDR", "1")
    assert (row["mode"], row["area"], row["metadata"]) == ("standalone", "0", "about this one")
    assert row["workerThreads"] == shared_router.workers
    assert row["version"]
    assert row["connectionCount"] >= 1
    assert row["linkCount"] >= 2
    assert row["memoryUsage"] > 0
    assert (row["nodeCount"], row["linkRouteCount"], row["autoLinkCount"]) == (0, 0, 0)


def test_log_entities_cover_modules(node: ManagementNode) -> None:
    """Each module has a log entity, and each log source a logStats entity."""
    logs = node.rows("log")
    assert sorted(row["identity"] for row in logs) == sorted(f"log/{module}" for module in MODULES)
    assert all(row["name"] == row["identity"] for row in logs)
    default = node.read(identity="log/DEFAULT")
    assert default.attributes == {
        "module": "DEFAULT", "enable": "trace+", "includeTimestamp": True, "includeSource": True,
        "outputFile": "stderr", "name": "log/DEFAULT", "identity": "log/DEFAULT", "type": PREFIX + "log",
    }  # fmt: skip
    stats = node.rows("logStats")
    assert {row["name"] for row in stats} >= {*MODULES, "MAIN"}
    assert all(row["identity"] == f"logStats/{row['name']}" for row in stats)
    core = next(row for row in stats if row["name"] == "ROUTER_CORE")
    assert core["infoCount"] > 0
    own = next(row for row in stats if row["name"] == "DEFAULT")
    assert [own[f"{level}Count"] for level in ("trace", "debug", "info", "notice", "warning", "error")] == [0] * 6


@pytest.mark.parametrize("kind", ["router.address", "router.config.address", "log", "logStats", None])
def test_query_pages_form_whole_result(kind: str | None, node: ManagementNode) -> None:
    """Each type supports `offset` and `count`; all pages together are the whole result."""
    whole = node.query(kind, ["identity"]).results
    assert len(whole) > 4
    pages: list[Any] = []
    for offset in range(0, len(whole) + 2, 2):
        page = node.page(kind, ["identity"], offset, 2).results
        assert len(page) == min(2, max(0, len(whole) - offset))
        pages += page
    assert pages == whole
    assert node.page(kind, ["identity"], len(whole), 500).results == []
    assert node.page(kind, ["identity"], 1, 0).results == whole[1:]
    assert node.query(kind, ["identity"], count=3).results == whole[:3]


def test_offset_and_count_accept_text(node: ManagementNode) -> None:
    request = node.node_request({}, operation="QUERY", entityType=PREFIX + "router.address", offset="1", count="2")
    assert len(node.call(request).body["results"]) == 2


def test_negative_offset_returns_no_rows(node: ManagementNode) -> None:
    assert node.page("router.address", [], -1, 10).results == []


@pytest.mark.parametrize("body", [{}, {"attributeNames": []}, {"attributeNames": "name"}, {"attributeNames": None}])
def test_query_without_columns_returns_common_columns(body: Any, node: ManagementNode) -> None:
    for kind in ("router.address", "log"):
        answer = node.call(node.node_request(body, operation="QUERY", entityType=PREFIX + kind)).body
        assert set(COMMON) <= set(answer["attributeNames"])
        assert answer["results"]


def test_query_accepts_symbols_for_strings(node: ManagementNode) -> None:
    request = node.node_request({}, operation=symbol("QUERY"), entityType=symbol(PREFIX + "listener"))
    assert len(node.call(request).body["results"]) == 1


def test_invalid_query_is_refused(node: ManagementNode) -> None:
    assert refused(node.query, "nosuch") == (400, f"No such entity type '{PREFIX}nosuch'")
    text = f"Unknown attributes ['bogus', 'other'] for type {PREFIX}listener."
    assert refused(node.query, "listener", ["bogus", "name", "other"]) == (404, text)
    assert refused(node.query, None, ["bogus", "name"]) == (404, "Unknown attributes ['bogus'].")


def test_rows_without_values_are_omitted(node: ManagementNode) -> None:
    rows = node.query(names=["bindingKey", "arg1"])
    assert all(any(value is not None for value in row) for row in rows.results)


def test_standalone_router_has_no_nodes(node: ManagementNode) -> None:
    assert node.query("router.node").results == []


# --- the entities of this configuration ----------------------------------------------------------------------------


def test_configured_entities_appear_in_core(node: ManagementNode) -> None:
    address = node.one("router.config.address", name="patterned")
    assert {name: address[name] for name in KINDS["router.config.address"].column_names if name != "identity"} == {
        "name": "patterned", "type": PREFIX + "router.config.address", "prefix": None, "pattern": "p/#",
        "distribution": "closest", "waypoint": True, "ingressPhase": 0, "egressPhase": 1, "priority": 3,
        "fallback": False,
    }  # fmt: skip
    unavailable = node.one("router.config.address", prefix="unavailable")
    assert unavailable["distribution"] is None
    exchange = node.one("router.config.exchange")
    assert (exchange["name"], exchange["address"], exchange["alternateAddress"]) == ("ex", "ex/in", "ex/other")
    assert (exchange["matchMethod"], exchange["phase"], exchange["bindingCount"]) == ("amqp", 0, 1)
    binding = node.one("router.config.binding")
    assert (binding["exchangeName"], binding["bindingKey"], binding["nextHopAddress"]) == ("ex", "a.b", "ex/out")
    assert (binding["name"], binding["nextHopPhase"], binding["matchedCount"]) == ("bound", 0, 0)


def test_core_identities_are_unique_across_types(node: ManagementNode, clients: list[BlockingConnection]) -> None:
    """Links, configured addresses, exchanges and bindings take their identities from one counter."""
    kinds = ["router.link", "router.config.address", "router.config.exchange", "router.config.binding"]
    identities = [row["identity"] for kind in kinds for row in node.rows(kind)]
    assert all(identity.isdecimal() and int(identity) > 0 for identity in identities)
    assert len(set(identities)) == len(identities)


def test_read_returns_query_columns(
    node: ManagementNode, clients: list[BlockingConnection], fresh: Callable[[str], str]
) -> None:
    """READ of a core entity by identity, or by name where supported, returns all columns, including nulls."""
    for kind in ("router.config.address", "router.config.exchange", "router.config.binding", "router.address"):
        for row in node.rows(kind)[:3]:
            for key in ("identity", "name"):
                if row[key] is not None:
                    assert set(node.read(kind, **{key: row[key]}).attributes) == set(row)
    connection = node.rows("connection")[0]
    assert node.read("connection", identity=connection["identity"]).container == connection["container"]
    link = node.rows("router.link")[0]
    assert node.read("router.link", identity=link["identity"]).linkName == link["linkName"]


def test_invalid_read_is_refused(node: ManagementNode) -> None:
    """Refusals of sections 5.4 and 5.5 of docs/spec/management.md, one by one."""
    assert refused(node.read, "router", identity="1") == (403, "Forbidden")
    assert refused(node.read, "console", identity="1") == (403, "Forbidden")
    assert refused(node.read, "router.address") == (404, "Not Found")
    assert refused(node.read, "router.address", identity="M0none") == (404, "Not Found")
    assert refused(node.read, "router.link", identity="999999") == (404, "Not Found")
    assert refused(node.read, "connection", name="x") == (400, "Name not supported. Identity required")
    assert refused(node.read, "connection", identity="999999") == (404, "Not Found")
    for kind in ("address", "linkRoute", "autoLink", "exchange"):
        assert refused(node.read, f"router.config.{kind}") == (400, "No name or identity provided")
        assert refused(node.read, f"router.config.{kind}", name="none") == (404, "Not Found")
    assert refused(node.read, "router.config.binding") == (400, "No binding name or identity provided")
    assert refused(node.read, "router.config.binding", name="none") == (404, "Not Found")
    assert refused(node.read, "router.connection.linkRoute") == (400, "No name or identity provided")
    assert refused(node.read, "router.connection.linkRoute", name="none") == (404, "Not Found")
    assert refused(node.read, "listener") == (400, f"{PREFIX}listener: No name or identity provided")
    assert refused(node.read, "listener", name="x") == (404, "No entity with name=x")
    assert refused(node.read, "listener", name="x", identity="y") == (404, "No entity with name=x identity=y")
    text = f"Entity type '{PREFIX}log' does not extend requested type '{PREFIX}listener'"
    assert refused(node.read, "listener", identity="log/AGENT") == (400, text)
    assert refused(node.read, "nosuch", identity="x") == (400, f"No such entity type '{PREFIX}nosuch'")
