"""The Helm chart: it has the version of the router, and each of its values has a comment and a type."""

import json
import re
from pathlib import Path

import yaml

from sluice.router.version import VERSION

CHART = Path(__file__).resolve().parents[2] / "packaging/helm/sluice"


def test_chart_has_version_of_router() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == VERSION


def test_values_in_values_yaml_have_comments() -> None:
    """A section needs none if its values have theirs."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    bare = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if re.match(r" *\w+: *\S", line) and not before.lstrip().startswith("#") and "{cpu:" not in line
    ]
    assert bare == []


def test_schema_of_values_knows_each_value() -> None:
    def unknown(values: dict[str, object], schema: dict[str, dict[str, object]], path: str) -> list[str]:
        found = []
        for name, value in values.items():
            known = schema.get(name)
            if known is None:
                found.append(path + name)
            elif isinstance(value, dict) and isinstance(known.get("properties"), dict):
                found += unknown(value, known["properties"], f"{path}{name}.")  # type: ignore[arg-type]
        return found

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    assert unknown(values, schema["properties"], "") == []
