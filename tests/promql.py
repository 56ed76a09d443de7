"""Names of metrics and labels in expressions of PromQL, and the files in which the repository has expressions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "conf/prometheus/rules.yml"
PIPELINE_RULES = ROOT / "conf/prometheus/pipeline.yml"
DASHBOARDS = sorted((ROOT / "conf/grafana").glob("*.json"))

_TEXT = re.compile(r'"[^"]*"')
_METRIC = re.compile(r"\b(?:outcome:)?(?:sluice|qdr|process)_\w+(?::\w+)?\b|\bup\b")
_MATCHERS = re.compile(r"\{([^}]*)\}")
_MATCHER = re.compile(r"(\w+) *(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)")


@dataclass(frozen=True)
class UsedNames:
    """Names that an expression uses: metrics, and labels in its selectors and groupings."""

    metrics: frozenset[str]
    labels: frozenset[str]


def used_names(expression: str) -> UsedNames:
    """Return the names in an expression. Recording rules of the repository count as metrics."""
    bare = _TEXT.sub('""', expression)
    labels = {name for text in _MATCHERS.findall(bare) for name in _MATCHER.findall(text)}
    labels |= {name.strip() for text in _GROUPING.findall(bare) for name in text.split(",") if name.strip()}
    outside = _MATCHERS.sub("", _GROUPING.sub("", bare))
    return UsedNames(frozenset(_METRIC.findall(outside)), frozenset(labels))


@dataclass(frozen=True)
class DashboardQuery:
    """A query of a panel: title of the panel, expression, and the labels that the legend names."""

    dashboard: str
    title: str
    expr: str
    legend: frozenset[str]

    def filled(self, **values: str) -> str:
        """Return the expression with values in place of the dashboard's variables."""
        return re.sub(r"\$(\w+)", lambda found: values[found[1]], self.expr)


def dashboard_queries() -> list[DashboardQuery]:
    """Return the queries of all dashboards."""
    return [
        DashboardQuery(
            file.stem, panel["title"], target["expr"], frozenset(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        )
        for file in DASHBOARDS
        for panel in json.loads(file.read_text("utf-8"))["panels"]
        for target in panel.get("targets", ())
    ]


def rules(kind: str, file: Path = RULES) -> dict[str, dict[str, Any]]:
    """Return the rules of a kind, `alert` or `record`, by name."""
    groups = yaml.safe_load(file.read_text("utf-8"))["groups"]
    found = [rule for group in groups for rule in group["rules"] if kind in rule]
    named = {rule[kind]: rule for rule in found}
    assert len(named) == len(found), "two rules have the same name"
    return named
