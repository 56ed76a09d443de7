"""Schema: conversion of values to attribute types, its presentation by management, and the reference page."""

import json
import re
from contextlib import nullcontext
from typing import Any

import pytest

from scripts.make_reference import REFERENCE, reference
from sluice.router.config.schema import SCHEMA
from sluice.router.config.values import InvalidValue


def attribute(entity, name):
    entity_type = SCHEMA.section(entity)
    assert entity_type is not None
    return entity_type.attributes[name]


@pytest.mark.parametrize(
    ("entity", "name", "given", "meant"),
    [
        ("router", "metadata", "x", "x"),
        ("router", "metadata", 5, "5"),
        ("router", "metadata", True, "True"),
        ("router", "metadata", None, None),
        ("listener", "maxFrameSize", " +1_000 ", 1000),
        ("listener", "maxFrameSize", 512, 512),
        ("listener", "maxFrameSize", 512.9, 512),
        ("listener", "maxFrameSize", True, 1),
        ("address", "priority", "-3", -3),
        *[("listener", "http", text, True) for text in ("yes", "TRUE", "On", 1, [0])],
        *[("listener", "http", text, False) for text in ("no", "False", "OFF", 0)],
        ("listener", "http", [], False),
        ("listener", "http", {}, False),
        ("router", "mode", "interior", "interior"),
        ("router", "mode", "1", "interior"),
        ("router", "mode", 2, "edge"),
        ("listener", "openProperties", {"a": [1, None, {"b": 2.5}]}, {"a": [1, None, {"b": 2.5}]}),
    ],
)
def test_value_is_converted_to_attribute_type(entity, name, given, meant):
    assert attribute(entity, name).convert(given) == meant
    assert type(attribute(entity, name).convert(given)) is type(meant)


@pytest.mark.parametrize(
    ("entity", "name", "given", "text"),
    [
        ("router", "metadata", {"a": "b"}, "Invalid text value"),
        ("listener", "maxFrameSize", "2.5", "invalid literal for int() with base 10: '2.5'"),
        ("listener", "maxFrameSize", "0x4", "invalid literal for int() with base 10: '0x4'"),
        ("listener", "maxFrameSize", "1__0", "invalid literal"),
        ("listener", "maxFrameSize", "", "invalid literal"),
        ("listener", "maxFrameSize", [1], "invalid literal"),
        ("listener", "maxFrameSize", "9" * 5000, "invalid literal"),
        ("listener", "maxFrameSize", "-1", "must be between 0 and 4294967295"),
        ("router", "workerThreads", "0", "Value 0 must be between 1 and 65535"),
        ("listener", "http", "maybe", "Invalid Boolean value ''maybe''"),
        ("listener", "http", "1", "Invalid Boolean value ''1''"),
        ("router", "mode", "Interior", "Invalid value for enum['standalone', 'interior', 'edge']: 'Interior'"),
        ("router", "mode", "3", "Invalid value for enum"),
        ("router", "mode", -1, "Invalid value for enum"),
        ("router", "mode", True, "Invalid value for enum"),
        ("listener", "openProperties", "x", "Properties must be a map"),
        ("listener", "openProperties", {"é": 1}, "Property keys must be ASCII encoded"),
        ("listener", "openProperties", {"a": [2**63]}, "does not fit 64 bits"),
    ],
)
def test_invalid_value_is_refused(entity, name, given, text):
    with pytest.raises(InvalidValue, match=re.escape(text)):
        attribute(entity, name).convert(given)


def test_defaults_have_the_type_of_their_attribute():
    for entity in SCHEMA.types.values():
        for each in entity.attributes.values():
            assert each.convert(each.default) == each.default, (entity.name, each.name)
            assert each.about.endswith(".")


# inter-router.md 5.
def test_defaults_equal_those_of_dispatch():
    assert attribute("router", "mode").default == "standalone"
    assert attribute("router", "helloMaxAgeSeconds").default == 3
    assert attribute("listener", "maxFrameSize").default == 16384
    assert attribute("listener", "stripAnnotations").default == "both"
    assert attribute("address", "distribution").default == "balanced"
    assert attribute("address", "presettledOverflow").default == "throttle"
    assert attribute("exchange", "address").required
    assert attribute("log", "module").required


def test_reference_page_matches_schema():
    assert REFERENCE.read_text() == reference(), "run scripts/make_reference.py"


LONG = "org.apache.qpid.dispatch."

