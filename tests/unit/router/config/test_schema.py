"""The schema: conversion of values to the types of attributes, and its agreement with the user's reference."""

import re

import pytest

from router.config.schema import SCHEMA
from router.config.values import InvalidValue
from scripts.make_reference import REFERENCE, reference


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
def test_convert(entity, name, given, meant):
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
        ("router", "workerThreads", "0", "Value 0 must be between 1 and 64"),
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
def test_convert_refuses(entity, name, given, text):
    with pytest.raises(InvalidValue, match=re.escape(text)):
        attribute(entity, name).convert(given)


def test_defaults_have_the_type_of_their_attribute():
    for entity in SCHEMA.types.values():
        for each in entity.attributes.values():
            assert each.convert(each.default) == each.default, (entity.name, each.name)
            assert each.about.endswith(".")


def test_defaults_of_dispatch():
    assert attribute("router", "mode").default == "standalone"
    assert attribute("router", "helloMaxAgeSeconds").default == 3
    assert attribute("listener", "maxFrameSize").default == 16384
    assert attribute("listener", "stripAnnotations").default == "both"
    assert attribute("address", "distribution").default == "balanced"
    assert attribute("address", "presettledOverflow").default == "throttle"
    assert attribute("exchange", "address").required
    assert attribute("log", "module").required


def test_reference_is_as_the_schema_says():
    assert REFERENCE.read_text() == reference(), "run scripts/make_reference.py"
