"""Advice on names of Dispatch 0.x."""

import re

import pytest

from sluice.router.config import old_names
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text
from sluice.router.config.schema import SCHEMA
from tests.unit.router.config.sections import section


def advice(text: str) -> str:
    """Return the first error of a file."""
    with pytest.raises(ConfigError) as raised:
        load_text("x.conf", text)
    return str(raised.value)


@pytest.mark.parametrize("name", ["fixed-address", "waypoint", "container", "linkRoutePattern"])
def test_section_of_old_version_is_refused_with_present_form(name: str) -> None:
    assert "(a name of 0.x: write section '" in advice(section(name))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (section("listener", "addr: 0.0.0.0"), "write 'host'"),
        (section("connector", "name: c", "addr: b"), "write 'host'"),
        (section("listener", "role: on-demand"), "write 'route-container'"),
        (section("log", "module: CONFIG"), "leave the section out"),
        (section("linkRoute", "prefix: a", "direction: in", "connector: b"), "write 'connection'"),
    ],
)
def test_attribute_of_old_version_is_refused_with_present_form(text: str, form: str) -> None:
    assert advice(text).endswith(f" (a name of 0.x: {form})")


def test_advice_names_present_sections_and_attributes() -> None:
    """Each quoted word is a section, or an attribute of that type."""
    for text in old_names._SECTIONS.values():
        for name in re.findall(r"section '(\w+)'", text):
            assert SCHEMA.section(name) is not None
    for entity_type, advices in old_names._ATTRIBUTES.items():
        attributes = SCHEMA.types[entity_type].attributes
        for name, text in advices.items():
            known = {each for one in attributes.values() for each in (one.name, one.old_name, one.alias)}
            assert name not in known
            for written in re.findall(r"write '(\w+)", text):
                assert written in attributes