# Types in the order in which management lists them, with the base type of each.
TYPES = {
    "entity": None,
    "org.amqp.management": "operationalEntity",
    "management": "org.amqp.management",
    "configurationEntity": "entity",
    "operationalEntity": "entity",
    "router": "configurationEntity",
    "sslProfile": "configurationEntity",
    "authServicePlugin": "configurationEntity",
    "listener": "configurationEntity",
    "connector": "configurationEntity",
    "log": "configurationEntity",
    "logStats": "operationalEntity",
    "router.config.address": "configurationEntity",
    "router.config.linkRoute": "configurationEntity",
    "router.config.autoLink": "configurationEntity",
    "router.config.exchange": "configurationEntity",
    "router.config.binding": "configurationEntity",
    "router.config.tap": "configurationEntity",
    "router.link": "operationalEntity",
    "router.address": "operationalEntity",
    "router.node": "operationalEntity",
    "connection": "operationalEntity",
    "allocator": "operationalEntity",
    "console": "configurationEntity",
    "policy": "configurationEntity",
    "vhost": "configurationEntity",
    "vhostUserGroupSettings": "configurationEntity",
    "vhostStats": "operationalEntity",
    "dummy": "entity",
    "router.connection.linkRoute": "configurationEntity",
    # types that Dispatch lacks:
    "saslUsers": "configurationEntity",
    "tokenIssuer": "configurationEntity",
    "telemetry": "configurationEntity",
    "openTelemetry": "configurationEntity",
    "tracing": "configurationEntity",
    "placement": "configurationEntity",
    "audit": "configurationEntity",
}


#: Types that Dispatch lacks.
ADDED = ("saslUsers", "tokenIssuer", "telemetry", "openTelemetry", "tracing", "placement", "audit", "router.config.tap")


def test_types_and_bases_are_listed():
    assert list(SCHEMA.types) == list(TYPES)
    for name, entity_type in SCHEMA.types.items():
        assert (entity_type.name, entity_type.long_name) == (name, LONG + name)
        assert (entity_type.bases[0].name if entity_type.bases else None) == TYPES[name]
    assert [base.name for base in SCHEMA.types["management"].bases] == [
        "org.amqp.management",
        "operationalEntity",
        "entity",
    ]
    derived = SCHEMA.derived(SCHEMA.types["org.amqp.management"])
    assert [each.name for each in derived] == ["org.amqp.management", "management"]


def test_entity_type_is_found_by_name():
    address = SCHEMA.types["router.config.address"]
    assert SCHEMA.find("router.config.address") is SCHEMA.find(LONG + "router.config.address") is address
    assert SCHEMA.find("org.amqp.management") is SCHEMA.types["org.amqp.management"]
    assert SCHEMA.section("address") is address
    for name in ("address", "Router", "", "org.apache.qpid.dispatch.", "nonsense"):
        assert SCHEMA.find(name) is None
    for name in ("router.link", "router.config.address", "Router"):
        assert SCHEMA.section(name) is None


def test_attributes_in_reporting_order():
    assert list(SCHEMA.types["log"].attributes) == [
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
    assert list(SCHEMA.types["entity"].attributes) == ["name", "identity", "type"]
    inherited = {(name, "inFile") for name in SCHEMA.types if name != "configurationEntity"}
    additions = [
        (entity_type.name, each.name)
        for entity_type in SCHEMA.types.values()
        for each in entity_type.attributes.values()
        if each.addition and entity_type.name not in ADDED and (entity_type.name, each.name) not in inherited
    ]
    assert additions == [
        ("configurationEntity", "inFile"),
        ("router", "readyWithoutUplink"),
        ("router", "uplinks"),
        ("router", "routerAbsenceSeconds"),
        ("router", "maxBufferedMegabytes"),
        ("router", "shutdownGraceSeconds"),
        ("router", "shutdownConnectionsPerSecond"),
        ("router", "allowFilesByManagement"),
        ("router", "environmentVariables"),
        ("router", "metricsUsers"),
        ("router", "historyFile"),
        ("router", "watchConfiguration"),
        ("router", "deliveriesIngressEdge"),
        ("sslProfile", "userPrefix"),
        ("sslProfile", "oldConnections"),
        ("sslProfile", "crlUrl"),
        ("sslProfile", "crlRefreshSeconds"),
        ("sslProfile", "revokedConnections"),
        ("sslProfile", "expiresInDays"),
        ("listener", "saslUsers"),
        ("listener", "tokenIssuers"),
        ("listener", "maxBufferedMegabytes"),
        ("listener", "metricsToken"),
        ("listener", "proxyNetworks"),
        ("listener", "allowedRouters"),
        ("listener", "allowedOrigins"),
        ("connector", "maxBufferedMegabytes"),
        ("connector", "parallelConnections"),
        ("connector", "allowedRouters"),
        ("connector", "websockets"),
        ("connector", "websocketPath"),
        ("connector", "proxyHost"),
        ("connector", "proxyPort"),
        ("connector", "proxyUser"),
        ("connector", "proxyPassword"),
        ("connector", "readyWithout"),
        ("connector", "up"),
        ("connector", "stateSeconds"),
        ("connector", "attempts"),
        ("connector", "downReason"),
        ("log", "format"),
        ("router.config.address", "scope"),
        ("router.config.address", "presettledOverflow"),
        ("router.config.linkRoute", "stateSeconds"),
        ("router.config.linkRoute", "attempts"),
        ("router.config.linkRoute", "refusals"),
        ("router.config.linkRoute", "lastRefusal"),
        ("router.config.linkRoute", "downReason"),
        ("router.config.autoLink", "brokerAbsenceSeconds"),
        ("router.config.autoLink", "stateSeconds"),
        ("router.config.autoLink", "attempts"),
        ("router.config.autoLink", "downReason"),
        ("router.link", "stall"),
        ("router.link", "stallSeconds"),
        ("router.link", "stallText"),
        ("connection", "deliveriesIn"),
        ("connection", "deliveriesOut"),
        ("connection", "cost"),
        ("policy", "unknownVhostsDenied"),
        ("vhost", "maxLinks"),
        ("vhost", "maxAddresses"),
        ("vhost", "maxMessagesPerSecond"),
        ("vhost", "maxOctetsPerSecond"),
        ("vhost", "maxBufferedOctets"),
        ("vhost", "onChange"),
        ("vhostUserGroupSettings", "maxConnections"),
        ("vhostUserGroupSettings", "maxLinks"),
        ("vhostUserGroupSettings", "maxAddresses"),
        ("vhostUserGroupSettings", "maxMessagesPerSecond"),
        ("vhostUserGroupSettings", "maxOctetsPerSecond"),
        ("vhostUserGroupSettings", "maxBufferedOctets"),
        ("vhostUserGroupSettings", "management"),
        ("vhostStats", "linksCurrent"),
        ("vhostStats", "addressesCurrent"),
        ("vhostStats", "messages"),
        ("vhostStats", "octets"),
        ("vhostStats", "bufferedOctets"),
        ("vhostStats", "creditHeldBack"),
        ("vhostStats", "groupState"),
    ]


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("entity", []),
        ("listener", ["CREATE", "DELETE", "READ"]),
        ("log", ["UPDATE", "READ"]),
        ("router", ["READ"]),
        ("router.link", ["UPDATE", "READ"]),
        ("dummy", ["CREATE", "READ", "UPDATE", "DELETE", "CALLME"]),
        (
            "management",
            [
                "GET-SCHEMA",
                "GET-JSON-SCHEMA",
                "GET-LOG",
                "PROFILE",
                "QUERY",
                "GET-TYPES",
                "GET-ANNOTATIONS",
                "GET-OPERATIONS",
                "GET-ATTRIBUTES",
                "GET-MGMT-NODES",
                "READ",
            ],
        ),
    ],
)
def test_operations_of_type_are_listed(name, operations):
    assert list(SCHEMA.types[name].operations) == operations


