"""Write docs/user/reference.md from the schema; with --check, verify that it matches the schema."""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "user" / "reference.md"
sys.path.insert(0, str(ROOT))

from sluice.router.config.schema import SCHEMA, Attribute, EntityType  # noqa: E402  # after the path is set
from sluice.router.config.values import written  # noqa: E402

HEAD = """\
# Reference: entity types

<!-- Made by scripts/make_reference.py from router/config/schema.json; edit that. -->

This page lists all types of entities that the router knows, with their attributes: first the types that have sections
in the [configuration file](configuration.md), then the types that only report and that only management shows.

When a change of an attribute takes effect, by reload or by management:

- *live*: at once;
- *reconnect*: with new connections;
- *restart*: with a restart of the router.

Every entity also has `identity` and `type`, set by the router. The name of a type in management is
`org.apache.qpid.dispatch.` followed by the name given below.
"""


def reference() -> str:
    """Return the text of the page."""
    sections = [each for each in SCHEMA.types.values() if each.section is not None]
    reports = [each for each in SCHEMA.types.values() if each.section is None and each.own_attributes]
    configured = [text for each in sections for text in section(each)]
    reported = [text for each in reports if each.name != "entity" for text in report(each)]
    lines = [HEAD, "## Sections of the file", *configured, "## Types that report", *reported]
    return "\n\n".join(text.strip("\n") for text in lines) + "\n"


def section(entity_type: EntityType) -> Iterator[str]:
    """Yield the paragraphs about a type that configuration files contain."""
    yield from _heading(entity_type)
    if notes := list(type_notes(entity_type)):
        yield " ".join(notes)
    yield _table("type or values | default | change", [_row(each) for each in entity_type.settable])
    reported = [each for each in entity_type.attributes.values() if not each.settable and each.name != "identity"]
    if reported:
        yield "Reported by management:"
        yield _table("type or values", [_report_row(each) for each in reported])


def report(entity_type: EntityType) -> Iterator[str]:
    """Yield the paragraphs about a type that only reports, or that describes part of another."""
    yield from _heading(entity_type)
    attributes = entity_type.own_attributes.values()
    if entity_type.is_a(SCHEMA.types["configurationEntity"]) and "CREATE" not in entity_type.operations:
        yield _table("type or values | default | change", [_row(each) for each in attributes])
    else:
        yield _table("type or values", [_report_row(each) for each in attributes])


def _heading(entity_type: EntityType) -> Iterator[str]:
    yield f"### {entity_type.dump_key}"
    yield entity_type.about


def _table(columns: str, rows: list[str]) -> str:
    rule = " | ".join(["---"] * (columns.count("|") + 3))
    return "\n".join([f"| attribute | {columns} | meaning |", f"| {rule} |", *rows])


def type_notes(entity_type: EntityType) -> Iterator[str]:
    """Yield sentences about a type that configuration files contain."""
    if not entity_type.supported:
        yield "**Not supported yet**: a file with such a section is refused."
    if entity_type.singleton:
        yield "At most one section."
    if entity_type.name != entity_type.dump_key:
        yield f"In management: `{entity_type.name}`."


def type_text(attribute: Attribute) -> str:
    """Return the type of an attribute, or its values."""
    if attribute.type == "enum":
        return ", ".join(f"`{value}`" for value in attribute.values)
    if attribute.minimum is not None and attribute.maximum is not None and attribute.maximum < 1 << 16:
        return f"integer, {attribute.minimum} to {attribute.maximum}"
    return attribute.type


def _row(attribute: Attribute) -> str:
    default = f"`{written(attribute.default)}`" if attribute.default not in (None, "") else ""
    cells = [
        f"`{attribute.name}`",
        type_text(attribute),
        "required" if attribute.required else default,
        attribute.change,
    ]
    return _cells([*cells, " ".join([attribute.about, *attribute_notes(attribute)])])


def _report_row(attribute: Attribute) -> str:
    about = attribute.about + (" May be changed." if attribute.update else "")
    return _cells([f"`{attribute.name}`", type_text(attribute), about])


def attribute_notes(attribute: Attribute) -> Iterator[str]:
    """Yield sentences about limits and other names of an attribute."""
    if attribute.supported is not None:
        only = ", ".join(f"`{written(value)}`" if value != "" else "empty" for value in attribute.supported)
        yield f"Only {only} is supported yet." if only else "Not supported yet."
    if not attribute.effect:
        yield "No effect in this version."
    if attribute.addition:
        yield "Not in Dispatch."
    if attribute.old_name:
        yield f"Old name: `{attribute.old_name}`."
    if attribute.alias:
        yield f"Other name: `{attribute.alias}`."


def _cells(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(words: list[str]) -> int:
    """Write or check the page; return the exit status."""
    text = reference()
    if "--check" not in words:
        REFERENCE.write_text(text, "utf-8")
        return 0
    if REFERENCE.exists() and REFERENCE.read_text("utf-8") == text:
        return 0
    print(f"{REFERENCE.relative_to(ROOT)} is not what the schema says: run scripts/make_reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
