"""Answers of the management node about types, attributes, operations and the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interop.dispatch.expected import COMMON, KINDS, EntityKind
from tests.interop.dispatch.node import PREFIX, ManagementNode, qualified_name, refused
from tests.system.router import RouterProcess

#: Keys of the schema dump: short names without `router.config.`.
DUMP_KEYS = [name.removeprefix("router.config.") for name in KINDS]


def in_order(wanted: list[str], given: list[str]) -> bool:
    """True if `given` contains `wanted` in order. Sluice may have more names than 1.19."""
    rest = iter(given)
    return all(name in rest for name in wanted)


def test_get_types_lists_types_and_bases(node: ManagementNode) -> None:
    types = node.ask("GET-TYPES")
    assert in_order([kind.long_name for kind in KINDS.values()], list(types))
    assert types == {kind.long_name: [qualified_name(base) for base in kind.bases] for kind in KINDS.values()}


@pytest.mark.parametrize("base", ["listener", "configurationEntity", "org.amqp.management", "entity"])
def test_get_types_of_base_lists_derived_types(base: str, node: ManagementNode) -> None:
    """The answer has the type and all types derived from it."""
    types = node.ask("GET-TYPES", entityType=qualified_name(base))
    assert set(types) == {qualified_name(base)} | {kind.long_name for kind in KINDS.values() if base in kind.bases}


def test_get_types_accepts_short_name(node: ManagementNode) -> None:
    assert node.ask("GET-TYPES", entityType="listener") == {
        PREFIX + "listener": [PREFIX + "configurationEntity", PREFIX + "entity"]
    }


def test_get_operations_lists_operations(node: ManagementNode) -> None:
    operations = node.ask("GET-OPERATIONS")
    assert operations == {kind.long_name: kind.operations for kind in KINDS.values()}
    assert node.ask("GET-OPERATIONS", entityType=PREFIX + "dummy") == {
        PREFIX + "dummy": ["CREATE", "READ", "UPDATE", "DELETE", "CALLME"]
    }


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_get_attributes_lists_own_attributes_first(kind: EntityKind, node: ManagementNode) -> None:
    """The type's own attributes come first, in order, then name, identity and type."""
    attributes = node.ask("GET-ATTRIBUTES", entityType=kind.long_name)
    assert list(attributes) == [kind.long_name]
    names = attributes[kind.long_name]
    assert in_order(kind.attributes, names), [name for name in kind.attributes if name not in names]
    assert names[-3:] == COMMON
    assert len(set(names)) == len(names)


def test_get_attributes_without_type_lists_types(node: ManagementNode) -> None:
    everything = node.ask("GET-ATTRIBUTES")
    assert list(everything) == [kind.long_name for kind in KINDS.values()]


def test_get_annotations_returns_empty_map(node: ManagementNode) -> None:
    assert node.ask("GET-ANNOTATIONS") == {}


def test_get_mgmt_nodes_of_standalone_router_is_empty(node: ManagementNode) -> None:
    """A standalone router is in no network, so it knows no node."""
    assert node.ask("GET-MGMT-NODES") == []


@pytest.mark.parametrize("operation", ["GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS"])
def test_unknown_entity_type_is_refused(operation: str, node: ManagementNode) -> None:
    assert refused(node.ask, operation, entityType="nosuch") == (400, "No such entity type 'nosuch'")


def test_operations_are_case_insensitive(node: ManagementNode) -> None:
    assert node.ask("get-types") == node.ask("GET-TYPES")
    code, said = refused(node.ask, "GET_TYPES")
    assert code == 501
    assert said.startswith(f"Operation 'GET_TYPES' not implemented for '{PREFIX}management' ['GET-SCHEMA', ")


@pytest.mark.parametrize("operation", ["REGISTER", "DEREGISTER", "NOSUCH"])
def test_unknown_operation_is_refused(operation: str, node: ManagementNode) -> None:
    code, said = refused(node.ask, operation)
    assert code == 501
    assert said.startswith(f"Operation '{operation}' not implemented for '{PREFIX}management' [")


# --- schema -------------------------------------------------------------------------------------------------------


