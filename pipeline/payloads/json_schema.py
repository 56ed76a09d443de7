"""Arrow types of JSON Schemas. What a schema leaves open is text with JSON; formats other than times are ignored."""

from typing import Any

import pyarrow as pa

from sluice.pipeline.payloads.codec import FieldCount

SIMPLE = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "string": pa.string()}
FORMATS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
LEVELS = 32  # of schemas within schemas


def json_schema_type(schema: Any) -> pa.DataType:
    """Return the type of the values of a schema. Raises ValueError."""
    return _type(schema, schema, 0, FieldCount())


def _type(schema: Any, root: Any, level: int, count: FieldCount) -> pa.DataType:
    count.add()
    if level > LEVELS:
        raise ValueError(f"more than {LEVELS} levels, or a schema contains itself, which Spark's types cannot")
    if not isinstance(schema, dict):
        return pa.string()
    if "$ref" in schema:
        return _type(_referred(schema["$ref"], root), root, level + 1, count)
    for name in ("oneOf", "anyOf"):
        choices = [each for each in schema.get(name, ()) if each != {"type": "null"}]
        if len(choices) == 1:
            return _type(choices[0], root, level + 1, count)
        if choices:
            return pa.string()
    found = schema.get("type")
    kinds = [each for each in (found if isinstance(found, list) else [found]) if each != "null"]
    kind = kinds[0] if len(kinds) == 1 else None
    if kind == "object":
        return _object(schema, root, level, count)
    if kind == "array":
        return pa.list_(_type(schema.get("items"), root, level + 1, count))
    if kind == "string" and schema.get("format") in FORMATS:
        return FORMATS[schema["format"]]
    return SIMPLE.get(kind, pa.string()) if isinstance(kind, str) else pa.string()


def _object(schema: dict[str, Any], root: Any, level: int, count: FieldCount) -> pa.DataType:
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        return pa.struct([pa.field(name, _type(each, root, level + 1, count)) for name, each in properties.items()])
    values = schema.get("additionalProperties")
    return pa.map_(pa.string(), _type(values, root, level + 1, count)) if isinstance(values, dict) else pa.string()


def _referred(reference: Any, root: Any) -> Any:
    """Return the schema that a reference within the same text names. Raises ValueError."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise ValueError(f"reference {reference!r}: only references within the schema are supported")
    found = root
    for name in reference.removeprefix("#").split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            raise ValueError(f"reference {reference!r} leads nowhere")
        found = found[key]
    return found
