"""Validation of sections by the schema: defaults, other names of attributes, and errors (management.md 2.5, 2.6)."""

import pytest

from sluice.router.config.errors import Problems
from sluice.router.config.grammar import parse
from sluice.router.config.validate import similar, validate
from tests.unit.router.config.sections import LONG, section


def validated(name, *lines):
    """Return the entity of a section, its errors as (line, message), and its warnings."""
    problems = Problems("x.conf")
    (found,) = parse(section(name, *lines), problems)
    entity = validate(found, problems)
    errors = [(error.line, error.message.removeprefix(f"{LONG}{name}: ")) for error in problems.errors]
    return entity, errors, problems.warnings


def test_values_are_converted_and_completed_with_defaults():
    entity, errors, warnings = validated("listener", "port: 5672", "http: yes", "linkCapacity: 7")
    assert (errors, warnings) == ([], [])
    assert (entity.text("port"), entity.flag("http"), entity.number("linkCapacity")) == ("5672", True, 7)
    assert entity.text("role") == "normal"
    assert (entity.line_of("port"), entity.line_of("role")) == (2, 1)


def test_unknown_attribute_is_refused_with_suggestion():
    _, errors, _ = validated("listener", "port: 1", "hosst: x", "identity: x")
    assert errors == [
        (3, f"Unknown attribute 'hosst' for '{LONG}listener' (did you mean 'host'?)"),
        (4, "Attribute 'identity' is made by the router"),
    ]


def test_invalid_value_is_replaced_by_default():
    entity, errors, _ = validated("listener", "port: 1", "maxFrameSize: big")
    assert [line for line, _ in errors] == [3]
    assert (entity.number("maxFrameSize"), entity.refused) == (16384, {"maxFrameSize"})


def test_entity_without_required_attribute_is_none():
    entity, errors, _ = validated("exchange", "name: x")
    assert (entity, errors) == (None, [(1, f"{LONG}router.config.exchange: Missing required attribute 'address'")])


def test_entity_with_invalid_required_attribute_is_none_with_single_error():
    entity, errors, _ = validated("telemetry", "path: {", "}")
    assert entity is None
    assert len(errors) == 1


def test_old_name_of_attribute_gives_warning():
    entity, errors, warnings = validated("autoLink", "address: a", "dir: in")
    assert (errors, entity.text("direction")) == ([], "in")
    ((module, text),) = [(warning[0], warning[1]) for warning in warnings]
    assert (module, "Attribute 'dir' of entity 'autoLink' has been deprecated" in text) == ("AGENT", True)


def test_old_and_present_name_together_are_refused():
    _, errors, _ = validated("autoLink", "address: a", "direction: in", "dir: in")
    text = "Both 'dir' and 'direction' cannot be specified for entity 'autoLink'"
    assert errors == [(4, f"{LONG}router.config.autoLink: {text}")]


@pytest.mark.parametrize(("workers", "errors"), [("3", 0), ("03", 0), ("4", 1), ("many", 1)])
def test_attribute_under_two_names_must_have_equal_values(workers, errors):
    _, found, _ = validated("router", "id: A", "workerThreads: 3", f"workers: {workers}")
    assert [line for line, text in found if "two names of one attribute" in text] == [4] * errors


@pytest.mark.parametrize(
    ("name", "guess"),
    [("prt", " (did you mean 'port'?)"), ("PORT", " (did you mean 'port'?)"), ("xyz", "")],
)
def test_similar_name_is_suggested(name, guess):
    assert similar(name, ["host", "port"]) == guess


def test_very_long_name_gets_no_suggestion():
    assert similar("a" * 40, ["a" * 40]) != ""
    assert similar("a" * 41, ["a" * 41]) == ""


def test_line_of_member_is_that_of_nearest_known_map():
    entity, errors, _ = validated("listener", "port: 1", "openProperties: {", '"a": 1,', '"b": {"c":', "2}", "}")
    assert errors == []
    assert entity.line_of("openProperties", "a") == 4
    assert entity.line_of("openProperties", "b", "c") == 6
    assert entity.line_of("openProperties", "none", "c") == 3


def test_accessor_of_wrong_type_is_error_of_program():
    entity, _, _ = validated("listener", "port: 1")
    for wrong in (lambda: entity.number("port"), lambda: entity.text("linkCapacity"), lambda: entity.map("port")):
        with pytest.raises((TypeError, KeyError)):
            wrong()