def test_columns_of_core_types_are_counted():
    columns = {name: each.core_columns for name, each in SCHEMA.types.items() if each.core_columns is not None}
    assert {name: len(each) for name, each in columns.items()} == {
        "router": 33,
        "router.config.address": 11,
        "router.config.linkRoute": 13,
        "router.config.autoLink": 16,
        "router.config.exchange": 12,
        "router.config.binding": 7,
        "router.config.tap": 16,
        "router.link": 29,
        "router.address": 21,
        "connection": 25,
        "console": 0,
        "router.connection.linkRoute": 6,
    }
    prefix, histogram = columns["router.config.address"][3], columns["router.link"][24]
    assert (prefix.name, prefix.amqp_type, prefix.nullable) == ("prefix", "string", True)
    assert (histogram.name, histogram.amqp_type, histogram.nullable) == ("ingressHistogram", "list of ulong", True)


def test_schema_dump_equals_that_of_dispatch():
    dump = SCHEMA.dump()
    assert list(dump) == ["prefix", "entityTypes"]
    assert dump["prefix"] == "org.apache.qpid.dispatch"
    types: Any = dump["entityTypes"]
    listed = [name for name in TYPES if name not in ADDED]  # Dispatch's types
    assert [name.removeprefix("router.config.") for name in listed] == list(types)
    log = types["log"]
    assert list(log) == ["attributes", "operations", "description", "fullyQualifiedType"]
    assert list(log["attributes"]) == [name for name in SCHEMA.types["log"].attributes if name != "type"]
    assert log["attributes"]["includeSource"] == {
        "type": "boolean",
        "description": attribute("log", "includeSource").about,
    }
    module = log["attributes"]["module"]
    assert (list(module), module["type"][0], module["required"]) == (
        ["type", "required", "description"],
        "ROUTER",
        True,
    )
    assert list(log["attributes"]["name"]) == ["type", "unique", "description"]
    assert list(types["address"]["attributes"]["distribution"]) == ["type", "default", "description"]
    assert "default" not in types["address"]["attributes"]["waypoint"]  # false is omitted
    assert types["router.link"]["attributes"]["settleRate"]["graph"] is True
    assert (types["console"]["deprecated"], types["console"]["singleton"]) == (True, True)
    assert "references" not in types["sslProfile"]
    # Dispatch's default; the router's own is the number of cores
    assert types["router"]["attributes"]["workerThreads"]["default"] == 4
    assert types["sslProfile"]["attributes"]["passwordFile"]["deprecated"] is True
    assert "operations" not in types["entity"]
    assert json.loads(json.dumps(dump)) == dump


def test_attributes_are_convertible_and_have_change_class():
    for entity_type in SCHEMA.types.values():
        for each in entity_type.attributes.values():
            assert each.change in ("live", "reconnect", "restart")
            assert each.convert(None) is None
            if each.type not in ("map", "list", "properties"):
                with pytest.raises(InvalidValue) if each.type != "boolean" else nullcontext():
                    each.convert({"a": "b"})