@pytest.fixture
def schema(node: ManagementNode) -> dict[str, Any]:
    """Body of GET-SCHEMA, requested by identity alone."""
    body: dict[str, Any] = node.call(node.request(operation="GET-SCHEMA", identity="self")).body
    return body


def test_schema_forms_are_equal(node: ManagementNode, schema: dict[str, Any]) -> None:
    text = node.call(node.request(operation="GET-JSON-SCHEMA", identity="self")).body
    assert isinstance(text, str)
    assert "\n" not in text
    assert '": {"' in text
    assert json.loads(text) == schema
    indented = node.ask("GET-JSON-SCHEMA", indent=2)
    assert indented.startswith("{\n  ")
    assert json.loads(indented) == schema
    assert json.loads(node.ask("GET-SCHEMA-JSON")) == schema
    assert refused(node.ask, "GET-JSON-SCHEMA", indent="much")[0] == 500


def test_schema_lists_entity_types(schema: dict[str, Any]) -> None:
    assert set(schema) == {"prefix", "entityTypes"}
    assert schema["prefix"] == PREFIX.rstrip(".")
    assert list(schema["entityTypes"]) == DUMP_KEYS
    keys = ["attributes", "operations", "description", "fullyQualifiedType", "references", "deprecated", "singleton"]
    for kind, key in zip(KINDS.values(), DUMP_KEYS, strict=True):
        definition = schema["entityTypes"][key]
        assert in_order(list(definition), keys)
        assert definition["fullyQualifiedType"] == kind.long_name
        assert in_order([*kind.attributes, "name", "identity"], list(definition["attributes"]))
        assert "type" not in definition["attributes"]
        assert definition.get("operations", []) == kind.operations


def test_schema_marks_singletons_and_deprecated_types(schema: dict[str, Any]) -> None:
    types = schema["entityTypes"]
    singletons = [key for key, definition in types.items() if definition.get("singleton")]
    assert singletons == ["management", "router", "console", "policy"]
    assert [key for key, definition in types.items() if definition.get("deprecated")] == ["console"]


def test_schema_describes_attributes(schema: dict[str, Any]) -> None:
    """Attributes have a type or list of values, a default unless empty, required, unique and graph."""
    types = schema["entityTypes"]
    router = types["router"]["attributes"]
    assert router["mode"]["type"] == ["standalone", "interior", "edge"]
    assert router["mode"]["default"] == "standalone"
    assert router["helloIntervalSeconds"]["default"] == 1
    assert "default" not in router["allowUnsettledMulticast"]
    assert router["acceptedDeliveries"]["graph"] is True
    assert "graph" not in router["id"]
    listener = types["listener"]["attributes"]
    assert "default" not in listener["host"]
    assert listener["port"]["default"] == "amqp"
    assert listener["port"]["type"] == "string"
    assert listener["name"]["unique"] is True
    assert listener["identity"]["unique"] is True
    assert types["log"]["attributes"]["module"]["required"] is True
    assert types["vhost"]["attributes"]["hostname"]["required"] is True
    assert types["vhostUserGroupSettings"]["attributes"]["maxSenders"]["default"] == 2147483647
    for definition in types.values():
        for attribute in definition["attributes"].values():
            assert set(attribute) <= {"type", "default", "required", "unique", "deprecated", "description", "graph"}
            assert attribute["description"]
            assert all(attribute.values())


# --- profile ------------------------------------------------------------------------------------------------------


def test_profile_starts_and_stops(node: ManagementNode) -> None:
    assert refused(node.ask, "PROFILE", stop=True) == (400, "Profiler not started")
    assert node.ask("PROFILE", start=True) == {}
    assert isinstance(node.ask("PROFILE", stop=True), str)


def test_management_entity_can_be_read(node: ManagementNode, shared_router: RouterProcess) -> None:
    for entity in (node.read(identity="self"), node.read(kind="management", name="self")):
        assert (entity.name, entity.identity, entity.type) == ("self", "self", PREFIX + "management")
    answer = refused(node.read, kind="org.amqp.management", identity="self")
    text = f"Entity type '{PREFIX}management' does match requested type '{PREFIX}org.amqp.management'"
    assert answer == (404, text)
